"""An event loop on a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from pinfold.errors import UnavailableError

R = TypeVar("R")


class Portal:
    """Runs coroutines for any number of threads. The thread ends with `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="pinfold-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Awaits it there. An exception here, such as KeyboardInterrupt, cancels it."""
        if self._loop.is_closed():
            coroutine.close()
            raise UnavailableError("the client is closed", reason="CLIENT_CLOSED")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[R]) -> Iterator[R]:
        """Its items, one at a time; leaving the loop early ends the stream."""

        async def following() -> tuple[R] | None:
            try:
                return (await anext(source),)
            except StopAsyncIteration:
                return None

        async def close() -> None:
            if (aclose := getattr(source, "aclose", None)) is not None:
                await aclose()

        try:
            while (item := self.call(following())) is not None:
                yield item[0]
        finally:
            if not self._loop.is_closed():
                self.call(close())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
