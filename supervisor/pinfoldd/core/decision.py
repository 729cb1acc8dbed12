"""One decision in the making: the events so far, each applied as it is emitted."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from pinfoldd.core.apply import apply
from pinfoldd.core.events import Event
from pinfoldd.core.model import State
from pinfoldd.core.settings import Settings
from pinfoldd.core.values import Exit, Now, Stamp


class Timer(NamedTuple):
    """A deadline. It may be out of date when it comes up: who takes it looks at the state."""

    mono: float
    order: int
    kind: str  # budget | timeout | wait | restart | sweep
    agent: str
    id: str


class Memory:
    """What is not in the log because a restart makes it anew: timers and the order of ends."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self._order = count()
        self.task_waits: Counter[tuple[str, str]] = Counter()
        self.worker_exits: dict[int, Exit] = {}  # the leader ended, its group is not empty yet
        self.ended: deque[tuple[str, str]] = deque()  # finished calls, oldest first

    def arm(self, mono: float, kind: str, agent: str, id: str) -> None:
        heapq.heappush(self.timers, Timer(mono, next(self._order), kind, agent, id))

    def prune(self, keep: Callable[[Timer], bool]) -> None:
        """Drop timers whose time will come for nothing."""
        self.timers = [timer for timer in self.timers if keep(timer)]
        heapq.heapify(self.timers)

    def first(self) -> Timer | None:
        return self.timers[0] if self.timers else None

    def drop_first(self) -> None:
        heapq.heappop(self.timers)

    def due(self, mono: float) -> Timer | None:
        if self.timers and self.timers[0].mono <= mono:
            return heapq.heappop(self.timers)
        return None


class Decision:
    """Collects the events of one command. `emit` is the only way to change the state."""

    __slots__ = ("events", "first", "freed", "memory", "now", "settings", "state")

    def __init__(self, state: State, memory: Memory, settings: Settings, now: Now) -> None:
        self.state = state
        self.memory = memory
        self.settings = settings
        self.now = now
        self.first = state.revision + 1
        self.events: list[tuple[Stamp, Event]] = []
        self.freed: dict[str, None] = {}  # agents whose queue may move, at the end of it all

    def emit(self, event: Event) -> Stamp:
        now = self.now
        stamp = Stamp(self.state.revision + 1, self.first, now.mono, now.wall)
        apply(self.state, event, stamp)
        self.events.append((stamp, event))
        return stamp
