"""Standard streams, byte for byte, without holding up the event loop."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import stat
import sys
import threading
from collections.abc import AsyncIterator

_PIECE = 64 * 1024


def write_all(descriptor: int, data: bytes) -> None:
    """All of it, also to a descriptor that somebody made non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class Writer:
    """Writes on a thread: a reader that stops must not stop Ctrl-C. Raises BrokenPipeError."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[int, bytes, asyncio.Future[None]]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._run, daemon=True).start()

    async def write(self, descriptor: int, data: bytes) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((descriptor, data, done))
        await done

    def _run(self) -> None:
        while True:
            descriptor, data, done = self._queue.get()
            failure: OSError | None = None
            try:
                write_all(descriptor, data)
            except OSError as error:
                failure = error
            try:
                self._loop.call_soon_threadsafe(_settle, done, failure)
            except RuntimeError:
                # The loop is closed: nobody waits.
                return


def _settle(done: asyncio.Future[None], failure: OSError | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


def write_trouble(error: OSError) -> str:
    return f"the output cannot be written: {error.strerror}"


def drop_stdout() -> None:
    """What is buffered cannot be written: a later flush must not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_missing() -> None:
    """Otherwise the next connection would be stdout. Only stdout is missed: it fails."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free one is this one.
            os.open(os.devnull, os.O_RDONLY if descriptor == 1 else os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def is_piped(descriptor: int) -> bool:
    """It has something to read that is meant for the command: a pipe, a file, a socket."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


async def read_pieces(descriptor: int) -> AsyncIterator[bytes]:
    """What can be read, until the end; at most one piece ahead of the consumer."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    wanted = threading.Semaphore(2)

    def read() -> None:
        while True:
            wanted.acquire()
            try:
                piece = os.read(descriptor, _PIECE)
            except BlockingIOError:
                select.select([descriptor], [], [])
                wanted.release()
                continue
            except OSError:
                piece = b""
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:
                return
            if not piece:
                return

    threading.Thread(target=read, daemon=True).start()
    while piece := await pieces.get():
        yield piece
        wanted.release()
