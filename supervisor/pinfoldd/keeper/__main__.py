"""`python -m pinfoldd.keeper --state DIR`: one keeper for one state directory."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import os
import secrets
import sys
import threading
import time
import traceback
from typing import NoReturn

from . import host
from .cgroup import Cgroups
from .journal import Journal
from .keeper import Keeper
from .link import Connection, listen
from .loop import Loop
from .marker import TOKEN_BITS, Marker
from .recovery import recover

LOCK = "keeper.lock"
SIGINT, SIGTERM = 2, 15


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pinfold-keeper", description=__doc__)
    add = parser.add_argument
    add("--state", required=True, metavar="DIR", help="state directory, made if missing")
    add(
        "--linger",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="end all groups when no daemon has been connected for so long",
    )
    add(
        "--drain",
        type=float,
        default=0.05,
        metavar="SECONDS",
        help="how long after a leader's exit output of others is still waited for",
    )
    add(
        "--umask",
        type=lambda text: int(text, 8),
        default=0o022,
        metavar="OCTAL",
        help="file mode mask of the children",
    )
    add("--fsync", action="store_true", help="journal records survive a crash of the machine")
    add(
        "--preload",
        default="",
        metavar="MODULES",
        help="imported by the zygote that Python workers are forked from, comma-separated",
    )
    add(
        "--cgroup",
        default="",
        metavar="DIR",
        help="a cgroup v2 directory to make a cgroup for each group in (costs time: off)",
    )
    add("--ready-fd", type=int, default=-1, help=argparse.SUPPRESS)
    return parser.parse_args()


def _log(text: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with contextlib.suppress(OSError):
        os.write(2, f"{stamp} keeper {text}\n".encode("utf-8", "backslashreplace"))


def _refuse(text: str) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"pinfold keeper: {text}\n".encode("utf-8", "backslashreplace"))
    sys.exit(1)


def _lock(state: str) -> int:
    """Hold `state` for as long as this process lives. Exits if another keeper has it."""
    fd = os.open(os.path.join(state, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(fd, 32).decode(errors="replace").strip() or "unknown pid"
        _refuse(f"another keeper ({owner}) is running on this state directory: {state}")
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


def _token(state: str) -> int:
    """The number that tells the groups of this state directory from those of any other."""
    path = os.path.join(state, "keeper.token")
    with contextlib.suppress(FileNotFoundError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read(), 16)
    token = secrets.randbits(TOKEN_BITS)
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{token:06x}\n")
    return token


def _make_directories(state: str) -> None:
    for name in ("", "groups", "spool"):
        path = os.path.join(state, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
    os.chmod(state, 0o700)
    for name in os.listdir(os.path.join(state, "groups")):
        os.unlink(os.path.join(state, "groups", name))


def main() -> None:
    arguments = _arguments()
    state = os.path.abspath(arguments.state)
    ready = arguments.ready_fd
    os.umask(0o077)
    host.own_session()
    host.close_inherited((ready,) if ready > 2 else ())
    signals = host.reset_signals()
    host.lift_file_size_limit()
    host.become_subreaper()
    host.name_process("pinfold-keeper")
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        lock = _lock(state)
        _make_directories(state)
        marker = Marker(_token(state))
    except OSError as error:
        _refuse(f"can't use the state directory: {error}")
    journal = Journal(
        os.path.join(state, "keeper.journal"),
        fsync=arguments.fsync,
        on_error=lambda error: _log(f"journal: {error}"),
    )
    known = list(journal.load().values())
    cgroups = None
    if arguments.cgroup:
        try:
            cgroups = Cgroups(arguments.cgroup, marker.name, _log)
            cgroups.clear()
        except OSError as error:
            _refuse(f"can't use the cgroup directory: {error}")
    descriptors = host.Descriptors()  # recovery has a pidfd open of each process it ends
    restored = recover(known, journal, marker, os.path.join(state, "spool"))
    os.umask(arguments.umask & 0o777)

    loop = Loop()
    keeper = Keeper(
        loop,
        state,
        marker=marker,
        descriptors=descriptors,
        journal=journal,
        drain=arguments.drain,
        linger=arguments.linger,
        preload=arguments.preload,
        cgroups=cgroups,
        name=secrets.token_hex(8),
        log=_log,
    )
    keeper.adopt_records(restored)
    _watch_signals(loop, keeper, signals)
    listener = listen(state)

    def accept(_: int) -> None:
        with contextlib.suppress(OSError):
            sock, _address = listener.accept()
            keeper.attach(Connection(loop, sock, keeper.order, keeper.detached))

    loop.watch(listener.fileno(), accept)
    if ready > 2:
        os.write(ready, b"ready\n")
        os.close(ready)
    _log(f"started: pid {os.getpid()}, {len(restored)} groups on record")
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    fine = _run(loop)
    _log("ended")
    journal.close()
    if cgroups is not None:
        cgroups.close()
    os.close(lock)
    sys.exit(0 if fine else 1)


def _watch_signals(loop: Loop, keeper: Keeper, signals: int) -> None:
    def woken(_: int) -> None:
        numbers = host.read_signals(signals)
        if SIGTERM in numbers or SIGINT in numbers:
            _log("asked to end by a signal")
            keeper.shut_down(2.0)
        keeper.reap()

    loop.watch(signals, woken)


def _run(loop: Loop) -> bool:
    """Run the loop on a thread of its own, while this one, the first, does nothing at all.

    The kernel keeps children by thread: what the loop's thread spawns is on that thread's
    list, and adopted orphans go to the first thread's. So the census reads a list of orphans
    only, however many leaders there are (500 of them would cost it 150 µs each time).
    Nothing else runs beside the loop: the keeper is single-threaded in every other respect.
    """
    failure: list[str] = []

    def body() -> None:
        try:
            loop.run()
        except BaseException:  # noqa: BLE001 - told by the first thread
            failure.append(traceback.format_exc())

    thread = threading.Thread(target=body, name="loop")
    thread.start()
    thread.join()
    for text in failure:
        _log(text)
    return not failure


if __name__ == "__main__":
    main()
