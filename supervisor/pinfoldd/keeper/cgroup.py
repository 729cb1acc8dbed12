"""cgroup v2 as a second fence around each group, where one may be written.

Off unless asked for (`--cgroup DIR`): making a cgroup and moving a process into it costs
0.1 ms mostly and 10 to 30 ms now and then, and the subreaper loses nobody either. What it
adds: `cgroup.kill` ends everything at once, faster than anything can fork, and it still
knows the processes of a group that have shed every other sign of it.

A child can't be spawned into a cgroup with what `posix_spawn` offers here, so its leader is
moved right after the spawn. Whatever it forked before that is moved after it: from then on
it can only fork into the cgroup, so that this comes to an end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from . import procfs

_PASSES = 20


class Cgroups:
    """One cgroup for each group, below `<directory>/pinfold-<token>`. Raises OSError if that
    can't be used; afterwards errors are noted, and the group goes on without."""

    def __init__(self, directory: str, token: str, note: Callable[[str], None]) -> None:
        self._note = note
        self._root = os.path.join(directory, f"pinfold-{token}")
        os.makedirs(self._root, exist_ok=True)
        for name in ("cgroup.procs", "cgroup.kill"):
            os.close(os.open(os.path.join(self._root, name), os.O_WRONLY | os.O_CLOEXEC))
        self._used: set[int] = set()

    def _path(self, group: int, name: str = "") -> str:
        return os.path.join(self._root, str(group), name)

    def enter(self, group: int, pid: int) -> None:
        """Make the cgroup and move the leader, and what it has forked already, into it."""
        try:
            os.mkdir(self._path(group))  # noqa: PTH102
            self._used.add(group)
            fd = os.open(self._path(group, "cgroup.procs"), os.O_RDWR | os.O_CLOEXEC)
            try:
                self._move(fd, pid)
            finally:
                os.close(fd)
        except OSError as error:
            self._note(f"cgroup of group {group}: {error}")

    def _move(self, fd: int, leader: int) -> None:
        moved: set[int] = set()
        for _ in range(_PASSES):
            family = [leader]
            for pid in family:
                family.extend(procfs.children(pid))
            fresh = [pid for pid in family if pid not in moved]
            if not fresh:
                return
            for pid in fresh:
                moved.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.write(fd, b"%d" % pid)

    def pids(self, group: int) -> list[int]:
        """The living processes in the group's cgroup."""
        if group not in self._used:
            return []
        data = procfs.read_file(self._path(group, "cgroup.procs"), 1 << 20) or b""
        return [int(number) for number in data.split()]

    def owner(self, pid: int) -> int | None:
        """The group in whose cgroup this process is."""
        data = procfs.read_file(f"/proc/{pid}/cgroup") or b""
        for line in data.splitlines():
            if line.startswith(b"0::"):
                head, _, name = line.decode(errors="replace").rpartition("/")
                ours = os.path.basename(head) == os.path.basename(self._root)
                return int(name) if ours and name.isdigit() else None
        return None

    def uses(self, group: int) -> bool:
        return group in self._used

    def kill(self, group: int) -> None:
        if group in self._used:
            _kill(self._path(group, "cgroup.kill"))

    def remove(self, group: int) -> bool:
        """The group is empty. False if the kernel needs a moment more."""
        if group not in self._used:
            return True
        try:
            os.rmdir(self._path(group))  # noqa: PTH106
        except FileNotFoundError:
            pass
        except OSError:
            return False
        self._used.discard(group)
        return True

    def clear(self) -> None:
        """End and remove what an earlier keeper of this state directory left behind."""
        for name in os.listdir(self._root):
            if name.isdigit():
                _kill(os.path.join(self._root, name, "cgroup.kill"))
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(self._root, name))  # noqa: PTH106


def _kill(path: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)
