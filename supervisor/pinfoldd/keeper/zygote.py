"""`python -m pinfoldd.keeper.zygote`: forks Python workers from a warm process.

Starting Python and importing what a worker needs costs over 100 ms; forking a process that
has done so costs a few. The zygote imports the modules it is told to, opens no connection,
starts no thread, and then forks on request.

A request is one message with a payload file (JSON) and the worker's descriptors. The worker
is forked twice: the process in between ends at once, and the worker, now an orphan, is
adopted by the keeper as its subreaper. So it is the keeper's child like any other leader.
It has its own session and waits at a gate (a pipe) until the keeper has taken it in: an
exit status can't be missed, and a worker that the keeper knows nothing of never runs.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import gc
import importlib
import io
import json
import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

REQUEST_FDS = 5  # payload, gate, and the worker's 0, 1 and 2
CHANNEL = 3
"""The zygote's end of its socket pair with the keeper."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="pinfold-zygote", description=__doc__)
    parser.add_argument("--preload", default="", help="modules to import, comma-separated")
    arguments = parser.parse_args()
    # read by gRPC when it is imported: its fork handlers crash or hang children
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    channel = socket.socket(fileno=CHANNEL)
    failed = []
    for name in filter(None, arguments.preload.split(",")):
        try:
            importlib.import_module(name)
        except ImportError as error:  # a worker that needs it will say so itself
            failed.append(f"{name}: {error}")
    gc.collect()
    gc.freeze()
    _answer(channel, {"ready": True, "failed": failed})
    while True:
        message, fds = _receive(channel)
        if not message:  # the keeper is gone
            os._exit(0)
        payload, gate, *streams = fds
        with open(payload, "rb") as file:
            request = json.load(file)
        _fork(channel, request, gate, streams)
        for fd in (gate, *streams):
            os.close(fd)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    size = socket.CMSG_SPACE(REQUEST_FDS * fds.itemsize)
    message, ancillary, _, _ = channel.recvmsg(64, size, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data)
    return message, list(fds)


def _answer(channel: socket.socket, values: dict[str, Any]) -> None:
    channel.send(json.dumps(values).encode("ascii"))


def _fork(channel: socket.socket, request: dict[str, Any], gate: int, streams: list[int]) -> None:
    serial = request["serial"]
    ready, ready_end = os.pipe2(os.O_CLOEXEC)
    try:
        if request["mark"]:
            # here, so that the worker carries it from its first moment
            hard = resource.getrlimit(resource.RLIMIT_RSS)[1]
            resource.setrlimit(resource.RLIMIT_RSS, (request["mark"], hard))
        middle = os.fork()
    except OSError as error:
        os.close(ready)
        os.close(ready_end)
        _answer(channel, {"serial": serial, "error": f"fork: {error.strerror}"})
        return
    if not middle:
        code = 1
        with contextlib.suppress(OSError):
            code = 0
            if not os.fork():
                _work(request, gate, streams, ready_end)
        os._exit(code)
    os.close(ready_end)
    os.waitpid(middle, 0)
    said = os.read(ready, 4096)
    os.close(ready)
    if said.isdigit():
        _answer(channel, {"serial": serial, "pid": int(said)})
    else:
        _answer(channel, {"serial": serial, "error": said.decode() or "worker could not be forked"})


def _work(request: dict[str, Any], gate: int, streams: list[int], ready: int) -> NoReturn:
    """The worker, from its first moment to its end."""
    try:
        os.setsid()
        _become(request, streams)
    except OSError as error:
        os.write(ready, f"worker could not be set up: {error}".encode("ascii", "replace"))
        os._exit(1)
    # while it waits here the keeper learns that it is there; or the keeper dies
    os.write(ready, b"%d" % os.getpid())
    if os.read(gate, 1) != b"g":
        os._exit(1)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.close(int(name))
    code: object = 1
    try:
        module, _, function = request["target"].partition(":")
        target: Any = importlib.import_module(module)
        for name in function.split("."):
            target = getattr(target, name)
        code = target()
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - this is the top of the worker
        traceback.print_exc()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    # the ordinary end of a Python program: exit handlers run, streams are flushed
    sys.exit(code)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    # the zygote's own are low numbers: copies above them can't be overwritten on the way
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    # As Python itself begins: else a worker that writes to a program which has ended its input
    # dies of it, where any other Python program gets an exception.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.clear()
    for name, value in request["env"]:
        os.environ[name] = value
    os.chdir(request["cwd"])
    for kind, soft, hard in request["limits"]:
        resource.setrlimit(kind, (soft, hard))
    sys.argv = [request["target"]]
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        raw = open(fd, mode, closefd=False, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        if isinstance(raw, io.TextIOWrapper):
            raw.reconfigure(line_buffering=True)
        setattr(sys, name, raw)


if __name__ == "__main__":
    main()
