"""Starts one group's leader: checks first, then one `posix_spawn`.

`posix_spawn` with `setsid` shares the keeper's memory until the exec (vfork), so it costs
the same however large the keeper is, and runs no Python in the child. What it has no
attribute for is done to the keeper itself around the call, which a single-threaded process
can do unseen: working directory, soft limits, mark. A terminal becomes the controlling
one because the child, a session leader by then, opens it by name without O_NOCTTY.

There is no pidfd: a child that we haven't reaped keeps its pid, and the keeper is the only
one that reaps. (Two descriptors less for each live group also make every spawn faster.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import signal
import stat
import struct
import termios
from collections.abc import Sequence
from dataclasses import dataclass

from . import procfs
from .host import Descriptors
from .marker import GROUP_VARIABLE, KEEPER_VARIABLE, Marker
from .messages import Spawn, TerminalSize

MAX_STRING = 128 << 10
"""Bytes of one argument or environment entry, its NUL included (the kernel's MAX_ARG_STRLEN)."""

_DROPPED = (b"BASH_ENV", b"ENV")  # files that a non-interactive shell would run first
_GROUP, _KEEPER = GROUP_VARIABLE.encode(), KEEPER_VARIABLE.encode()
_SIGNALS = sorted(
    number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)
)
_LOW = 64  # descriptors below this are under any soft limit that a child is spawned with
_ROOM = 64 << 20  # address space that the keeper may need while it spawns
_PAGE = resource.getpagesize()


