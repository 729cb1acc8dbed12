"""Tells the daemon: facts at the end of each turn, growth of output now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import messages as m
from .group import Group
from .journal import Journal
from .link import CROWDED, Connection
from .loop import Loop, Timer

GREW_FIRST = 0.002
"""Seconds until output is reported: a command that ends sooner needs no report of its own."""
GREW_AGAIN = 0.010
"""Least seconds between two reports of growth."""
STARTED_WITHIN = 0.004
"""Seconds until a start is reported: that of a command that ends sooner goes with its end,
because each message wakes the daemon for a decision and a commit."""


class Reporter:
    """What is reported goes out with the turn, after the journal has what must outlive us.
    Without a daemon nothing is kept: the next one is told where each group stands."""

    def __init__(self, loop: Loop, journal: Journal) -> None:
        self._loop, self._journal = loop, journal
        self._connection: Connection | None = None
        self._dirty: dict[int, Group] = {}  # groups whose output has grown
        self._grew_timer: Timer | None = None
        self._grew_last = 0.0
        self._closing: list[Group] = []
        self._starts: dict[int, tuple[bytes, float]] = {}  # frames, and when they are due
        self._starts_timer: Timer | None = None
        self._exits: dict[int, Group] = {}  # of this turn, which may find them empty as well
        self._afterwards: list[Callable[[], None]] = []

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def finish_connection(self) -> None:
        """A new daemon is there. What the one before had sent is as good as carried out."""
        self._tell_exits()
        if self._connection is not None:
            self._connection.finish()
            self._connection = None

    def connect(self, connection: Connection, hello: m.Hello) -> None:
        self._connection = connection
        self._closing.clear()
        self._dirty.clear()
        self._starts.clear()
        self.send(hello)

    def disconnected(self) -> None:
        self._connection = None

    def send(self, report: m.Report) -> None:
        if self._connection is not None:
            number = getattr(report, "group", 0)
            if number in self._exits:
                self._tell_exit(number)
            if number in self._starts:
                self._tell_start(number)
            self._connection.send(m.encode(report))

    def exited(self, group: Group) -> None:
        """To be recorded at the end of this turn: it may turn out that this was all of it."""
        self._exits[group.number] = group

    def emptied(self, group: Group, fact: m.Empty) -> None:
        if group.number in self._exits:
            assert group.exited is not None
            group.exited.end = fact
        else:
            group.empty = fact
            self.record(fact)

    def _tell_exit(self, number: int) -> None:
        group = self._exits.pop(number)
        assert group.exited is not None
        self.record(group.exited)
        if group.exited.end is None:
            self.tell_closed(group)
        else:
            group.closed_told = True
            self._release(group)

    def _tell_exits(self) -> None:
        for number in list(self._exits):
            self._tell_exit(number)

    def record(self, fact: m.Started | m.SpawnFailed | m.Exited | m.Empty | m.Survived) -> None:
        """Report a fact that must outlive the keeper: one encoding for journal and link."""
        frame = m.encode(fact)
        self._journal.report(fact.group, frame)
        if self._connection is None:
            return
        if isinstance(fact, m.Started):
            self._starts[fact.group] = (frame, time.monotonic() + STARTED_WITHIN)
            if self._starts_timer is None:
                self._starts_timer = self._loop.call_later(STARTED_WITHIN, self._tell_starts)
        else:
            self._tell_start(fact.group)
            self._connection.send(frame)

    def _tell_start(self, number: int) -> None:
        """Before anything else of this group is told."""
        start = self._starts.pop(number, None)
        if start is not None and self._connection is not None:
            self._connection.send(start[0])

    def _tell_starts(self) -> None:
        now = time.monotonic()
        for number, (_, due) in list(self._starts.items()):
            if due > now:  # as are all that follow
                self._starts_timer = self._loop.call_at(due, self._tell_starts)
                return
            self._tell_start(number)
        self._starts_timer = None

    def afterwards(self, callback: Callable[[], None]) -> None:
        """Call it at the end of the turn, when everyone has been told."""
        self._afterwards.append(callback)

    def end_turn(self) -> None:
        self._tell_exits()
        for group in self._closing:
            self.tell_closed(group)
        self._closing.clear()
        self._journal.commit()
        if self._connection is not None:
            self._connection.flush()
        if self._afterwards:
            for callback in self._afterwards:
                callback()
            self._afterwards.clear()

    # ------------------------------------------------------------ output

    def grown(self, group: Group) -> None:
        self._dirty[group.number] = group
        if self._grew_timer is None:
            now = time.monotonic()
            when = max(now + GREW_FIRST, self._grew_last + GREW_AGAIN)
            self._grew_timer = self._loop.call_at(when, self._tell_growth)

    def _tell_growth(self) -> None:
        self._grew_timer = None
        self._grew_last = time.monotonic()
        crowded = self._connection is not None and self._connection.held > CROWDED
        for group in self._dirty.values():
            if group.output is None:
                continue
            group.output.spool.flush()
            if not crowded:
                size, lines, dropped = group.totals
                self.send(m.Grew(group.number, size, lines, dropped))
        if crowded:
            # a daemon that doesn't read gets the latest only, when it reads again
            self._grew_timer = self._loop.call_later(0.1, self._tell_growth)
        else:
            self._dirty.clear()

    def tell_grown(self, group: Group) -> None:
        """Now, because nothing is told of this group later."""
        if group.output is not None:
            group.output.spool.flush()
        self.forget(group)
        self.send(m.Grew(group.number, *group.totals))

    def forget(self, group: Group) -> None:
        """Its growth is told by another report, or of no more interest."""
        self._dirty.pop(group.number, None)

    def closed(self, group: Group, soon: bool) -> None:
        """The streams are at their end: to be told with this turn, or (`soon`) in a moment.

        The end of a process closes its streams first. If that is what this is, its exit
        follows within microseconds, and one message wakes the daemon for both.
        """
        if soon:
            self._loop.call_later(GREW_FIRST, lambda: self._closing.append(group))
        else:
            self._closing.append(group)

    def tell_closed(self, group: Group) -> None:
        """Once, after the exit, and before the streams' files are given back."""
        if group.closed_told or group.closed is None or group.number in self._exits:
            return
        group.closed_told = True
        self._release(group)
        self.send(group.closed)

    def _release(self, group: Group) -> None:
        self.forget(group)
        if group.output is not None:
            group.output.spool.release()
