"""What the kernel tells of other processes: the few reads of /proc the keeper lives on.

Each function answers for this very moment and returns nothing (`None`, an empty list) for
a process that is gone: processes vanish between any two lines, which is never an error.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_DEAD = frozenset("ZXx")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """The fields of /proc/<pid>/stat that identify a process and place it."""

    pid: int
    name: str
    state: str
    ppid: int
    pgid: int
    sid: int
    start_time: int  # clock ticks after boot; with pid and boot id it is the identity
    threads: int

    @property
    def alive(self) -> bool:
        """False for a zombie: it runs nothing and only waits to be reaped."""
        return self.state not in _DEAD


def read_file(path: str, size: int = 4096) -> bytes | None:
    """Up to `size` bytes of a small kernel file; None if it (or its process) is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, size)
    except OSError:
        return None
    finally:
        os.close(fd)


def stat(pid: int) -> Stat | None:
    data = read_file(f"/proc/{pid}/stat")
    if not data:
        return None
    # the name is in brackets and may itself hold brackets and spaces: split at the last one
    head, _, tail = data.rpartition(b")")
    name = head.partition(b"(")[2].decode(errors="replace")
    rest = tail.split(None, 21)
    return Stat(
        pid,
        name,
        rest[0].decode(),
        int(rest[1]),
        int(rest[2]),
        int(rest[3]),
        int(rest[19]),
        int(rest[17]),
    )


def boot_ticks() -> int:
    """Now, in the unit of start times."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK_NS


def start_time(pid: int) -> int:
    """The start time of `pid` in clock ticks after boot, 0 if it is gone."""
    data = read_file(f"/proc/{pid}/stat")
    if not data:
        return 0
    return int(data.rpartition(b")")[2].split(None, 20)[19])


def boot_id() -> str:
    """A name of this boot of the machine: pids and start times mean nothing across boots."""
    return (read_file("/proc/sys/kernel/random/boot_id") or b"unknown").decode().strip()


def children(pid: int, threads: int) -> list[int]:
    """The direct children of `pid`, zombies included. `threads`: how many it has."""
    path = f"/proc/{pid}/task"
    if threads <= 1:
        return _numbers(f"{path}/{pid}/children")
    found: list[int] = []
    try:
        for thread in os.listdir(path):
            found.extend(_numbers(f"{path}/{thread}/children"))
    except OSError:
        return []
    return found


def _numbers(path: str) -> list[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = os.read(fd, 65536)
        while more := os.read(fd, 65536) if len(data) > 2048 else b"":
            data += more
    except OSError:
        return []
    finally:
        os.close(fd)
    return [int(number) for number in data.split()]


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for this signal, or ignores or blocks it."""
    data = read_file(f"/proc/{pid}/status") or b""
    masks = 0
    for line in data.splitlines():
        if line.startswith((b"SigCgt:", b"SigIgn:", b"SigBlk:")):
            masks |= int(line.split()[1], 16)
    return bool(masks >> (number - 1) & 1)


def pids() -> list[int]:
    """Every process of the machine. Costs milliseconds: never on a hot path."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environ_value(pid: int, name: bytes) -> bytes | None:
    """One variable of the environment `pid` was started with, None if unset or unreadable."""
    data = read_file(f"/proc/{pid}/environ", 1 << 20)
    prefix = name + b"="
    for entry in (data or b"").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :]
    return None


def has_children_files() -> bool:
    """Whether this kernel offers /proc/<pid>/task/<tid>/children (CONFIG_PROC_CHILDREN)."""
    return os.path.exists("/proc/thread-self/children")


def group_exists(pgid: int) -> bool:
    """Whether any process, dead ones included, is in this process group."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
