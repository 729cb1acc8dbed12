"""The mark that every process of a group carries and cannot lose by accident.

A process that leaves its session, drops its environment and outlives its parent
(`env -i setsid sh -c 'daemon &'`) is adopted by the keeper, as its subreaper, with nothing
left that says whose it is. Resource limits are inherited through all of that. RLIMIT_RSS
has had no effect since Linux 2.4.30, is inherited by every fork and exec, and can be read
of any process of the same user with one `prlimit` call (about a microsecond), and of any
other from /proc/<pid>/limits. So the keeper sets the *soft* RLIMIT_RSS to a number that
says which keeper and which group.

Shape of the number: bit 62, then 22 bits of keeper token, 28 bits of group, 12 zero bits
(a multiple of 4096, so `ulimit -m` in a script shows and restores it unharmed). It is a
limit of exbibytes: should a kernel ever heed RLIMIT_RSS again, it would limit nothing.

Only the soft limit is used. A program that changes it (`ulimit -m`) is found by the
fallbacks: its session, its process group, its environment (`PINFOLD_GROUP` and
`PINFOLD_KEEPER`).
"""

from __future__ import annotations

import resource

from . import procfs

GROUP_VARIABLE = "PINFOLD_GROUP"
KEEPER_VARIABLE = "PINFOLD_KEEPER"
TOKEN_BITS = 22
_GROUP_BITS = 28
_TOP = 1 << 62
_GROUP_MASK = (1 << _GROUP_BITS) - 1


class Marker:
    """Marks and recognises the groups of one state directory (`token` names it)."""

    __slots__ = ("_base", "_hard", "_usable", "token")

    def __init__(self, token: int) -> None:
        self.token = token & ((1 << TOKEN_BITS) - 1)
        self._base = _TOP | self.token << (_GROUP_BITS + 12)
        hard = resource.getrlimit(resource.RLIMIT_RSS)[1]
        self._hard = hard
        # under a finite hard limit the mark can't be set: the fallbacks have to do
        self._usable = hard == resource.RLIM_INFINITY

    def set(self, group: int) -> None:
        """What is started from now on carries `group`. The keeper needn't take it off again:
        it is unlimited as far as the kernel is concerned, and the next spawn sets it anew."""
        limit = self.limit(group)
        if limit:
            resource.setrlimit(resource.RLIMIT_RSS, (limit, self._hard))

    def limit(self, group: int) -> int:
        """The soft limit that marks `group`; 0 where none can be set."""
        return self._base | (group & _GROUP_MASK) << 12 if self._usable else 0

    def short(self, group: int) -> int:
        """The part of a group number that the mark can hold."""
        return group & _GROUP_MASK

    def read(self, pid: int) -> int | None:
        """The (short) group that `pid` is marked with, None if it has no mark of ours."""
        try:
            soft = resource.prlimit(pid, resource.RLIMIT_RSS)[0]
        except PermissionError:
            soft = _read_limits(pid)
        except OSError:
            return None
        if soft & ~(_GROUP_MASK << 12) != self._base:
            return None
        return soft >> 12 & _GROUP_MASK

    def read_environ(self, pid: int) -> int | None:
        """The same from the environment, for a process that changed its limits."""
        token = procfs.environ_value(pid, KEEPER_VARIABLE.encode())
        if token != self.name.encode():
            return None
        group = procfs.environ_value(pid, GROUP_VARIABLE.encode()) or b""
        return int(group) & _GROUP_MASK if group.isdigit() else None

    @property
    def name(self) -> str:
        """The token as it stands in the environment of every child."""
        return f"{self.token:06x}"


def _read_limits(pid: int) -> int:
    """The same limit of another user's process: slower, but anyone may read it."""
    data = procfs.read_file(f"/proc/{pid}/limits") or b""
    for line in data.splitlines():
        if line.startswith(b"Max resident set"):
            word = line.split()[3]
            return int(word) if word.isdigit() else -1
    return -1