class SpawnError(Exception):
    """Nothing was started. The text is one line for people; `errno` is 0 where none fits."""

    def __init__(self, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.errno = reason, code


@dataclass(slots=True)
class Leader:
    """A leader that has just been started, and our ends of its streams (all non-blocking)."""

    pid: int
    start_time: int
    out: int  # a pipe, or the terminal
    err: int  # -1 with a terminal
    input: int  # -1: /dev/null


@dataclass(slots=True)
class Pipes:
    """Both sides of a group's streams."""

    out: int
    err: int
    input: int  # -1: /dev/null
    ends: tuple[int, int, int]  # the child's 0, 1 and 2
    _theirs: tuple[int, ...]

    def close_ends(self) -> None:
        for fd in self._theirs:
            os.close(fd)

    def close(self) -> None:
        """Our side, of a group that was not started."""
        for fd in (self.out, self.err, self.input):
            if fd >= 0:
                os.close(fd)


@dataclass(slots=True)
class Plan:
    """A checked order: what exactly is executed."""

    path: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes


def check(order: Spawn, script: str, base: dict[bytes, bytes], marker: Marker) -> Plan:
    """What is to be executed. Raises `SpawnError` for what can never be.

    Whether directory and shell are there is asked when the start has failed: it costs six
    system calls, and a directory can be gone after any check.
    """
    env = {**base, **_variables(order.env)}
    for key in _DROPPED:
        env.pop(key, None)
    env[_GROUP] = b"%d" % order.group
    env[_KEEPER] = marker.name.encode()
    cwd = _bytes(order.cwd or "/", "working directory")
    if order.zygote:
        _check_directory(cwd)
        if not re.fullmatch(r"[\w.]+:[\w.]+", order.zygote):
            raise SpawnError(f"not a module:function: {_show(order.zygote)!r}", errno.EINVAL)
        if order.terminal is not None:
            raise SpawnError("a worker of the zygote can't have a terminal", errno.EINVAL)
        path, argv = b"", []
    elif order.argv:
        argv = [_bytes(text, f"argument {n}") for n, text in enumerate(order.argv)]
        for n, text in enumerate(argv):
            if len(text) >= MAX_STRING:
                raise SpawnError(
                    f"argument {n} is too long: {len(text)} bytes, the limit is {MAX_STRING - 1}",
                    errno.E2BIG,
                )
        if not argv[0]:
            raise SpawnError("the program's name is empty", errno.ENOENT)
        path = _find_program(argv[0], env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin"), cwd)
    else:
        if b"\0" in (body := order.script):
            at = body.index(b"\0")
            raise SpawnError(f"the script holds a NUL byte at offset {at}", errno.EINVAL)
        path = _bytes(order.shell or "/bin/bash", "shell")
        argv = [path, script.encode("utf-8", "surrogateescape")]
    return Plan(path, argv, env, cwd)


def _bytes(text: str, what: str) -> bytes:
    """The system's bytes of a string that was decoded with surrogateescape."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise SpawnError(f"{what} can't be encoded: {error.reason}", errno.EINVAL) from None
    if b"\0" in data:
        raise SpawnError(f"{what} holds a NUL byte", errno.EINVAL)
    return data


def _show(name: bytes | str) -> str:
    """A path as one line of text."""
    text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    line = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)


def base_environment(env: dict[str, str]) -> dict[bytes, bytes]:
    """What of an environment can be given to a process: one variable that can't is no reason
    to refuse every spawn."""
    found: dict[bytes, bytes] = {}
    for name, value in env.items():
        with contextlib.suppress(SpawnError):
            found.update(_variables({name: value}))
    return found


def _variables(given: dict[str, str]) -> dict[bytes, bytes]:
    env: dict[bytes, bytes] = {}
    for name, value in given.items():
        try:
            key = name.encode("utf-8", "surrogateescape")
            data = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise _bad_variable(name, value) from None
        if not key or b"=" in key or b"\0" in key or b"\0" in data:
            raise _bad_variable(name, value)
        if len(key) + len(data) + 2 > MAX_STRING:
            raise _bad_variable(name, value)
        env[key] = data
    return env


def _bad_variable(name: str, value: str) -> SpawnError:
    """Why this one can't be given to a process. Called for the exception only: the check runs
    for every variable of every spawn."""
    if not name or "=" in name:
        return SpawnError(f"not the name of a variable: {_show(name)!r}", errno.EINVAL)
    try:
        key = _bytes(name, f"the name of environment variable {_show(name)!r}")
        data = _bytes(value, f"environment variable {_show(name)}")
    except SpawnError as error:
        return error
    return SpawnError(
        f"environment variable {_show(name)} is too long: {len(data)} bytes, "
        f"the limit is {MAX_STRING - len(key) - 2}",
        errno.E2BIG,
    )


def _check_directory(cwd: bytes) -> None:
    try:
        mode = os.stat(cwd).st_mode
    except FileNotFoundError:
        raise SpawnError(f"working directory does not exist: {_show(cwd)}", errno.ENOENT) from None
    except OSError as error:
        raise SpawnError(
            f"working directory can't be used: {_show(cwd)}: {error.strerror}", error.errno or 0
        ) from None
    if not stat.S_ISDIR(mode):
        raise SpawnError(f"working directory is not a directory: {_show(cwd)}", errno.ENOTDIR)
    if not os.access(cwd, os.X_OK):
        raise SpawnError(f"working directory can't be entered: {_show(cwd)}", errno.EACCES)


def _check_program(path: bytes, what: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        text = "does not exist" if error.errno == errno.ENOENT else f"{error.strerror}"
        raise SpawnError(f"{what} {text}: {_show(path)}", error.errno or 0) from None
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        raise SpawnError(f"{what} is not executable: {_show(path)}", errno.EACCES)


def _find_program(name: bytes, search: bytes, cwd: bytes) -> bytes:
    """As execvp does it, but with the child's PATH and from the child's directory."""
    if b"/" in name:
        path = os.path.join(cwd, name)
        _check_program(path, "program")
        return path
    for directory in search.split(b":"):
        path = os.path.join(cwd, directory or b".", name)
        try:
            if stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK):
                return path
        except OSError:
            continue
    raise SpawnError(f"program not found: {_show(name)}", errno.ENOENT)


def _standard(ends: Sequence[int]) -> list[tuple[object, ...]]:
    return [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(ends)]


class Launcher:
    """Spawns checked plans. Holds what is open for good: /dev/null and the root."""

    __slots__ = ("_descriptors", "_home", "_marker", "_null", "_slots")

    def __init__(self, marker: Marker, descriptors: Descriptors) -> None:
        self._marker = marker
        self._descriptors = descriptors
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._slots = [os.dup(self._null) for _ in range(3)]
        self._home = os.open("/", os.O_PATH | os.O_CLOEXEC)
        os.chdir("/")

    def spawn(self, order: Spawn, plan: Plan) -> Leader:
        """Start it. Raises `SpawnError`; then no descriptor and no process is left of it."""
        if order.terminal is not None:
            return self._spawn_on_terminal(order, plan, order.terminal)
        pipes = self.open_pipes(order)
        try:
            pid, started = self._start_on(order, plan, pipes.ends)
        except OSError as error:
            pipes.close()
            raise _explain(error, order, plan) from None
        except BaseException:
            pipes.close()
            raise
        finally:
            pipes.close_ends()
        return Leader(pid, started, pipes.out, pipes.err, pipes.input)

    def open_pipes(self, order: Spawn) -> Pipes:
        """The streams of a group without a terminal. Raises `SpawnError`."""
        opened: list[int] = []
        try:
            for _ in range(3 if order.stdin == "pipe" or order.input else 2):
                opened += os.pipe2(os.O_CLOEXEC)
            if max(opened) >= self._descriptors.for_groups:
                raise OSError(errno.EMFILE, "the rest is kept for those that run")
            out, out_end, err, err_end, *rest = opened
            source, feed = rest or (self._null, -1)
            for fd in (out, err, *rest[1:]):
                os.set_blocking(fd, False)
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise SpawnError(
                f"out of file descriptors: {error.strerror}", error.errno or 0
            ) from None
        theirs = (out_end, err_end, *rest[:1])
        return Pipes(out, err, feed, (source, out_end, err_end), theirs)

    def limits(self, order: Spawn) -> list[tuple[int, int, int]]:
        """Resource, soft and hard limit of each that a worker has to set for itself."""
        nofile = min(order.nofile or self._descriptors.child_default, self._descriptors.highest)
        hard = nofile if order.nofile else self._descriptors.hard
        found = [(resource.RLIMIT_NOFILE, nofile, hard)]
        for kind, wanted in _wanted(order):
            value = _at_most(wanted, resource.getrlimit(kind)[1])
            found.append((kind, value, value + (kind == resource.RLIMIT_CPU)))
        return found

    def _start_on(self, order: Spawn, plan: Plan, ends: tuple[int, ...]) -> tuple[int, int]:
        """With `ends` as the child's 0, 1 and 2."""
        high = [fd for fd in ends if fd >= _LOW]
        if not high:
            return self._start(order, plan, _standard(ends))
        # posix_spawn refuses numbers that are over the soft limit the child is to have
        low = list(ends)
        for n, slot in enumerate(self._slots):
            if low[n] >= _LOW:
                os.dup2(low[n], slot, inheritable=False)
                low[n] = slot
        try:
            return self._start(order, plan, _standard(low))
        finally:
            for slot in self._slots:
                os.dup2(self._null, slot, inheritable=False)

    def _spawn_on_terminal(self, order: Spawn, plan: Plan, size: TerminalSize) -> Leader:
        master = -1
        try:
            master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
            number = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, b"\0" * 4))[0]
            set_size(master, size)
            slave = (os.POSIX_SPAWN_OPEN, 0, f"/dev/pts/{number}", os.O_RDWR, 0)
            copies = ((os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2))
            pid, started = self._start(order, plan, [slave, *copies])
        except (OSError, SpawnError) as error:
            if master >= 0:
                os.close(master)
            if isinstance(error, OSError):
                raise _explain(error, order, plan) from None
            raise
        return Leader(pid, started, master, -1, master)

    def _start(
        self, order: Spawn, plan: Plan, actions: Sequence[tuple[object, ...]]
    ) -> tuple[int, int]:
        """The pid and the start time."""
        self._marker.set(order.group)
        limits = _limits_before(order)
        moved = plan.cwd != b"/"
        try:
            for kind, soft, _ in limits:
                resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
            wanted = min(order.nofile, self._descriptors.highest)
            self._descriptors.for_child(max(wanted, _LOW) if wanted else 0)
            if moved:
                _enter(plan.cwd)
            earliest = procfs.boot_ticks()
            pid = os.posix_spawn(
                plan.path,
                plan.argv,
                plan.env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_SIGNALS,
            )
            latest = procfs.boot_ticks()
        finally:
            if moved:
                os.fchdir(self._home)
            self._descriptors.for_keeper()
            for kind, _, before in limits:
                resource.setrlimit(kind, before)
        _limit_child(pid, order)
        # The fork lies between the two. Reading /proc of a process that is just executing
        # waits for it: 110 µs under load.
        return pid, earliest if earliest == latest else procfs.start_time(pid)


