"""Ends a group: TERM and CONT, grace, KILL until nothing is left, proof.

Each step reaches three kinds of processes: the leader's process group (one `killpg`, which
a fork bomb can't outrun), process groups that members made (`set -m`, `timeout`, `setsid`),
and single processes. Before anything is signalled it is certain whose number it is:

* the leader's group while the leader is unreaped or an orphan of ours is in it: an
  unreaped child keeps its numbers from being used again;
* a direct child of the keeper by its pid, for the same reason;
* anyone else by pidfd, after a look at its mark *through* which the pidfd was opened first.

Numbers 0 and 1, and the keeper's own group, are never signalled at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from typing import Generic

from . import procfs
from .census import Census, F
from .loop import Loop, Timer
from .messages import Receipt, Signalled, Survivor

# plain numbers: comparing enumerations costs microseconds where there are few
SIGTERM, SIGKILL, SIGCONT = (int(n) for n in (signal.SIGTERM, signal.SIGKILL, signal.SIGCONT))

BOUND = 5.0
"""Seconds after the first KILL until what is left counts as having survived."""

_LOOKS = (0.005, 0.05, 0.5)  # seconds after the first signal
_FIRST_ROUND = 0.002
_LAST_ROUND = 0.1
_SLOW_ROUND = 1.0
_MAX_LINES = 64
_WALK = 2048  # processes looked at in one step: about 50 ms for all other groups
_WHOLE_GROUP = 4  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9

Signals = tuple[int, ...]
"""What one target gets in one go. TERM and CONT in two passes over all targets would not
reach the same ones: the first that die of the TERM take others with them."""


class Ending(Generic[F]):
    """One stop of one group. A later stop of the same group joins it (`join`)."""

    __slots__ = (
        "_census",
        "_cgroup_kill",
        "_denied",
        "_effect",
        "_family",
        "_killing",
        "_lines",
        "_looks",
        "_loop",
        "_on_round",
        "_on_survived",
        "_round",
        "_seen",
        "_signal",
        "_survived",
        "_timer",
        "_told",
        "deadline",
        "kill_began",
        "started",
    )

    def __init__(
        self,
        loop: Loop,
        census: Census[F],
        family: F,
        on_round: Callable[[], None],
        on_survived: Callable[[Receipt], None],
        cgroup_kill: Callable[[], None] | None = None,
    ) -> None:
        self._loop, self._census, self._family = loop, census, family
        self._on_round = on_round  # to look whether the group is empty by now
        self._on_survived = on_survived
        self._cgroup_kill = cgroup_kill
        self._timer: Timer | None = None
        self._seen: dict[int, bool] = {}  # pid seen alive: whether outside the leader's group
        self._told: set[int] = set()  # orphans that this step has dealt with
        self._denied: set[int] = set()
        self._lines: list[Signalled] = []
        self._effect = "exit"
        self._looks = 0  # taken after the first signal
        self._killing = False
        self._survived = False
        self._round = _FIRST_ROUND
        self._signal = SIGTERM
        self.started = time.monotonic()
        self.deadline = self.started
        self.kill_began = 0.0

    def begin(self, grace: float, number: int) -> None:
        """The first step. `number` is the signal to ask with; SIGKILL means no asking."""
        self._signal = number
        if grace <= 0 or number == SIGKILL:
            self._kill()
            return
        self.deadline = self.started + grace
        self._send(self._look(_WALK), (number, SIGCONT), "term")
        self._schedule_next()

    def _schedule_next(self) -> None:
        if self._looks < len(_LOOKS) and self.started + _LOOKS[self._looks] < self.deadline:
            self._schedule(self.started + _LOOKS[self._looks], self._look_after)
        else:
            self._schedule(self.deadline, self._kill)

    def _look_after(self) -> None:
        """The group outlived the first step: has everyone had the signal?

        Not those that were orphaned just then, nor a child that its shell had forked but
        that hadn't executed its program yet: it may have taken the signal for its shell,
        and lost it. Who doesn't catch the signal and still lives is sent it again.
        """
        self._looks += 1
        self._on_round()
        if not self._family.leader_alive and not self._family.orphans:
            return
        again = [m for m in self._look(_WALK) if not procfs.catches(m.pid, self._signal)]
        asked = (self._signal,)
        self._log(asked, sum(self._signal_one(m.pid, asked) for m in again), "term")
        self._schedule_next()

    def join(self, grace: float) -> None:
        """Another stop while this one is at work: only a shorter grace changes anything."""
        if self._killing:
            return
        deadline = time.monotonic() + max(grace, 0.0)
        if grace <= 0:
            self._kill()
        elif deadline < self.deadline:
            self.deadline = deadline
            self._schedule_next()

    def follow(self) -> None:
        """The group has changed and isn't empty: signal what has come to light since."""
        fresh = [pid for pid in self._family.orphans if pid not in self._told]
        if not fresh:
            return
        self._told.update(fresh)
        stats = [stat for pid in fresh if (stat := procfs.stat(pid)) is not None and stat.alive]
        if self._killing:
            self._note_seen(stats)
            self._send(stats, (SIGKILL,), "sweep")
            return
        missed = [stat for stat in stats if stat.pid not in self._seen]
        self._note_seen(stats)
        # one by one: others of their process group have had the signal, and may count them
        asked = (self._signal, SIGCONT)
        self._log(asked, sum(self._signal_one(s.pid, asked) for s in missed), "term")

    def finish(self) -> Receipt:
        """The group is proven empty: the receipt."""
        if self._timer is not None:
            self._timer.cancel()
        return Receipt(
            signals=self._lines,
            ended=len(self._seen),
            escaped=sum(self._seen.values()),
            ended_by=self._effect,
            proof="subreaper" if self._cgroup_kill is None else "cgroup",
            seconds=time.monotonic() - self.started,
        )

    # ------------------------------------------------------------ steps

    def _schedule(self, when: float, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, callback)

    def _kill(self) -> None:
        """From now on KILL, in rounds, until nothing is found any more."""
        self._killing = True
        self._told.clear()
        self.kill_began = time.monotonic()
        self._kill_round()

    def _kill_round(self) -> None:
        self._census.refresh()
        members = self._look(_WALK)
        self._told.update(self._family.orphans)
        self._send(members, (SIGKILL,), "kill")
        if self._cgroup_kill is not None:
            # whoever is not in there by any mishap has had the signal already
            self._cgroup_kill()
        now = time.monotonic()
        if now - self.kill_began >= BOUND:
            if not self._survived and members:
                self._survived = True
                self._on_survived(self._survivors(members))
            self._schedule(now + _SLOW_ROUND, self._next_round)
            return
        self._round = min(self._round * 2, _LAST_ROUND)
        self._schedule(now + self._round, self._next_round)

    def _next_round(self) -> None:
        self._on_round()
        if self._family.leader_alive or self._family.orphans:
            self._kill_round()

    def _look(self, limit: int) -> list[procfs.Stat]:
        members = self._census.walk(self._family, limit)
        self._note_seen(members)
        return members

    def _note_seen(self, stats: list[procfs.Stat]) -> None:
        own = self._family.pid
        for stat in stats:
            # Once outside is outside: a child may leave the group after the first look.
            self._seen[stat.pid] = self._seen.get(stat.pid, False) or stat.pgid != own

    def _survivors(self, members: list[procfs.Stat]) -> Receipt:
        left = [stat for m in members if (stat := procfs.stat(m.pid)) is not None and stat.alive]
        alive = {stat.pid for stat in left}
        gone = {pid: escaped for pid, escaped in self._seen.items() if pid not in alive}
        return Receipt(
            signals=list(self._lines),
            ended=len(gone),
            escaped=sum(gone.values()),
            survivors=[Survivor(s.pid, s.name, self._why(s)) for s in left],
            seconds=time.monotonic() - self.started,
        )

    def _why(self, stat: procfs.Stat) -> str:
        if stat.pid in self._denied:
            return "operation not permitted"
        try:
            os.kill(stat.pid, 0)
        except PermissionError:
            return "operation not permitted"
        except ProcessLookupError:
            return "it ended just now"
        return "uninterruptible sleep" if stat.state == "D" else "still running"

    # ------------------------------------------------------------ signals

    def _send(self, members: list[procfs.Stat], signals: Signals, step: str) -> None:
        """To all of `members`, each by the surest way there is for it."""
        own = self._family.pid
        groups: dict[int, list[procfs.Stat]] = {}
        for member in members:
            groups.setdefault(member.pgid, []).append(member)
        inside = groups.pop(own, [])
        if self._pinned():
            # also if nobody was seen: a look needs a descriptor, and there may be none left
            reached = len(inside) if self._killpg(own, signals) else 0
        else:
            reached = sum(self._signal_one(member.pid, signals) for member in inside)
        outside = 0
        for pgid, some in groups.items():
            outside += self._signal_group(pgid, some, signals)
        if step != "kill":
            self._log(signals, reached + outside, step)
            return
        self._log(signals, reached, "kill")
        self._log(signals, outside, "sweep")

    def _log(self, signals: Signals, pids: int, step: str) -> None:
        if not pids:
            return
        self._effect = step
        for number in signals:
            if len(self._lines) < _MAX_LINES:
                self._lines.append(Signalled(number, time.monotonic(), pids, step))

    def _pinned(self) -> bool:
        """Whether the leader's process group is certainly still ours."""
        family = self._family
        return family.leader_alive or any(_pgid(pid) == family.pid for pid in family.orphans)

    def _killpg(self, pgid: int, signals: Signals) -> bool:
        if pgid <= 1 or pgid == os.getpgrp():
            return False
        try:
            _each(signals, lambda number: os.killpg(pgid, number))
        except ProcessLookupError:
            return False
        except PermissionError:
            return False
        return True

    def _signal_group(self, pgid: int, members: list[procfs.Stat], signals: Signals) -> int:
        """A process group that a member made. All of it is ours: it lies in one session,
        and that was opened by a process of this group."""
        orphans = self._family.orphans
        if any(m.pid in orphans and _pgid(m.pid) == pgid for m in members):
            return len(members) if self._killpg(pgid, signals) else 0
        return sum(self._signal_one(m.pid, signals, whole_group=True) for m in members)

    def _signal_one(self, pid: int, signals: Signals, whole_group: bool = False) -> bool:
        if pid <= 1:
            return False
        try:
            if pid in self._family.orphans:
                _each(signals, lambda number: os.kill(pid, number))
                return True
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except PermissionError:
            self._denied.add(pid)
            return False
        try:
            if not self._census.belongs(pid, self._family, self._seen.keys()):
                return False
            if whole_group:
                try:
                    _each(signals, lambda n: signal.pidfd_send_signal(fd, n, None, _WHOLE_GROUP))
                    return True
                except OSError as error:
                    if error.errno != errno.EINVAL:  # an older kernel
                        raise
            _each(signals, lambda number: signal.pidfd_send_signal(fd, number))
        except ProcessLookupError:
            return False
        except PermissionError:
            self._denied.add(pid)
            return False
        finally:
            os.close(fd)
        return True


def _each(signals: Signals, send: Callable[[int], None]) -> None:
    """One after the other. Whom the first one has reached may be gone, or another user, by the
    next one."""
    send(signals[0])
    for number in signals[1:]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(number)


def _pgid(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
