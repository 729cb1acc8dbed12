"""One group of processes: its numbers, its streams, and the facts reported of it."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field

from .ending import Ending
from .loop import Timer
from .messages import (
    Closed,
    Empty,
    Exited,
    GroupReport,
    Lost,
    SpawnFailed,
    Started,
    Stop,
    Survived,
)
from .messages import Input as InputOrder
from .spool import NOTHING, Totals
from .streams import Input, Output


class State(enum.Enum):
    """Where the leader and the group are. Whether the streams are closed is another matter."""

    STARTING = "starting"  # ordered; there is no process yet
    RUNNING = "running"  # the leader lives
    DRAINING = "draining"  # the leader was reaped; what it wrote is being collected
    EXITED = "exited"  # reported; others of the group may live on
    ENDED = "ended"  # proven empty, lost, or never started


_NEXT = {
    State.STARTING: {State.RUNNING, State.ENDED},
    State.RUNNING: {State.DRAINING},
    State.DRAINING: {State.EXITED},
    State.EXITED: {State.ENDED},
    State.ENDED: set(),
}


class IllegalTransition(AssertionError):
    """A mistake in the keeper: shown in tests, never to be caught."""


@dataclass(slots=True, eq=False)
class Group:
    """`number` is the daemon's, `pid` the leader's and that of its process group and session."""

    number: int
    pid: int = 0
    start_time: int = 0
    peak_before: int = 0  # KiB, of the keeper when it spawned the leader, and a little more
    state: State = State.STARTING
    leader_alive: bool = False  # not reaped yet: its pid can't be anyone else's
    orphans: set[int] = field(default_factory=set)
    output: Output | None = None
    input: Input | None = None
    terminal: int = -1
    script: str = ""  # the file to remove
    paused: bool = False
    status: int = 0  # the raw wait status, from DRAINING on
    usage: tuple[float, float, int] = (0.0, 0.0, 0)  # user and system seconds, bytes at most
    exit_at: float = 0.0
    exit_mono: float = 0.0
    drain_timer: Timer | None = None
    ending: Ending[Group] | None = None
    wanted_stop: Stop | None = None  # one that came while the group was starting
    early_input: list[InputOrder] = field(default_factory=list)  # the same, of input
    started: Started | None = None
    failed: SpawnFailed | None = None
    exited: Exited | None = None
    closed: Closed | None = None
    closed_told: bool = True  # False: `closed` is still to be reported
    empty: Empty | None = None  # unless it is the `end` of `exited`
    survived: Survived | None = None
    lost: Lost | None = None
    acknowledged: bool = False
    discarded: bool = False  # nobody will read its output
    earlier: Totals = NOTHING  # of a group that an earlier keeper ran

    def move(self, state: State) -> None:
        if state not in _NEXT[self.state]:
            raise IllegalTransition(f"group {self.number}: {self.state} to {state}")
        self.state = state

    @property
    def totals(self) -> Totals:
        return self.output.spool.totals if self.output is not None else self.earlier

    def exit_report(self, leftover: int) -> Exited:
        """How the leader ended, once all it wrote is in the spool."""
        signalled = os.WIFSIGNALED(self.status)
        size, lines, dropped = self.totals
        user, system, most = self.usage
        return Exited(
            group=self.number,
            code=None if signalled else os.WEXITSTATUS(self.status),
            signal=os.WTERMSIG(self.status) if signalled else None,
            core_dumped=os.WCOREDUMP(self.status),
            at=self.exit_at,
            mono=self.exit_mono,
            size=size,
            lines=lines,
            dropped=dropped,
            leftover=leftover,
            stopping=self.ending is not None and self.ending.started <= self.exit_mono,
            user_seconds=user,
            system_seconds=system,
            max_rss=most,
        )

    def report(self) -> GroupReport:
        """All that has been found out about it so far."""
        size, lines, dropped = self.totals
        return GroupReport(
            group=self.number,
            started=self.started,
            failed=self.failed,
            exited=self.exited,
            closed=self.closed,
            empty=self.empty,
            survived=self.survived,
            lost=self.lost,
            paused=self.paused,
            size=size,
            lines=lines,
            dropped=dropped,
        )
