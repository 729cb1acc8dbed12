"""Starting a supervisor for a state directory: one, also when many ask at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pinfold.address import SOCKET_NAME, Address, Target
from pinfold.errors import UnavailableError

LOG_NAME = "pinfoldd.log"

# The daemon's exit code when another one holds the state directory.
_STATE_IN_USE = 3
_READY_TIMEOUT = 30.0
_PAUSE = 0.02


def command(state: Path, arguments: Sequence[str] = ()) -> list[str]:
    """The daemon's command line."""
    return [sys.executable, "-m", "pinfoldd", "--state", str(state), *arguments]


def is_listening(state: Path) -> bool:
    """Something answers at the socket of a state directory."""
    target = Target(Address(socket=state.absolute() / SOCKET_NAME))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(target.name.removeprefix("unix:"))
        return True
    except OSError:
        return False
    finally:
        target.close()


def ensure_running(state: Path) -> bool:
    """Starts a supervisor unless one is there. Returns whether it was started here."""
    if is_listening(state):
        return False
    return start_detached(state)


def start_detached(state: Path, arguments: Sequence[str] = ()) -> bool:
    """Starts a supervisor in the background and returns when it is ready.

    False: another one was there, or was being started. Raises `UnavailableError` with the
    daemon's own words when it does not come up.
    """
    deadline = time.monotonic() + _READY_TIMEOUT
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"cannot use the state directory {state}: {error.strerror}", reason="STATE_DIRECTORY"
        ) from error
    with _start_lock(state, deadline):
        if is_listening(state):
            return False
        return _start(state, arguments, deadline)


@contextlib.contextmanager
def _start_lock(state: Path, deadline: float) -> Iterator[None]:
    try:
        lock = os.open(state / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnavailableError(
            f"cannot use the state directory {state}: {error.strerror}", reason="STATE_DIRECTORY"
        ) from error
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"another start of a supervisor on {state} does not come to an end",
                        reason="START_TIMEOUT",
                    ) from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(lock)


def _start(state: Path, arguments: Sequence[str], deadline: float) -> bool:
    log_path = state / LOG_NAME
    environment = {name: value for name, value in os.environ.items() if name != "PINFOLD_TOKEN"}
    ready_read, ready_write = os.pipe()
    try:
        with log_path.open("ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command(state.absolute(), ["--ready-fd", str(ready_write), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
                pass_fds=[ready_write],
            )
        os.close(ready_write)
        ready_write = -1
        if _await_line(ready_read, deadline):
            return True
    finally:
        os.close(ready_read)
        if ready_write >= 0:
            os.close(ready_write)
    return _explain(process, state, log_path, log_start, deadline)


def _await_line(descriptor: int, deadline: float) -> bool:
    """A whole line came; false at the end of the pipe or the deadline."""
    received = b""
    while b"\n" not in received:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return False
        piece = os.read(descriptor, 4096)
        if not piece:
            return False
        received += piece
    return True


def _explain(
    process: subprocess.Popen[bytes], state: Path, log_path: Path, log_start: int, deadline: float
) -> bool:
    try:
        code = process.wait(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.terminate()
        raise UnavailableError(
            f"the supervisor was not ready within {_READY_TIMEOUT:g} s; see {log_path}",
            reason="START_TIMEOUT",
        ) from None
    if code == _STATE_IN_USE:
        while time.monotonic() < deadline:
            if is_listening(state):
                return False
            time.sleep(_PAUSE)
    with log_path.open("rb") as log:
        log.seek(log_start)
        lines = log.read().decode(errors="replace").strip().splitlines()
    words = lines[-1].strip() if lines else f"exit code {code}"
    raise UnavailableError(
        f"the supervisor did not start: {words} (see {log_path})", reason="START_FAILED"
    )
