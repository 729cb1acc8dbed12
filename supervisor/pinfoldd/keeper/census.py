"""Which processes belong to which group, and the proof that a group has none left.

The keeper is a subreaper: when a process below it loses its parent, it becomes a direct
child of the keeper, wherever it hid (`setsid`, double fork, closed descriptors). So every
living process of a group is below its leader or below an *orphan*, a direct child of the
keeper that is no leader. Orphans are found in one read of the keeper's own
/proc/self/task/<tid>/children, without looking at the rest of the machine. (The list is
kept by thread, and orphans go to a process's first one: see `__main__` for what follows.)

Why one read is proof. That file may skip entries when a child is *removed* during the read.
Children of the keeper are removed only when the keeper reaps them, it is single-threaded,
and it isn't reaping while it reads; new ones are appended at the end. So whoever was an
orphan when the read began is in it. When the leader is dead, its children have been handed
over before its exit could be seen. A group is empty, then, if its leader is dead and a read
that began after that shows no orphan of the group, dead ones included (their own children
come next). `killpg(pgid, 0)` is asked as well: it costs a microsecond and must agree.

An orphan's pid can't be reused before the keeper reaps it. That makes it safe to remember
orphans by pid, to signal them by pid, and to signal a process group that has one in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from typing import Generic, Protocol, TypeVar

from . import procfs
from .marker import Marker


class Family(Protocol):
    """What the census needs to know of a group."""

    number: int
    pid: int  # of the leader, which is also the number of its process group and session
    leader_alive: bool
    orphans: set[int]


F = TypeVar("F", bound=Family)


class Census(Generic[F]):
    """The orphans of all groups. `leaders` is the keeper's table of unreaped leaders by pid."""

    def __init__(
        self,
        marker: Marker,
        leaders: dict[int, F],
        note: Callable[[str], None],
        others: Callable[[], Iterable[int]] = lambda: (),
        in_cgroup: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self._marker = marker
        self._leaders = leaders
        self._note = note
        self._others = others  # children of the keeper that are no group's: its zygote
        self._in_cgroup = in_cgroup  # the number of the group whose cgroup a pid is in
        self._by_mark: dict[int, F] = {}
        self._by_session: dict[int, F] = {}
        self.orphans: dict[int, F | None] = {}  # None: nobody knows whose it is
        self._walked: dict[int, dict[int, int]] = {}  # of each group: pids seen, start times
        self._fd = -1
        if procfs.has_children_files():
            # the first thread's list: orphans are given to it, whoever runs this loop
            path = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def add(self, family: F) -> None:
        self._by_mark[self._marker.short(family.number)] = family
        self._by_session[family.pid] = family

    def remove(self, family: F) -> None:
        """The group is empty: its numbers may from now on be anyone's."""
        self._by_mark.pop(self._marker.short(family.number), None)
        self._walked.pop(family.number, None)
        if self._by_session.get(family.pid) is family:
            del self._by_session[family.pid]

    def reaped(self, pid: int) -> F | None:
        """An orphan was reaped; its group, if known."""
        family = self.orphans.pop(pid, None)
        if family is not None:
            family.orphans.discard(pid)
        return family

    def refresh(self) -> list[F]:
        """Take in all new orphans; the groups that got some."""
        found: list[F] = []
        for pid in self._new_children():
            family = self._attribute(pid)
            self.orphans[pid] = family
            if family is None:
                # with a mark of ours it is a worker that the zygote has just forked
                if self._marker.read(pid) is None:
                    self._note(f"adopted process {pid} belongs to no known group")
                continue
            family.orphans.add(pid)
            found.append(family)
        return found

    def _new_children(self) -> list[int]:
        if self._fd < 0:
            return self._scan()
        os.lseek(self._fd, 0, os.SEEK_SET)
        data = os.read(self._fd, 65536)
        while more := os.read(self._fd, 65536):
            data += more
        leaders, orphans = self._leaders, self.orphans
        numbers = [int(word) for word in data.split()]
        new = [n for n in numbers if n not in leaders and n not in orphans]
        return [n for n in new if n not in self._others()] if new else new

    def _scan(self) -> list[int]:
        """Without `children` files: everything of the machine whose parent we are."""
        me, found = os.getpid(), []
        for pid in procfs.pids():
            if pid not in self._leaders and pid not in self.orphans:
                stat = procfs.stat(pid)
                if stat is not None and stat.ppid == me and pid not in self._others():
                    found.append(pid)
        return found

    def _attribute(self, pid: int) -> F | None:
        mark = self._marker.read(pid)
        if mark is not None and mark in self._by_mark:
            return self._by_mark[mark]
        stat = procfs.stat(pid)
        if stat is not None:
            for number in (stat.sid, stat.pgid):
                if number in self._by_session:
                    return self._by_session[number]
            for walked, seen in self._walked.items():
                # It was below its group's leader a moment ago, and left its session since.
                if seen.get(pid) == stat.start_time:
                    return self._by_mark.get(self._marker.short(walked))
        mark = self._marker.read_environ(pid)
        if mark is None and (inside := self._in_cgroup(pid)) is not None:
            mark = self._marker.short(inside)
        return self._by_mark.get(mark) if mark is not None else None

    def belongs(self, pid: int, family: F, known: Container[int]) -> bool:
        """Whether `pid`, found in a walk, is (still) of the group. To be asked while a pidfd
        of it is open: then the answer is for the process behind that descriptor."""
        if self._marker.read(pid) == self._marker.short(family.number):
            return True
        stat = procfs.stat(pid)
        return stat is not None and (stat.sid == family.pid or stat.ppid in known)

    def walk(self, family: F, limit: int = 1 << 16) -> list[procfs.Stat]:
        """The living processes of the group, parents first, at most `limit` of them.

        A process that forks and ends while this looks may be missed; its child is then an
        orphan and found by the next `refresh`.
        """
        queue = [family.pid] if family.leader_alive else []
        queue.extend(family.orphans)
        children = procfs.children if self._fd >= 0 else _children_by_scan()
        seen = set(queue)
        walked = self._walked.setdefault(family.number, {})
        found: list[procfs.Stat] = []
        for pid in queue:
            stat = procfs.stat(pid)
            if stat is None:
                continue
            if stat.alive:
                found.append(stat)
                walked[pid] = stat.start_time
                if len(found) >= limit:
                    break
            for child in children(pid, stat.threads):
                if child not in seen:
                    seen.add(child)
                    queue.append(child)
        return found


def _children_by_scan() -> Callable[[int, int], Iterable[int]]:
    by_parent: dict[int, list[int]] = {}
    for pid in procfs.pids():
        stat = procfs.stat(pid)
        if stat is not None:
            by_parent.setdefault(stat.ppid, []).append(pid)
    return lambda pid, _: by_parent.get(pid, ())
