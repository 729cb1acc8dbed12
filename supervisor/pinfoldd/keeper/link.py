"""The keeper's end of the link: one listening socket, one daemon at a time."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator

from .loop import READ, WRITE, Loop
from .messages import Decoder, LinkError, Order

SOCKET = "keeper.sock"
_BUFFER = bytearray(256 << 10)  # one for all: a fresh one each time costs page faults
_VIEW = memoryview(_BUFFER)
CROWDED = 1 << 20
"""Unsent bytes above which reports that can be coalesced (`Grew`) are held back."""
_TOO_MUCH = 64 << 20


def listen(state_dir: str) -> socket.socket:
    """The keeper's socket, for this user only. The caller holds the lock of `state_dir`, so
    a socket that is there already is left over from a keeper that was killed."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    fresh = SOCKET + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(state_dir, fresh))
    with _short_path(state_dir, fresh) as path:
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
    sock.listen(16)
    sock.setblocking(False)
    # under its name only once it listens: whoever finds it can connect
    os.rename(os.path.join(state_dir, fresh), os.path.join(state_dir, SOCKET))
    return sock


def connect(state_dir: str) -> socket.socket:
    """The daemon's counterpart of `listen`. Raises OSError when nobody listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _short_path(state_dir) as path:
            sock.connect(path)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short_path(state_dir: str, name: str = SOCKET) -> Iterator[str]:
    """The socket's path in a form that always fits the 107 bytes of an address."""
    fd = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


class Connection:
    """One daemon. Frames are collected and go out once a turn; none is ever waited for."""

    __slots__ = (
        "_decoder",
        "_loop",
        "_on_closed",
        "_on_order",
        "_out",
        "_sock",
        "_waiting",
        "held",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        on_order: Callable[[Order], None],
        on_closed: Callable[[str], None],
    ) -> None:
        self._loop, self._sock = loop, sock
        self._on_order, self._on_closed = on_order, on_closed
        self._decoder = Decoder()
        self._out: deque[bytes | memoryview] = deque()
        self._waiting = False
        self.held = 0  # bytes not sent yet
        sock.setblocking(False)
        loop.watch(sock.fileno(), self._ready)

    def send(self, frame: bytes) -> None:
        self._out.append(frame)
        self.held += len(frame)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
        if events & ~WRITE and self._sock.fileno() >= 0:
            self._receive()

    def finish(self) -> None:
        """Carry out what has arrived already, then close without a word."""
        self._on_closed = lambda _: None
        while self._sock.fileno() >= 0 and self._receive():
            pass
        self.close()

    def _receive(self) -> bool:
        """Take in orders. False if there are none, or none any more."""
        try:
            count = self._sock.recv_into(_BUFFER)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(str(error))
            return False
        if not count:
            self._end("the daemon closed it")
            return False
        try:
            orders = self._decoder.feed(bytes(_VIEW[:count]))
        except LinkError as error:
            self._end(str(error))
            return False
        for order in orders:
            self._on_order(order)  # type: ignore[arg-type]
        return True

    def flush(self) -> None:
        """Send what fits."""
        while self._out:
            data = b"".join(self._out) if len(self._out) > 1 else self._out[0]
            try:
                count = self._sock.send(data)
            except BlockingIOError:
                count = 0
            except OSError as error:
                self._end(str(error))
                return
            self.held -= count
            self._out.clear()
            if count < len(data):
                self._out.append(memoryview(data)[count:])
                break
        if self.held > _TOO_MUCH:
            self._end(f"the daemon left {self.held} bytes unread")
        elif bool(self._out) != self._waiting:
            self._waiting = bool(self._out)
            self._loop.change(self._sock.fileno(), READ | WRITE if self._waiting else READ)

    def _end(self, why: str) -> None:
        self.close()
        self._on_closed(why)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
        self._out.clear()
        self.held = 0
