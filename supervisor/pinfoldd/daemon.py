"""`pinfoldd`: puts the parts together, and takes them apart again."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path

from pinfoldd.config import Config, ConfigError, load

log = logging.getLogger("pinfoldd")

LOCKED = 3  # exit status: another supervisor has this state directory
BAD_SETTINGS = 2


def main() -> None:
    """The command `pinfoldd`."""
    parser = argparse.ArgumentParser(
        prog="pinfoldd", description="The supervisor of agents' processes."
    )
    parser.add_argument(
        "--state",
        type=Path,
        help="state directory (default: PINFOLD_STATE, or ~/.local/state/pinfold)",
    )
    parser.add_argument("--config", type=Path, help="settings file (default: STATE/pinfold.toml)")
    parser.add_argument("--address", help="host:port to listen on besides the socket (needs TLS)")
    parser.add_argument(
        "--durability",
        choices=["process", "full"],
        help="what the log survives: the end of the process (default), or of the machine as well",
    )
    parser.add_argument("--ready-fd", type=int, help="write a line there when ready")
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error", "critical"], default="info"
    )
    options = parser.parse_args()
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)
    try:
        config = load(
            options.state,
            options.config,
            address=options.address,
            durability=options.durability,
        )
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"pinfoldd: {line}", file=sys.stderr)
        sys.exit(BAD_SETTINGS)
    sys.exit(run(config, options.ready_fd))


def _is_news(record: logging.LogRecord) -> bool:
    """gRPC tells of each client that goes away from a stream, as an error with a traceback."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"


def run(config: Config, ready_fd: int | None = None) -> int:
    """Run a supervisor until it is stopped. Returns the exit status."""
    try:
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.state.chmod(0o700)
        lock = os.open(config.state / "pinfoldd.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        print(f"pinfoldd: cannot use {config.state}: {error.strerror}", file=sys.stderr)
        return BAD_SETTINGS
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(lock, 32).decode(errors="replace").strip() or "?"
        print(
            f"pinfoldd: another supervisor (pid {pid}) has {config.state}; "
            "stop it with `pinfold stop`, or choose another --state",
            file=sys.stderr,
        )
        return LOCKED
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    # Before grpc is imported: this process never forks, and its handlers would slow every
    # start of the keeper.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # The thread that waits for the server's next event reads the sockets as well, instead of
    # getting what a pool of threads has read: a fifth less of processor time for each call. A
    # gRPC that has no such choice any more says so in one line of the log, and goes on.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    import uvloop

    from pinfoldd.supervisor import Supervisor

    async def serve() -> int:
        supervisor = Supervisor(config)
        try:
            addresses = await supervisor.start()
        except ConfigError as error:
            print(f"pinfoldd: {error}", file=sys.stderr)
            await supervisor.abandon()
            return BAD_SETTINGS
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.request_stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        gc.collect()
        gc.freeze()
        # What is kept has no cycles (the core's structures are not even tracked), and one prompt
        # may settle ten thousand waits: by default that alone would be 30 collections.
        gc.set_threshold(50_000, 20, 50)
        print(f"pinfoldd ready on {' '.join(addresses)}", flush=True)
        if ready_fd is not None:
            os.write(ready_fd, f"ready {addresses[0]}\n".encode())
            os.close(ready_fd)
        return await supervisor.stopped()

    log.info("starting on %s at %.3f", config.state, time.time())
    return uvloop.run(serve())


if __name__ == "__main__":
    main()
