"""Carries out the daemon's orders and reports what becomes of each group.

All of it happens on one loop, in turns: orders, output, then one pass over the dead, then
the facts found are journalled in one write and sent in another. A fact is in the journal
before anyone is told.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable

from . import messages as m
from . import procfs
from .cgroup import Cgroups
from .containment import Containment
from .ending import SIGKILL, SIGTERM
from .group import Group, State
from .host import Descriptors
from .journal import Journal
from .launch import (
    Launcher,
    Leader,
    Plan,
    SpawnError,
    base_environment,
    check,
    set_size,
)
from .link import Connection
from .loop import Loop, Timer
from .marker import Marker
from .reporter import Reporter
from .scripts import digest, remove, write_script
from .spool import paths as spool_paths
from .spool_writer import SpoolWriter
from .streams import Input, Output
from .warm import Warm

VERSION = "1"

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
        preload: str,
        cgroups: Cgroups | None = None,
        name: str,
        log: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._spools = os.path.join(state_dir, "spool")
        self._scripts = os.path.join(state_dir, "groups")
        self._marker = marker
        self._launcher = Launcher(marker, descriptors)
        self._journal = journal
        self._drain, self._linger = drain, linger
        self._name, self._log = name, log
        self._boot = procfs.boot_id()
        self._groups: dict[int, Group] = {}
        self._forgotten: OrderedDict[int, None] = OrderedDict()
        self._warm = Warm(loop, marker, preload, log)
        self._containment = Containment(loop, marker, cgroups, log, lambda: self._warm.pids)
        self._census = self._containment.census
        self._reporter = Reporter(loop, journal)
        self._linger_timer: Timer | None = None
        self._leaving = False
        self._base: dict[bytes, bytes] = {}
        self._handlers: dict[type, Callable[..., None]] = {
            m.Base: self._take_base,
            m.Spawn: self._spawn,
            m.Stop: self._stop,
            m.Input: self._input,
            m.Resize: self._resize,
            m.Acknowledge: self._acknowledge,
            m.Discard: self._discard,
            m.Shutdown: lambda order: self.shut_down(order.grace),
        }
        loop.on_turn = self._reporter.end_turn
        loop.call_later(_SAFETY, self._safety)
        self._start_linger()

    def adopt_records(self, groups: list[Group]) -> None:
        """Groups of an earlier keeper, whose facts the daemon doesn't have yet."""
        for group in groups:
            self._groups[group.number] = group

    # ------------------------------------------------------------ the link

    def attach(self, connection: Connection) -> None:
        """A daemon has connected: it replaces the one before, and is told everything."""
        self._reporter.finish_connection()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        for group in self._groups.values():
            if group.output is not None:
                group.output.spool.flush()
            group.closed_told = True
        self._journal.commit()
        self._reporter.connect(
            connection,
            m.Hello(
                protocol=m.PROTOCOL,
                version=VERSION,
                boot_id=self._boot,
                pid=os.getpid(),
                keeper=self._name,
                containment=self._containment.kind,
                groups=[g.report() for g in self._groups.values() if not g.acknowledged],
            ),
        )

    def detached(self, why: str) -> None:
        """The daemon is gone. Nothing changes for any group."""
        self._log(f"daemon disconnected: {why}")
        self._reporter.disconnected()
        self._start_linger()
        self._maybe_leave()

    def order(self, order: m.Order) -> None:
        """Carry out one order. A mistake of ours in one must not be the end of the others."""
        try:
            self._handlers[type(order)](order)
        except Exception:  # noqa: BLE001
            self._log(f"{type(order).__name__}: {traceback.format_exc()}")
            if isinstance(order, m.Spawn) and order.group not in self._groups:
                self._spawn_failed(Group(order.group), SpawnError("an error of the keeper"))

    def _start_linger(self) -> None:
        self._linger_timer = self._loop.call_later(self._linger, self._lingered)

    def _lingered(self) -> None:
        self._log(f"no daemon for {self._linger:g} s: ending all groups")
        self.shut_down(2.0)

    # ------------------------------------------------------------ spawn

    def _take_base(self, order: m.Base) -> None:
        self._base = base_environment(order.env)

    def _spawn(self, order: m.Spawn) -> None:
        if order.group in self._groups or order.group in self._forgotten:
            return  # said twice: it has been carried out
        if self._leaving:
            return  # nothing is known of it here: the daemon asks the next keeper
        group = Group(order.group)
        script = os.path.join(self._scripts, f"{order.group}.script")
        if order.argv or order.zygote:
            script = ""
        try:
            plan = check(order, script, self._base, self._marker)
            if order.zygote:
                self._order_worker(group, order, plan)
                return
            if script:
                write_script(script, order.script)
                group.script = script
            self._journal.begin(order.group, digest(order), self._boot)
            # The start is when we begin to start it: a duration never falls short.
            begun = (time.time(), time.monotonic())
            with self._containment.spawning(group):
                leader = self._launcher.spawn(order, plan)
        except SpawnError as error:
            self._spawn_failed(group, error)
            return
        except OSError as error:
            self._spawn_failed(group, SpawnError(f"state directory: {error}", error.errno or 0))
            return
        self._groups[order.group] = group
        self._run(group, order, leader, begun)

    def _order_worker(self, group: Group, order: m.Spawn, plan: Plan) -> None:
        """A leader that the zygote forks: it is there some milliseconds later."""
        pipes = self._launcher.open_pipes(order)
        self._groups[order.group] = group
        self._journal.begin(order.group, digest(order), self._boot)

        def done(pid: int, error: str) -> None:
            if not pid:
                self._spawn_failed(group, SpawnError(error))
                return
            self._census.reaped(pid)  # it was seen as an orphan: now it is a leader
            leader = Leader(pid, procfs.start_time(pid), pipes.out, pipes.err, pipes.input)
            self._run(group, order, leader, (time.time(), time.monotonic()))
            for early in group.early_input:
                self._input(early)
            group.early_input.clear()
            if group.wanted_stop is not None:
                self._stop(group.wanted_stop)

        self._warm.order(order, plan, pipes, self._launcher.limits(order), done)

    def _run(
        self, group: Group, order: m.Spawn, leader: Leader, begun: tuple[float, float]
    ) -> None:
        """The leader is there: take it in, and connect its streams."""
        group.pid, group.start_time = leader.pid, leader.start_time
        group.peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 256
        self._enter(group, *begun)
        spool = SpoolWriter(*spool_paths(self._spools, order.group), order.output_limit)
        group.output = Output(
            self._loop,
            leader.out,
            leader.err,
            spool,
            lambda: self._reporter.grown(group),
            lambda: self._streams_closed(group),
        )
        terminal = order.terminal is not None
        group.terminal = leader.out if terminal else -1
        if leader.input >= 0:
            group.input = Input(
                self._loop,
                leader.input,
                terminal,
                lambda serial, count, error: self._reporter.send(
                    m.InputTaken(order.group, serial, count, error)
                ),
            )
            if first := order.input:
                # the daemon has handed it over: it needn't fit the bound of later input
                group.input.feed(-1, first, order.stdin != "pipe", len(first))

    def _enter(self, group: Group, at: float, mono: float) -> None:
        """The leader runs: from now on it is ours to reap and to end."""
        group.move(State.RUNNING)
        self._containment.enter(group)
        group.started = m.Started(group.number, group.pid, group.start_time, at, mono)
        self._reporter.record(group.started)

    def _spawn_failed(self, group: Group, error: SpawnError) -> None:
        remove(group.script)
        self._containment.not_spawned(group)
        self._groups[group.number] = group
        group.move(State.ENDED)
        for early in group.early_input:
            self._reporter.send(m.InputTaken(group.number, early.serial, 0, "closed"))
        group.early_input.clear()
        group.failed = m.SpawnFailed(
            group.number, error.reason, error.errno, time.time(), time.monotonic()
        )
        self._journal.begin(group.number, "", self._boot)
        self._reporter.record(group.failed)
        self._maybe_leave()

    # ------------------------------------------------------------ output

    def _streams_closed(self, group: Group) -> None:
        assert group.output is not None
        group.output.spool.flush()
        size, lines, dropped = group.totals
        group.closed = m.Closed(group.number, time.time(), size, lines, dropped)
        group.closed_told = False
        group.terminal = -1
        if group.state is State.DRAINING:
            self._finish_exit(group)
        else:
            self._reporter.closed(group, soon=group.state is State.RUNNING)

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
            group = self._containment.leaders.get(pid)
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                if group is not None:
                    self._paused(group, os.WIFSTOPPED(status))
                continue
            if group is not None:
                # a child begins with the keeper's own peak: what doesn't exceed it is unknown
                peak = usage.ru_maxrss if usage.ru_maxrss > group.peak_before else 0
                used = (usage.ru_utime, usage.ru_stime, peak * 1024)
                self._leader_exited(group, status, used)
            elif pid in self._warm.pids:
                self._warm.died(status)
            else:
                group = self._census.reaped(pid)
                if group is None and self._warm.busy:
                    self._warm.unknown.add(pid)
            if group is not None:
                touched[group.number] = group
        if touched:
            self._look_again(touched)

    def _look_again(self, touched: dict[int, Group]) -> None:
        """Whoever was below a process that ended has been handed to us by now."""
        for family in self._census.refresh():
            touched[family.number] = family
        for group in list(touched.values()):
            try:
                if group.state is State.DRAINING and group.drain_timer is None:
                    self._drain_exit(group)
                self._evaluate(group)
            except Exception:  # noqa: BLE001 - a mistake of ours about one is not the others' end
                self._log(f"group {group.number}: {traceback.format_exc()}")

    def _paused(self, group: Group, paused: bool) -> None:
        if group.paused != paused:
            group.paused = paused
            self._reporter.send(m.Paused(group.number, paused))

    def _leader_exited(self, group: Group, status: int, usage: tuple[float, float, int]) -> None:
        group.move(State.DRAINING)
        self._containment.leader_reaped(group)
        group.status, group.usage = status, usage
        group.paused = False
        group.exit_at, group.exit_mono = time.time(), time.monotonic()
        if group.input is not None:
            group.input.close()
        if group.script:
            self._reporter.afterwards(lambda: remove(group.script))

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
        self._reporter.forget(group)
        leftover = len(self._census.walk(group)) if group.orphans else 0
        group.exited = group.exit_report(leftover)
        self._reporter.exited(group)

    def _evaluate(self, group: Group) -> None:
        """Is it empty? To be asked after a `refresh` of the census only."""
        if group.state in (State.ENDED, State.STARTING):
            return
        if not self._containment.is_empty(group, lambda: self._look_again({group.number: group})):
            if group.ending is not None:
                group.ending.follow()
            return
        if group.state is State.DRAINING:
            # whoever holds its streams isn't of the group
            assert group.output is not None
            group.output.drain()
            if group.state is State.DRAINING:
                self._finish_exit(group)
        elif group.state is State.EXITED:
            # What its last processes wrote is told before their end: then the daemon forgets.
            assert group.output is not None
            group.output.drain()
            self._reporter.tell_closed(group)
            if group.output.open:
                self._reporter.tell_grown(group)
        group.move(State.ENDED)
        self._containment.leave(group)
        receipt = group.ending.finish() if group.ending is not None else None
        self._reporter.emptied(group, m.Empty(group.number, time.time(), time.monotonic(), receipt))
        if group.acknowledged:
            self._forget(group)
        self._maybe_leave()

    def _safety(self) -> None:
        """Nothing is known to need this: it is here for what nobody has thought of."""
        after = (State.DRAINING, State.EXITED)
        waiting = {n: g for n, g in self._groups.items() if g.state in after}
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
                    self._reporter.send(fact)
        elif group.state is State.STARTING:
            if group.wanted_stop is None or order.grace < group.wanted_stop.grace:
                group.wanted_stop = order
        elif group.ending is not None:
            group.ending.join(order.grace)
        else:
            self._begin_ending(group, order.grace, order.signal)

    def _begin_ending(self, group: Group, grace: float, number: int) -> None:
        self._containment.end(
            group,
            grace,
            number if 0 < number <= 64 else SIGTERM,
            lambda: self._look_again({group.number: group}),
            lambda receipt: self._survived(group, receipt),
        )

    def _survived(self, group: Group, receipt: m.Receipt) -> None:
        group.survived = m.Survived(group.number, time.time(), time.monotonic(), receipt)
        self._reporter.record(group.survived)
        self._maybe_leave()

    def _input(self, order: m.Input) -> None:
        group = self._groups.get(order.group)
        if group is not None and group.state is State.STARTING:
            group.early_input.append(order)
        elif group is None or group.input is None:
            self._reporter.send(m.InputTaken(order.group, order.serial, 0, "closed"))
        else:
            group.input.feed(order.serial, order.body, order.eof)

    def _resize(self, order: m.Resize) -> None:
        group = self._groups.get(order.group)
        if group is not None and group.terminal >= 0:
            set_size(group.terminal, order.size)

    def _acknowledge(self, order: m.Acknowledge) -> None:
        for number in order.groups:
            group = self._groups.get(number)
            if group is not None and not group.acknowledged:
                self._acknowledge_one(group)

    def _acknowledge_one(self, group: Group) -> None:
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
        self._reporter.forget(group)
        if group.output is not None:
            group.output.close()
        if group.discarded:
            self._remove_spool(group.number)

    def _discard(self, order: m.Discard) -> None:
        for number in order.groups:
            group = self._groups.get(number)
            if group is None:
                self._remove_spool(number)
            else:
                group.discarded = True  # it is still written to: see `_forget`

    def _remove_spool(self, number: int) -> None:
        for path in spool_paths(self._spools, number):
            remove(path)

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
        told = not self._reporter.connected
        if all(g.state is State.ENDED or g.survived for g in self._groups.values()) and (
            told or all(g.acknowledged for g in self._groups.values())
        ):
            self._leave()

    def _leave(self) -> None:
        for pid, family in self._census.orphans.items():
            if family is None:  # below us, though nobody knows of which group
                with contextlib.suppress(OSError):
                    os.kill(pid, SIGKILL)
        self._warm.stop()
        self._loop.running = False
