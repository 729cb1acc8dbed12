"""The daemon's end: starting and finding a keeper, and the link to it.

    start_keeper(state_dir)                       unless find_keeper(state_dir)
    link = await KeeperLink.connect(state_dir, on_report, on_lost)
    link.send(Spawn(...))

`on_report` gets each report in order, the `Hello` first, on the event loop's thread.
`on_lost` is called once if the link ends without `close`: then connect again (the keeper
and all groups go on), or start a keeper if there is none any more.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from .link import connect as connect_socket
from .messages import STANDARD, Decoder, Json, LinkError, Message, Order, Report, encode

LOCK = "keeper.lock"
LOG = "keeper.log"
_READ_BYTES = 256 << 10
START_SECONDS = 15.0
"""How long a keeper may take to listen: it first ends what an earlier one left running."""


class KeeperError(Exception):
    """The keeper could not be started or reached. The text says why, for people."""


class KeeperLink:
    """One connection to the keeper. To be used on the thread of its event loop.

    The socket is read and written here and not through a transport, whose writes wait for the
    end of a round of the event loop: an order to stop is on its way 80 µs sooner.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_report: Callable[[Report], None],
        on_lost: Callable[[], None],
        json: Json = STANDARD,
    ) -> None:
        self._sock = sock
        self._on_report, self._on_lost = on_report, on_lost
        self._json = json
        self._decoder = Decoder(json)
        self._out: list[bytes] = []
        self._unsent = memoryview(b"")  # what the socket could not take yet
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._read)

    @classmethod
    async def connect(
        cls,
        state_dir: str,
        on_report: Callable[[Report], None],
        on_lost: Callable[[], None],
        json: Json = STANDARD,
    ) -> KeeperLink:
        """Raises `KeeperError` when no keeper listens in `state_dir`. One that is there, but
        is still ending what an earlier one left, is waited for."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return cls(connect_socket(state_dir), on_report, on_lost, json)
            except OSError as error:
                if find_keeper(state_dir) is None or time.monotonic() > deadline:
                    reason = f"no keeper listens in {state_dir}: {error.strerror}"
                    raise KeeperError(reason) from error
            await asyncio.sleep(0.02)

    def send(self, order: Order) -> None:
        """Never waits. What is sent in one turn of the event loop goes out together, in
        order. On a link that is lost it does nothing: the next `Hello` tells what was done."""
        if self._closed:
            return
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(encode(order, self._json))

    def flush(self) -> None:
        """Send it now, for a caller that knows that no more will come in this turn."""
        if self._out and not self._unsent:
            data = b"".join(self._out) if len(self._out) > 1 else self._out[0]
            self._out.clear()
            self._write(memoryview(data))

    def close(self) -> None:
        """End the link, with what was sent before. `on_lost` is not called."""
        if not self._closed:
            self.flush()
            self._closed = True
            if not self._unsent:
                self._release()

    # ---------------------------------------------------- the socket

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        reports: list[Message]
        try:
            reports = self._decoder.feed(data)
        except LinkError:
            self._lose()
            raise
        for report in reports:
            if self._closed:
                return
            try:
                self._on_report(report)  # type: ignore[arg-type]
            except BaseException:
                # What came with it would be lost: on the next link all of it is told again.
                self._lose()
                raise

    def _write(self, data: memoryview) -> None:
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # its end is there to be read
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._sock, self._write_more)

    def _write_more(self) -> None:
        self._loop.remove_writer(self._sock)
        rest, self._unsent = self._unsent, memoryview(b"")
        self._write(rest)
        self.flush()
        if self._closed and not self._unsent:
            self._release()

    def _lose(self) -> None:
        lost = not self._closed
        self._closed = True
        self._release()
        if lost:
            self._on_lost()

    def _release(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
        self._out.clear()
        self._unsent = memoryview(b"")


def find_keeper(state_dir: str) -> int | None:
    """The pid of the keeper that holds `state_dir`; None if there is none."""
    try:
        fd = os.open(os.path.join(state_dir, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(fd, 32).strip()
        return int(text) if text.isdigit() else 0
    else:
        return None
    finally:
        os.close(fd)


def start_keeper(
    state_dir: str,
    *,
    linger: float = 3600.0,
    drain: float = 0.05,
    umask: int = 0o022,
    fsync: bool = False,
    preload: Sequence[str] = (),
    cgroup: str = "",
    timeout: float = START_SECONDS,
) -> subprocess.Popen[bytes]:
    """Start a keeper of its own session, which outlives this process, and wait until it
    listens. Raises `KeeperError` with what it said if it doesn't.

    The Popen is given for tests and for a daemon that wants to reap it; drop it as you like.
    """
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    ready, ready_end = os.pipe2(os.O_CLOEXEC)
    log = os.open(
        os.path.join(state_dir, LOG),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
        0o600,
    )
    before = os.fstat(log).st_size
    argv = [sys.executable, "-m", __package__, "--state", os.path.abspath(state_dir)]
    argv += ["--linger", str(linger), "--drain", str(drain), "--umask", f"{umask:o}"]
    argv += ["--preload", ",".join(preload), "--ready-fd", str(ready_end)]
    argv += ["--fsync"] if fsync else []
    argv += ["--cgroup", cgroup] if cgroup else []
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(),
            pass_fds=(ready_end,),
            start_new_session=True,
        )
    finally:
        os.close(ready_end)
        os.close(log)
    try:
        if _becomes_ready(ready, timeout):
            return process
    finally:
        os.close(ready)
    if process.poll() is None:
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with open(os.path.join(state_dir, LOG), "rb") as file:
        file.seek(before)
        said = file.read().decode(errors="replace").strip()
    raise KeeperError(said or f"the keeper did not start (status {process.returncode})")


def _becomes_ready(fd: int, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        readable, _, _ = select.select([fd], [], [], left)
        if readable:
            return os.read(fd, 64).startswith(b"ready")
    return False


def _environment() -> dict[str, str]:
    """The same code as ours, wherever it was imported from."""
    env = dict(os.environ)
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    rest = env.get("PYTHONPATH")
    env["PYTHONPATH"] = f"{here}{os.pathsep}{rest}" if rest else here
    return env
