"""Puts the keeper process itself into a stated condition, whatever it was started from.

Children inherit signal dispositions that are *ignored*, the signal mask, descriptors, the
umask and resource limits. Under `nohup`, `&` or `trap '' CHLD` each of these differs, and
with it the behaviour of every command. So nothing is left as it was found.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct

CHILD_NOFILE = 1024
"""Soft RLIMIT_NOFILE of children unless asked otherwise: what login shells and systemd
give, since programs that use select(2) break above it. The hard limit stays as it was."""

KEPT_BACK = 256
"""Descriptors that no new group's streams may take: output is written with them, processes are
looked at and signalled, and a daemon is heard."""

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "prctl")


def become_subreaper() -> None:
    """Orphans of our descendants are handed to us and not to PID 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


HELD = (
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)
"""Signals that the keeper takes from a descriptor, or (the last three) not at all."""


def reset_signals() -> int:
    """Every signal to its default, only `HELD` ones blocked; a signalfd(2) that reads them.

    Blocked and never ignored: an ignored signal stays ignored in every child (Python itself
    starts with SIGPIPE and SIGXFSZ ignored), a blocked one doesn't, as each spawn gives its
    child an empty mask. Children that end while SIGCHLD is blocked wait to be reaped.
    """
    for number in signal.valid_signals():
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):  # the C library keeps a few real-time ones
            continue
    signal.pthread_sigmask(signal.SIG_SETMASK, HELD)
    # the kernel's signal set: one bit each, signal 1 the lowest
    mask = sum(1 << (number - 1) for number in HELD)
    words = (ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong))))(mask)
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.signalfd(-1, words, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "signalfd")
    return fd


def read_signals(fd: int) -> set[int]:
    """The numbers of the signals that have come since the last time."""
    try:
        data = os.read(fd, 64 * 128)
    except BlockingIOError:
        return set()
    return {word[0] for word in struct.iter_unpack("I124x", data)}


def close_inherited(keep: tuple[int, ...] = ()) -> None:
    """Close all descriptors above 2 but `keep`, and open 0 on /dev/null."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:  # the listing's own descriptor
                continue
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        if fd == 0 or not _is_open(fd):
            os.dup2(null, fd)
    if null > 2:
        os.close(null)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def own_session() -> None:
    """Leave the starter's session and terminal; nothing to do where that has been done."""
    try:
        os.setsid()
    except PermissionError:  # already the leader of a group
        return


class Descriptors:
    """The two soft limits on open files: the keeper's own (as high as it goes) and the
    children's. Switched around each spawn, which costs a microsecond; a single-threaded
    process can do so without anyone noticing."""

    __slots__ = ("_own", "child_default", "for_groups", "hard", "highest")

    def __init__(self) -> None:
        _, self.hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if self.hard == resource.RLIM_INFINITY or self.hard > 1 << 20:
            self._own = (1 << 20, self.hard)
        else:
            self._own = (self.hard, self.hard)
        self.highest = self._own[0]
        self.child_default = min(CHILD_NOFILE, self.highest)
        self.for_groups = self.highest - min(KEPT_BACK, self.highest // 4)
        self.for_keeper()

    def for_child(self, soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft or self.child_default, self.hard))

    def for_keeper(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._own)


def lift_file_size_limit() -> None:
    """The spool may be larger than what the starter's shell allowed its own files."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def name_process(name: str) -> None:
    """What `ps` and `top` show."""
    _prctl(_PR_SET_NAME, name.encode()[:15])