def _enter(cwd: bytes) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        _check_directory(cwd)
        text = f"working directory can't be entered: {_show(cwd)}: {error.strerror}"
        raise SpawnError(text, error.errno or 0) from None


_TIOCSPTLCK = 0x40045431
_TIOCGPTN = 0x80045430


def set_size(terminal: int, size: TerminalSize) -> None:
    """Tell a terminal its size; the foreground processes get SIGWINCH if it changed."""
    words = struct.pack("HHHH", size.rows & 0xFFFF, size.columns & 0xFFFF, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, words)


def _wanted(order: Spawn) -> list[tuple[int, int]]:
    wanted = (
        (resource.RLIMIT_AS, order.memory),
        (resource.RLIMIT_CPU, order.cpu_seconds),
        (resource.RLIMIT_FSIZE, order.file_size),
    )
    return [(kind, value) for kind, value in wanted if value > 0]


def _limits_before(order: Spawn) -> list[tuple[int, int, tuple[int, int]]]:
    """The soft limits that the child is to have from its first instruction.

    They hold for the keeper too while it spawns. RLIMIT_CPU would end a keeper that has run
    longer than that, and a small RLIMIT_AS would keep it from allocating: these the child
    gets right after the spawn only.
    """
    found = []
    for kind, value in _wanted(order):
        if kind == resource.RLIMIT_CPU:
            continue
        if kind == resource.RLIMIT_AS and value < _own_size() + _ROOM:
            continue
        before = resource.getrlimit(kind)
        found.append((kind, _at_most(value, before[1]), before))
    return found


