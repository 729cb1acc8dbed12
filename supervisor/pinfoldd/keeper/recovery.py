"""Ends what an earlier keeper left running, and tells what became of its groups.

When a keeper is killed its children live on under another parent, with broken pipes. The
next keeper finds them by the mark each of them carries, or (for those that changed it) by a
session whose leader is proven to be the recorded one: same boot, same pid, same start time.
Nobody is signalled whose membership was not verified while a pidfd of it was open.

This runs before the keeper listens, and takes as long as the grace and the KILL bound allow:
there must never be two generations of the same group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Sequence

from . import messages as m
from . import procfs, spool
from .group import Group, State
from .journal import Journal, Known
from .marker import Marker

STRAY = -1
"""Stands for every group that the journal has nothing of (its disk was full, or it was damaged,
or the group had been acknowledged as one with survivors)."""

GRACE = 0.5
BOUND = 5.0
_ROUND = 0.05


def recover(known: Sequence[Known], journal: Journal, marker: Marker, spools: str) -> list[Group]:
    """End the groups of an earlier keeper; their facts, ready to be reported."""
    groups: list[Group] = []
    running: dict[int, Group] = {}
    boot = procfs.boot_id()
    for record in known:
        group = _restore(record, spools)
        groups.append(group)
        if not record.ended:
            running[group.number] = group
    # other boots' processes are gone, and their numbers mean nothing now
    here = {r.group for r in known if r.boot == boot}
    targets = {n: g for n, g in running.items() if n in here}
    receipts = _end({**targets, STRAY: Group(STRAY)}, marker)
    for number, group in running.items():
        receipt = receipts.get(number, m.Receipt(ended_by="exit", proof="boot"))
        now, mono = time.time(), time.monotonic()
        if group.exited is not None and not receipt.survivors:
            group.empty = m.Empty(number, now, mono, receipt)
            journal.report(number, m.encode(group.empty))
        else:
            group.earlier = spool.recover(*spool.paths(spools, number))
            group.lost = m.Lost(number, now, mono, *group.earlier, receipt)
            journal.report(number, m.encode(group.lost))
        group.survived = None
    journal.commit()
    return groups


def _restore(record: Known, spools: str) -> Group:
    group = Group(record.group, state=State.ENDED)
    for name, values in record.reports.items():
        attribute = "failed" if name == "SpawnFailed" else name.lower()
        # a record of another version: the group is ended, and its end is told, without it
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            setattr(group, attribute, m.from_values(name, values))
    if group.started is not None:
        group.pid, group.start_time = group.started.pid, group.started.start_time
    group.earlier = spool.recover(*spool.paths(spools, record.group))
    if group.exited is not None:
        # its streams died with the keeper that read them
        group.closed = m.Closed(group.number, group.exited.at, *group.earlier)
    return group


def _members(groups: dict[int, Group], marker: Marker) -> dict[int, list[procfs.Stat]]:
    """One look over all processes of the machine."""
    by_mark = {marker.short(number): number for number in groups}
    leaders = {
        group.pid: number
        for number, group in groups.items()
        if group.pid and procfs.start_time(group.pid) == group.start_time
    }
    found: dict[int, list[procfs.Stat]] = {}
    ours = _ancestors()
    for pid in procfs.pids():
        if pid <= 1 or pid in ours:
            continue
        number = _owner(pid, by_mark, leaders, marker)
        if number is None:
            continue
        stat = procfs.stat(pid)
        if stat is not None and stat.alive:
            found.setdefault(number, []).append(stat)
    return found


def _owner(
    pid: int, by_mark: dict[int, int], leaders: dict[int, int], marker: Marker
) -> int | None:
    mark = marker.read(pid)
    if mark is not None:
        # Whoever holds the lock of the state directory may give this mark: an earlier keeper did.
        return by_mark.get(mark, STRAY)
    if pid in leaders:
        return leaders[pid]
    try:
        session = os.getsid(pid)
    except OSError:
        return None
    if session in leaders:
        return leaders[session]
    mark = marker.read_environ(pid)
    return by_mark.get(mark) if mark is not None else None


def _ancestors() -> set[int]:
    """This process and those that it was started by: a supervisor may be started in a shell
    that an earlier one ran."""
    found: set[int] = set()
    pid = os.getpid()
    while pid > 1:
        found.add(pid)
        stat = procfs.stat(pid)
        pid = stat.ppid if stat is not None else 0
    return found


def _end(groups: dict[int, Group], marker: Marker) -> dict[int, m.Receipt]:
    began = time.monotonic()
    receipts = {number: m.Receipt(ended_by="exit") for number in groups}
    seen: dict[int, dict[int, bool]] = {number: {} for number in groups}
    number, step = int(signal.SIGTERM), "term"
    members = _members(groups, marker)
    while members and time.monotonic() - began < GRACE + BOUND:
        opened: list[int] = []
        try:
            for owner, stats in members.items():
                reached = sum(_signal(stat, number, opened) for stat in stats)
                seen[owner].update((s.pid, s.pgid != groups[owner].pid) for s in stats)
                receipt = receipts[owner]
                if reached:
                    receipt.ended_by = step
                    line = m.Signalled(number, time.monotonic(), reached, step)
                    receipt.signals.append(line)
            _await_ends(opened, GRACE if step == "term" else _ROUND)
        finally:
            for fd in opened:
                os.close(fd)
        killed = step == "kill"
        number, step = int(signal.SIGKILL), "kill"
        members = _members(groups, marker)
        if killed:
            members.pop(STRAY, None)  # one that can't be ended must not keep the others waiting
    for owner, receipt in receipts.items():
        left = members.get(owner, [])
        alive = {stat.pid for stat in left}
        gone = {pid: out for pid, out in seen[owner].items() if pid not in alive}
        receipt.ended, receipt.escaped = len(gone), sum(gone.values())
        receipt.survivors = [m.Survivor(s.pid, s.name, "still running") for s in left]
        receipt.proof = "" if left else "scan"
        receipt.seconds = time.monotonic() - began
    return receipts


def _signal(stat: procfs.Stat, number: int, opened: list[int]) -> bool:
    try:
        fd = os.pidfd_open(stat.pid)
    except OSError:
        return False
    opened.append(fd)
    # the pidfd is that of the process we looked at, unless another has its pid by now
    if procfs.start_time(stat.pid) != stat.start_time:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
        if number != signal.SIGKILL:
            signal.pidfd_send_signal(fd, signal.SIGCONT)
    except OSError:
        return False
    return True


def _await_ends(pidfds: list[int], seconds: float) -> None:
    """Until all of them have ended, at most so long. (A pidfd is readable from then on.)"""
    poll = select.poll()
    for fd in pidfds:
        poll.register(fd, select.POLLIN)
    left, deadline = len(pidfds), time.monotonic() + seconds
    while left and (wait := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(wait * 1000):
            poll.unregister(fd)
            left -= 1
