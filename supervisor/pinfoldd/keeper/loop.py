"""The keeper's one loop: epoll, timers, and a hook at the end of each turn."""

from __future__ import annotations

import heapq
import itertools
import select
import time
import traceback
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
_MAX_WAIT = 60.0
_MAX_FAILURES = 10


class Timer:
    """A call in the future. `cancel` may be called at any time, again too."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Calls what was registered for a descriptor that is ready, then due timers, then
    `on_turn` once. Times are `time.monotonic()` seconds.

    A handler that raises is a mistake of ours: `on_error` is called in its except clause, and
    the loop goes on, since a mistake about one group must not be the end of all others.
    """

    __slots__ = (
        "_epoll",
        "_failures",
        "_handlers",
        "_serial",
        "_timers",
        "on_error",
        "on_turn",
        "ready",
        "running",
    )

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = itertools.count()
        self.on_turn: Callable[[], None] = lambda: None
        self.on_error: Callable[[], None] = traceback.print_exc
        self._failures: dict[int, int] = {}
        self.ready = 1  # descriptors ready in this turn: who is greedy should divide by it
        self.running = True

    def watch(self, fd: int, handler: Callable[[int], None], events: int = READ) -> None:
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """To be called before the descriptor is closed. The epoll itself drops it then."""
        self._handlers.pop(fd, None)
        self._failures.pop(fd, None)

    def unwatch(self, fd: int) -> None:
        """For a descriptor that stays open."""
        self._failures.pop(fd, None)
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(when, callback)
        heapq.heappush(self._timers, (when, next(self._serial), timer))
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(time.monotonic() + delay, callback)

    def run(self) -> None:
        """Until `running` is False at the end of a turn."""
        poll, handlers, timers = self._epoll.poll, self._handlers, self._timers
        while self.running:
            while timers and timers[0][2].callback is None:
                heapq.heappop(timers)
            wait = min(timers[0][0] - time.monotonic(), _MAX_WAIT) if timers else _MAX_WAIT
            ready = poll(max(wait, 0.0), 512)
            self.ready = len(ready) or 1
            for fd, events in ready:
                # an earlier one of this turn may have closed it
                handler = handlers.get(fd)
                if handler is not None:
                    try:
                        handler(events)
                    except Exception:  # noqa: BLE001 - see `on_error`
                        self._failed(fd)
            if timers:
                self._run_timers()
            self.on_turn()

    def _failed(self, fd: int) -> None:
        self.on_error()
        self._failures[fd] = self._failures.get(fd, 0) + 1
        if self._failures[fd] >= _MAX_FAILURES:
            self.unwatch(fd)  # or it would fail for ever

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                callback, timer.callback = timer.callback, None
                try:
                    callback()
                except Exception:  # noqa: BLE001 - see `on_error`
                    self.on_error()
