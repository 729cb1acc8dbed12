"""Carries out the daemon's orders and reports what becomes of each group.

All of it happens on one loop, in turns: orders, output, then one pass over the dead, then
the facts found are journalled in one write and sent in another. A fact is in the journal
before anyone is told.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable

from . import messages as m
from . import procfs
from .census import Census
from .ending import SIGTERM, Ending
from .group import Group, State
from .host import Descriptors
from .journal import Journal
from .launch import Launcher, SpawnError, check, set_size
from .link import CROWDED, Connection
from .loop import Loop, Timer
from .marker import Marker
from .spool import SpoolWriter
from .spool import paths as spool_paths
from .streams import Input, Output

VERSION = "1"
GREW_FIRST = 0.002
"""Seconds until output is reported: a command that ends sooner needs no report of its own."""
GREW_AGAIN = 0.010
"""Least seconds between two reports of growth."""

_REMEMBERED = 1 << 16
_SAFETY = 10.0


class Keeper:
    """`settings` are those of `__main__`; `log` takes a line for the keeper's log."""

    def __init__(
        self,
        loop: Loop,
        state_dir: str,
        *,
        marker: Marker,
        descriptors: Descriptors,
        journal: Journal,
        drain: float,
        linger: float,
        name: str,
        log: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._state_dir = state_dir
        self._spools = os.path.join(state_dir, "spool")
        self._scripts = os.path.join(state_dir, "groups")
        self._marker = marker
        self._launcher = Launcher(marker, descriptors)
        self._journal = journal
        self._drain, self._linger = drain, linger
        self._name, self._log = name, log
        self._boot = procfs.boot_id()
        self._groups: dict[int, Group] = {}
        self._leaders: dict[int, Group] = {}
        self._forgotten: OrderedDict[int, None] = OrderedDict()
        self._census = Census(marker, self._leaders, log)  # type: ignore[arg-type]
        self._connection: Connection | None = None
        self._dirty: dict[int, Group] = {}
        self._grew_timer: Timer | None = None
        self._grew_last = 0.0
        self._closing: list[Group] = []
        self._trash: list[str] = []  # scripts to remove once everyone has been told
        self._linger_timer: Timer | None = None
        self._leaving = False
        self._handlers: dict[type, Callable[..., None]] = {
            m.Spawn: self._spawn,
            m.Stop: self._stop,
            m.Input: self._input,
            m.Resize: self._resize,
            m.Acknowledge: self._acknowledge,
            m.Discard: self._discard,
            m.Shutdown: lambda order: self.shut_down(order.grace),
        }
        loop.on_turn = self._end_turn
        loop.call_later(_SAFETY, self._safety)
        self._start_linger()

    def adopt_records(self, groups: list[Group]) -> None:
        """Groups of an earlier keeper, whose facts the daemon doesn't have yet."""
        for group in groups:
            self._groups[group.number] = group

    # ------------------------------------------------------------ the link

    def attach(self, connection: Connection) -> None:
        """A daemon has connected: it replaces the one before, and is told everything."""
        if self._connection is not None:
            # what the one before had sent is as good as carried out: it has logged it
            self._connection.finish()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        for group in self._groups.values():
            if group.output is not None:
                group.output.spool.flush()
            group.closed_told = True
        self._closing.clear()
        self._dirty.clear()
        self._journal.commit()
        self._connection = connection
        self._send(
            m.Hello(
                protocol=m.PROTOCOL,
                version=VERSION,
                boot_id=self._boot,
                pid=os.getpid(),
                keeper=self._name,
                containment="subreaper",
                groups=[group.report() for group in self._groups.values()],
            )
        )

    def detached(self, why: str) -> None:
        """The daemon is gone. Nothing changes for any group."""
        self._log(f"daemon disconnected: {why}")
        self._connection = None
        self._start_linger()

    def order(self, order: m.Order) -> None:
        """Carry out one order. A mistake of ours in one must not end all groups."""
        try:
            self._handlers[type(order)](order)
        except OSError as error:
            self._log(f"{type(order).__name__} failed: {error!r}")

    def _send(self, report: m.Report) -> None:
        if self._connection is not None:
            self._connection.send(m.encode(report))

    def _record(self, fact: m.Started | m.SpawnFailed | m.Exited | m.Empty | m.Survived) -> None:
        """Report a fact that must outlive the keeper: one encoding for journal and link."""
        frame = m.encode(fact)
        self._journal.report(frame)
        if self._connection is not None:
            self._connection.send(frame)

    def _start_linger(self) -> None:
        self._linger_timer = self._loop.call_later(self._linger, self._lingered)

    def _lingered(self) -> None:
        self._log(f"no daemon for {self._linger:g} s: ending all groups")
        self.shut_down(2.0)

    def _end_turn(self) -> None:
        for group in self._closing:
            self._tell_closed(group)
        self._closing.clear()
        self._journal.commit()
        if self._connection is not None:
            self._connection.flush()
        if self._trash:
            for path in self._trash:
                _remove(path)
            self._trash.clear()

    # ------------------------------------------------------------ spawn

    def _spawn(self, order: m.Spawn) -> None:
        if order.group in self._groups or order.group in self._forgotten:
            return  # said twice: it has been carried out
        group = Group(order.group)
        if self._leaving:
            self._spawn_failed(group, SpawnError("the keeper is shutting down"))
            return
        script = "" if order.argv else os.path.join(self._scripts, f"{order.group}.script")
        try:
            plan = check(order, script, self._marker)
            if script:
                _write_script(script, order.body)
                group.script = script
            self._journal.begin(order.group, _digest(order), self._boot)
            leader = self._launcher.spawn(order, plan)
        except SpawnError as error:
            self._spawn_failed(group, error)
            return
        except OSError as error:
            self._spawn_failed(group, SpawnError(f"state directory: {error}", error.errno or 0))
            return
        self._groups[order.group] = group
        group.pid, group.start_time = leader.pid, leader.start_time
        self._enter(group)
        spool = SpoolWriter(*spool_paths(self._spools, order.group), order.output_limit)
        group.output = Output(
            self._loop,
            leader.out,
            leader.err,
            spool,
            lambda: self._grown(group),
            lambda: self._streams_closed(group),
        )
        terminal = order.terminal is not None
        group.terminal = leader.out if terminal else -1
        if leader.input >= 0:
            group.input = Input(
                self._loop,
                leader.input,
                terminal,
                lambda serial, count, error: self._send(
                    m.InputTaken(order.group, serial, count, error)
                ),
            )
            if order.argv and order.body:
                # the daemon has handed it over: it needn't fit the bound of later input
                group.input.feed(-1, order.body, order.stdin != "pipe", len(order.body))

    def _enter(self, group: Group) -> None:
        """The leader runs: from now on it is ours to reap and to end."""
        group.leader_alive = True
        self._leaders[group.pid] = group
        self._census.add(group)
        group.started = m.Started(
            group.number, group.pid, group.start_time, time.time(), time.monotonic()
        )
        self._record(group.started)

    def _spawn_failed(self, group: Group, error: SpawnError) -> None:
        _remove(group.script)
        self._groups[group.number] = group
        group.state = State.ENDED
        group.failed = m.SpawnFailed(
            group.number, error.reason, error.errno, time.time(), time.monotonic()
        )
        self._journal.begin(group.number, "", self._boot)
        self._record(group.failed)

    # ------------------------------------------------------------ output

    def _grown(self, group: Group) -> None:
        self._dirty[group.number] = group
        if self._grew_timer is None:
            now = time.monotonic()
            when = max(now + GREW_FIRST, self._grew_last + GREW_AGAIN)
            self._grew_timer = self._loop.call_at(when, self._tell_growth)

    def _tell_growth(self) -> None:
        self._grew_timer = None
        self._grew_last = time.monotonic()
        crowded = self._connection is not None and self._connection.held > CROWDED
        for group in self._dirty.values():
            if group.output is None:
                continue
            group.output.spool.flush()
            if not crowded:
                size, lines, dropped = group.totals
                self._send(m.Grew(group.number, size, lines, dropped))
        if crowded:
            # a daemon that doesn't read gets the latest only, when it reads again
            self._grew_timer = self._loop.call_later(0.1, self._tell_growth)
        else:
            self._dirty.clear()

    def _streams_closed(self, group: Group) -> None:
        assert group.output is not None
        group.output.spool.flush()
        size, lines, dropped = group.totals
        group.closed = m.Closed(group.number, time.time(), size, lines, dropped)
        group.closed_told = False
        group.terminal = -1
        if group.state is State.DRAINING:
            self._finish_exit(group)
        elif group.state is State.RUNNING:
            # the end of a process closes its streams first: if that is what this is, its
            # exit follows within microseconds, and one message wakes the daemon for both
            self._loop.call_later(GREW_FIRST, lambda: self._closing.append(group))
        else:
            self._closing.append(group)

    def _tell_closed(self, group: Group) -> None:
        if group.closed_told or group.closed is None:
            return
        group.closed_told = True
        self._dirty.pop(group.number, None)
        if group.output is not None:
            group.output.spool.release()
        self._send(group.closed)

    # ------------------------------------------------------------ the dead

    def reap(self) -> None:
        """SIGCHLD came: take in everyone that ended, stopped or continued."""
        touched: dict[int, Group] = {}
        flags = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
        while True:
            try:
                pid, status, usage = os.wait4(-1, flags)
            except ChildProcessError:
                break
            if not pid:
                break
            group = self._leaders.get(pid)
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                if group is not None:
                    self._paused(group, os.WIFSTOPPED(status))
                continue
            if group is not None:
                used = (usage.ru_utime, usage.ru_stime, usage.ru_maxrss * 1024)
                self._leader_exited(group, status, used)
            else:
                group = self._census.reaped(pid)  # type: ignore[assignment]
            if group is not None:
                touched[group.number] = group
        if touched:
            self._look_again(touched)

    def _look_again(self, touched: dict[int, Group]) -> None:
        """Whoever was below a process that ended has been handed to us by now."""
        for family in self._census.refresh():
            touched[family.number] = family  # type: ignore[assignment]
        for group in list(touched.values()):
            if group.state is State.DRAINING and group.drain_timer is None:
                self._drain_exit(group)
            self._evaluate(group)

    def _paused(self, group: Group, paused: bool) -> None:
        if group.paused != paused:
            group.paused = paused
            self._send(m.Paused(group.number, paused))

    def _leader_exited(
        self, group: Group, status: int, usage: tuple[float, float, int]
    ) -> None:
        group.move(State.DRAINING)
        group.leader_alive = False
        del self._leaders[group.pid]
        group.status, group.usage = status, usage
        group.paused = False
        group.exit_at, group.exit_mono = time.time(), time.monotonic()
        if group.input is not None:
            group.input.close()
        if group.script:
            self._trash.append(group.script)

    def _drain_exit(self, group: Group) -> None:
        """Collect what the leader wrote, then wait for the end of the streams, but not long:
        another process may hold them for as long as it likes."""
        assert group.output is not None
        group.output.drain()  # may finish the exit, through _streams_closed
        if group.state is not State.DRAINING:
            return
        if not group.output.open or not group.orphans:
            # with nobody left of the group, nothing of it can be on its way any more
            self._finish_exit(group)
            return
        group.drain_timer = self._loop.call_at(
            group.exit_mono + self._drain, lambda: self._drained(group)
        )

    def _drained(self, group: Group) -> None:
        if group.state is State.DRAINING:
            assert group.output is not None
            group.output.drain()
        if group.state is State.DRAINING:
            self._finish_exit(group)
        self._evaluate(group)

    def _finish_exit(self, group: Group) -> None:
        group.move(State.EXITED)
        if group.drain_timer is not None:
            group.drain_timer.cancel()
        assert group.output is not None
        group.output.spool.flush()
        self._dirty.pop(group.number, None)
        leftover = len(self._census.walk(group)) if group.orphans else 0
        status = group.status
        signalled = os.WIFSIGNALED(status)
        size, lines, dropped = group.totals
        user, system, most = group.usage
        group.exited = m.Exited(
            group=group.number,
            code=None if signalled else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if signalled else None,
            core_dumped=os.WCOREDUMP(status),
            at=group.exit_at,
            mono=group.exit_mono,
            size=size,
            lines=lines,
            dropped=dropped,
            leftover=leftover,
            stopping=group.ending is not None and group.ending.started <= group.exit_mono,
            user_seconds=user,
            system_seconds=system,
            max_rss=most,
        )
        self._record(group.exited)
        self._tell_closed(group)

    def _evaluate(self, group: Group) -> None:
        """Is it empty? To be asked after a `refresh` of the census only."""
        if group.state is State.ENDED:
            return
        if group.leader_alive or group.orphans or _group_exists(group.pid):
            if group.ending is not None:
                group.ending.follow()
            return
        if group.state is State.DRAINING:
            # whoever holds its streams isn't of the group
            assert group.output is not None
            group.output.drain()
            if group.state is State.DRAINING:
                self._finish_exit(group)
        group.move(State.ENDED)
        self._census.remove(group)
        receipt = group.ending.finish() if group.ending is not None else None
        group.empty = m.Empty(group.number, time.time(), time.monotonic(), receipt)
        self._record(group.empty)
        if group.acknowledged:
            self._forget(group)
        self._maybe_leave()

    def _safety(self) -> None:
        """Nothing is known to need this: it is here for what nobody has thought of."""
        waiting = {n: g for n, g in self._groups.items() if g.state is State.EXITED}
        if waiting:
            self._look_again(waiting)
        self._loop.call_later(_SAFETY, self._safety)

    # ------------------------------------------------------------ other orders

    def _stop(self, order: m.Stop) -> None:
        group = self._groups.get(order.group)
        if group is None:
            return
        if group.state is State.ENDED:
            for fact in (group.failed, group.exited, group.empty, group.lost):
                if fact is not None:
                    self._send(fact)
        elif group.ending is not None:
            group.ending.join(order.grace)
        else:
            self._begin_ending(group, order.grace, order.signal)

    def _begin_ending(self, group: Group, grace: float, number: int) -> None:
        group.ending = Ending(
            self._loop,
            self._census,
            group,
            lambda: self._look_again({group.number: group}),
            lambda receipt: self._survived(group, receipt),
        )
        group.ending.begin(grace, number if 0 < number <= 64 else SIGTERM)

    def _survived(self, group: Group, receipt: m.Receipt) -> None:
        group.survived = m.Survived(group.number, time.time(), time.monotonic(), receipt)
        self._record(group.survived)
        self._maybe_leave()

    def _input(self, order: m.Input) -> None:
        group = self._groups.get(order.group)
        if group is None or group.input is None:
            self._send(m.InputTaken(order.group, order.serial, 0, "closed"))
        else:
            group.input.feed(order.serial, order.body, order.eof)

    def _resize(self, order: m.Resize) -> None:
        group = self._groups.get(order.group)
        if group is not None and group.terminal >= 0:
            set_size(group.terminal, order.size)

    def _acknowledge(self, order: m.Acknowledge) -> None:
        group = self._groups.get(order.group)
        if group is None or group.acknowledged:
            return
        if group.state is not State.ENDED and group.survived is None:
            self._log(f"group {group.number} acknowledged before its end: ignored")
            return
        group.acknowledged = True
        self._journal.acknowledged(group.number)
        if group.state is State.ENDED:
            self._forget(group)
        self._maybe_leave()

    def _forget(self, group: Group) -> None:
        del self._groups[group.number]
        self._forgotten[group.number] = None
        if len(self._forgotten) > _REMEMBERED:
            self._forgotten.popitem(last=False)
        self._dirty.pop(group.number, None)
        if group.output is not None:
            group.output.close()

    def _discard(self, order: m.Discard) -> None:
        for number in order.groups:
            if number not in self._groups:
                for path in spool_paths(self._spools, number):
                    _remove(path)

    # ------------------------------------------------------------ the end

    def shut_down(self, grace: float) -> None:
        """End all groups, then stop the loop: at once without a daemon, else when it has
        acknowledged what was reported, and after a bound in any case."""
        first, self._leaving = not self._leaving, True
        for group in list(self._groups.values()):
            if group.state is not State.ENDED:
                self._stop(m.Stop(group.number, grace))
        if first:
            self._loop.call_later(grace + 8.0, self._leave)
        self._maybe_leave()

    def _maybe_leave(self) -> None:
        if not self._leaving:
            return
        told = self._connection is None
        if all(g.state is State.ENDED or g.survived for g in self._groups.values()) and (
            told or not self._groups
        ):
            self._leave()

    def _leave(self) -> None:
        self._loop.running = False


def _group_exists(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _digest(order: m.Spawn) -> str:
    digest = hashlib.blake2b(order.body, digest_size=8)
    digest.update("\0".join((order.shell, *order.argv)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _write_script(path: str, body: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    try:
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        _remove(path)
        raise
    finally:
        os.close(fd)


def _remove(path: str) -> None:
    if path:
        with contextlib.suppress(OSError):
            os.unlink(path)
