"""The streams of one group: output drained into its spool, input fed from the daemon.

The drain never waits for anyone: not for the disk (`spool`), not for the daemon, and each
turn of the loop takes a bounded amount from each group, so that one flood doesn't starve
two hundred others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
import time
from collections import deque
from collections.abc import Callable

from .loop import WRITE, Loop
from .spool import STDERR, STDOUT
from .spool_writer import SpoolWriter

_BUFFER = bytearray(256 << 10)
_VIEW = memoryview(_BUFFER)
_SHARE = 1 << 20  # bytes of one turn, shared by all that are ready
_LEAST = 64 << 10
_F_SETPIPE_SZ = 1031
_LARGE_PIPE = 1 << 20
INPUT_BOUND = 1 << 20
_END_OF_TRANSMISSION = b"\x04"


class Output:
    """Reads what a group writes. `on_data` follows each read, `on_closed` the last end."""

    __slots__ = (
        "_behind",
        "_large",
        "_loop",
        "_on_closed",
        "_on_data",
        "_streams",
        "_terminal",
        "spool",
    )

    def __init__(
        self,
        loop: Loop,
        out: int,
        err: int,
        spool: SpoolWriter,
        on_data: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self.spool = spool
        self._on_data, self._on_closed = on_data, on_closed
        self._streams = {out: STDOUT}
        self._terminal = err < 0
        if err >= 0:
            self._streams[err] = STDERR
        self._large: set[int] = set()
        self._behind: set[int] = set()  # streams with more in them than their turn allowed
        loop.watch(out, lambda _: self._ready(out))
        if err >= 0:
            loop.watch(err, lambda _: self._ready(err))

    @property
    def open(self) -> bool:
        return bool(self._streams)

    def _ready(self, fd: int) -> None:
        for other in self._behind - {fd}:
            # what is left of the other stream was written before this one became readable
            self._read(other, _available(other))
        if fd not in self._streams:
            return
        self._read(fd, max(_SHARE // self._loop.ready, _LEAST))

    def _read(self, fd: int, budget: int) -> int:
        """Up to about `budget` bytes. Closes the stream at its end."""
        taken = 0
        self._behind.discard(fd)
        while taken < budget:
            try:
                count = os.readv(fd, (_VIEW,))
            except BlockingIOError:
                break
            except OSError:  # EIO: nobody has the terminal open any more
                count = 0
            if not count:
                self._end(fd)
                break
            taken += count
            lines = _BUFFER.count(b"\n", 0, count)
            self.spool.append(self._streams[fd], _VIEW[:count], lines, time.time())
            if count < _LEAST:
                break
            if fd not in self._large:
                # only pipes that are really busy: the user's allowance for them is small
                self._large.add(fd)
                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, _F_SETPIPE_SZ, _LARGE_PIPE)
        else:
            self._behind.add(fd)
        if taken:
            self._on_data()
        return taken

    def _end(self, fd: int) -> None:
        del self._streams[fd]
        self._behind.discard(fd)
        self._close(fd)
        if not self._streams:
            self._on_closed()

    def drain(self) -> None:
        """All that is in the pipes now, and their ends where these are reached already.

        What a process that still runs adds meanwhile may stay for later: that is what makes
        this end.
        """
        for fd in sorted(self._streams, key=lambda fd: fd not in self._behind):
            left = _available(fd)
            while left > 0:
                taken = self._read(fd, left)
                if not taken or fd not in self._streams:
                    break
                left -= taken
            if fd in self._streams:
                self._read(fd, 1)

    def close(self) -> None:
        """Give up the streams, wherever they are."""
        for fd in list(self._streams):
            self._close(fd)
        self._streams.clear()
        self._behind.clear()
        self.spool.release()

    def _close(self, fd: int) -> None:
        if self._terminal:
            # the input has a duplicate: closing this one doesn't end what epoll tells of it
            self._loop.unwatch(fd)
        else:
            self._loop.forget(fd)
        os.close(fd)


def _available(fd: int) -> int:
    try:
        answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])


class Input:
    """Feeds a group's standard input, at the speed at which it is read."""

    __slots__ = (
        "_eof",
        "_fd",
        "_held",
        "_last",
        "_loop",
        "_on_taken",
        "_queue",
        "_terminal",
        "_watched",
    )

    def __init__(
        self, loop: Loop, fd: int, terminal: bool, on_taken: Callable[[int, int, str], None]
    ) -> None:
        self._loop = loop
        self._fd = fd if not terminal or fd < 0 else os.dup(fd)
        self._terminal = terminal
        self._on_taken = on_taken  # serial, bytes accepted, error
        # serial (-1: nobody asked), what is left, bytes of it in all, eof after it, error
        self._queue: deque[tuple[int, memoryview, int, bool, str]] = deque()
        self._held = 0
        self._eof = False
        self._watched = False
        self._last = b"\n"  # the byte that was fed last

    def feed(self, serial: int, data: bytes, eof: bool, bound: int = INPUT_BOUND) -> None:
        """Take `data`; answered when it has been handed on, or can't be any more."""
        if self._fd < 0 or self._eof:
            self._answer(serial, 0, "closed")
            return
        error = ""
        if len(data) > bound - self._held:
            data, error, eof = data[: max(bound - self._held, 0)], "full", False
        self._queue.append((serial, memoryview(data), len(data), eof, error))
        self._held += len(data)
        self._eof = eof
        if not self._watched:
            self._pump()

    def _answer(self, serial: int, accepted: int, error: str) -> None:
        if serial >= 0:
            self._on_taken(serial, accepted, error)

    def _pump(self) -> None:
        while self._queue:
            serial, rest, size, eof, error = self._queue[0]
            try:
                count = os.write(self._fd, rest) if rest else 0
            except BlockingIOError:
                self._wait(True)
                return
            except OSError:
                self.close()
                return
            self._held -= count
            if count:
                self._last = bytes(rest[count - 1 : count])
            if count < len(rest):
                self._queue[0] = (serial, rest[count:], size, eof, error)
                continue
            self._queue.popleft()
            self._answer(serial, size, error)
            if eof and self._terminal:
                self._type_end()
            elif eof:
                self.close()
                return
        self._wait(False)

    def _wait(self, wanted: bool) -> None:
        if wanted and not self._watched:
            self._loop.watch(self._fd, lambda _: self._pump(), WRITE)
        elif self._watched and not wanted:
            self._loop.unwatch(self._fd)
        self._watched = wanted

    def _type_end(self) -> None:
        """A terminal isn't closed by its end of file: it is typed. In the middle of a line the
        first one only hands over what there is of it."""
        keys = _END_OF_TRANSMISSION
        if self._last != b"\n" and termios.tcgetattr(self._fd)[3] & termios.ICANON:
            keys *= 2
        self._eof = False
        self._held += len(keys)
        self._queue.appendleft((-1, memoryview(keys), len(keys), False, ""))

    def close(self) -> None:
        """Nobody reads it any more, or nobody writes: what waits is answered `closed`."""
        if self._fd < 0:
            return
        self._wait(False)
        os.close(self._fd)
        self._fd = -1
        while self._queue:
            serial, rest, size, _, _ = self._queue.popleft()
            self._answer(serial, size - len(rest), "closed")
