"""All that holds a group together: census, cgroup, and the ending that uses both."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from . import procfs
from .census import Census
from .cgroup import Cgroups
from .ending import Ending
from .group import Group
from .loop import Loop
from .marker import Marker
from .messages import Receipt

_RECHECK = 0.02
_NOTHING = contextlib.nullcontext()


class Containment:
    """Takes leaders in, says when a group is empty, and ends groups."""

    def __init__(
        self,
        loop: Loop,
        marker: Marker,
        cgroups: Cgroups | None,
        note: Callable[[str], None],
        others: Callable[[], tuple[int, ...]],
    ) -> None:
        self._loop = loop
        self._cgroups = cgroups
        self.leaders: dict[int, Group] = {}
        self.census: Census[Group] = Census(
            marker,
            self.leaders,
            note,
            others,
            cgroups.owner if cgroups is not None else lambda _: None,
        )

    @property
    def kind(self) -> str:
        return "subreaper" if self._cgroups is None else "subreaper+cgroup"

    def spawning(self, group: Group) -> contextlib.AbstractContextManager[None]:
        """Around the spawn of its leader."""
        return self._cgroups.inside(group.number) if self._cgroups is not None else _NOTHING

    def enter(self, group: Group) -> None:
        """Its leader was spawned just now."""
        if self._cgroups is not None and not self._cgroups.uses(group.number):
            self._cgroups.move(group.number, group.pid)
        group.leader_alive = True
        self.leaders[group.pid] = group
        self.census.add(group)

    def leader_reaped(self, group: Group) -> None:
        group.leader_alive = False
        del self.leaders[group.pid]

    def is_empty(self, group: Group, again: Callable[[], None]) -> bool:
        """Proof, after a `refresh` of the census. `again` is called in a moment if only the
        process group or the cgroup has somebody: who is below the keeper, and on the way to it."""
        if group.leader_alive or group.orphans:
            return False
        if (procfs.group_exists(group.pid) and self._has_members(group.pid)) or (
            self._cgroups is not None and self._cgroups.pids(group.number)
        ):
            self._loop.call_later(_RECHECK, again)
            return False
        return True

    def _has_members(self, pgid: int) -> bool:
        """Whether anyone in this process group is below the keeper. After its leader was reaped
        the number may be that of a stranger's group: that one proves nothing, and would keep
        ours from ever being empty."""
        me = os.getpid()
        for pid in procfs.pids():
            stat = procfs.stat(pid)
            if stat is None or stat.pgid != pgid:
                continue
            while stat is not None and stat.ppid != me:
                stat = procfs.stat(stat.ppid) if stat.ppid > 1 else None
            if stat is not None:
                return True
        return False

    def not_spawned(self, group: Group) -> None:
        self._remove_cgroup(group.number)

    def leave(self, group: Group) -> None:
        """It is empty: its numbers may be anyone's from now on."""
        self.census.remove(group)
        self._remove_cgroup(group.number)

    def _remove_cgroup(self, number: int) -> None:
        if self._cgroups is not None and not self._cgroups.remove(number):
            self._loop.call_later(_RECHECK, lambda: self._remove_cgroup(number))

    def end(
        self,
        group: Group,
        grace: float,
        number: int,
        on_round: Callable[[], None],
        on_survived: Callable[[Receipt], None],
    ) -> None:
        """Begin to end it: see `Ending`."""
        cgroups = self._cgroups
        kill: Callable[[], None] | None = None
        if cgroups is not None and cgroups.uses(group.number):

            def kill() -> None:
                cgroups.kill(group.number)

        group.ending = Ending(self._loop, self.census, group, on_round, on_survived, kill)
        group.ending.begin(grace, number)
