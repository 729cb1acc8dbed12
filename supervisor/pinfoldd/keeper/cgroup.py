"""cgroup v2 as a second fence around each group, where one may be written.

Off unless asked for (`--cgroup DIR`): each move between cgroups costs 0.1 ms mostly and 10
to 30 ms now and then, and the subreaper loses nobody either. What it adds: `cgroup.kill`
ends everything at once, faster than anything can fork, and it still knows the processes of
a group that have shed every other sign of it.

A child is born into the cgroup of its parent. So the keeper enters the group's cgroup for
the moment of the spawn and goes back to its own. Moving the child afterwards would be
cheaper, but what it had forked by then could be out of reach already. (A worker of the
zygote is moved while it waits at its gate.)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from . import procfs


class Cgroups:
    """One cgroup for each group, below `<directory>/pinfold-<token>`. Raises OSError if that
    can't be used; afterwards errors are noted, and the group goes on without."""

    def __init__(self, directory: str, token: str, note: Callable[[str], None]) -> None:
        self._note = note
        self._directory = directory
        self._root = os.path.join(directory, f"pinfold-{token}")
        os.makedirs(self._root, exist_ok=True)
        self._home = os.path.join(self._root, "keeper", "cgroup.procs")
        os.makedirs(os.path.dirname(self._home), exist_ok=True)
        os.close(os.open(os.path.join(self._root, "cgroup.kill"), os.O_WRONLY | os.O_CLOEXEC))
        _write(self._home, b"0")
        self._used: set[int] = set()

    def _path(self, group: int, name: str = "") -> str:
        return os.path.join(self._root, str(group), name)

    @contextlib.contextmanager
    def inside(self, group: int) -> Iterator[None]:
        """What is spawned meanwhile is born in the group's cgroup."""
        if not self.move(group, 0):
            yield
            return
        try:
            yield
        finally:
            _write(self._home, b"0")

    def move(self, group: int, pid: int) -> bool:
        """Make the group's cgroup and move a process there; 0 is the keeper itself."""
        try:
            os.mkdir(self._path(group))  # noqa: PTH102
            self._used.add(group)
            _write(self._path(group, "cgroup.procs"), b"%d" % pid)
        except OSError as error:
            self._note(f"cgroup of group {group}: {error}")
            return False
        return True

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

    def close(self) -> None:
        """Leave nothing behind but what is still in use."""
        with contextlib.suppress(OSError):
            _write(os.path.join(self._directory, "cgroup.procs"), b"0")
            os.rmdir(os.path.dirname(self._home))  # noqa: PTH106
            os.rmdir(self._root)  # noqa: PTH106


def _kill(path: str) -> None:
    with contextlib.suppress(OSError):
        _write(path, b"1")


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