def _at_most(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _own_size() -> int:
    pages = (procfs.read_file("/proc/self/statm") or b"0").split()[0]
    return int(pages) * _PAGE


def _limit_child(pid: int, order: Spawn) -> None:
    """Lower the hard limits as well, so that the child can't lift the soft ones again."""
    wanted = _wanted(order)
    if order.nofile > 0:
        wanted.append((resource.RLIMIT_NOFILE, order.nofile))
    for kind, value in wanted:
        try:
            value = _at_most(value, resource.prlimit(pid, kind)[1])
            # a second more than the soft limit: SIGXCPU comes first, then SIGKILL
            hard = value + 1 if kind == resource.RLIMIT_CPU else value
            resource.prlimit(pid, kind, (value, hard))
        except (OSError, ValueError, OverflowError):  # it is gone, or is another user by now
            return


def _explain(error: OSError, order: Spawn, plan: Plan) -> SpawnError:
    code = error.errno or 0
    if not order.argv:
        try:
            _check_program(plan.path, "shell")
        except SpawnError as why:
            return why
    if code in (errno.EMFILE, errno.ENFILE):
        reason = f"out of file descriptors: {error.strerror}"
    elif code == errno.EAGAIN:
        reason = "out of processes: the limit of this user or machine is reached"
    elif code == errno.ENOMEM:
        reason = "out of memory"
    elif code == errno.E2BIG:
        reason = "arguments and environment are together too long"
    elif code == errno.ENOEXEC:
        reason = f"not an executable format: {_show(plan.path)}"
    else:
        reason = f"can't execute {_show(plan.path)}: {error.strerror}"
    return SpawnError(reason, code)
