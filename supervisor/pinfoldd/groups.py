"""The loop's side of the keeper: events become orders, reports become commands.

Nothing is decided here. The only state is what a restart makes anew: how far the output of
live groups has grown, and who waits for more of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from pinfoldd import shell_spec
from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.events import Event
from pinfoldd.core.model import Agent, Call, State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import CallState, Exit, Extent, Receipt, Signalled, Survivor
from pinfoldd.keeper import messages as m

if TYPE_CHECKING:
    from pinfoldd.loop import Loop

log = logging.getLogger(__name__)

_ACKNOWLEDGE_SECONDS = 0.02
_WATERMARK_SECONDS = 1.0  # between two events about the growth of one call's output


class Link(Protocol):
    def send(self, order: m.Order) -> None: ...

    def flush(self) -> None: ...


class Workers(Protocol):
    """How the worker of an agent is started."""

    def spawn(self, agent: Agent, group: int) -> m.Spawn: ...

    def last_words(self, group: int, size: int) -> str:
        """What a worker that failed has said of it, in one line; empty if nothing."""
        ...


class Environment(Protocol):
    """What a call finds in its environment, besides what all calls have."""

    def __call__(self, agent: Agent, call: Call, /) -> dict[str, str]: ...


class Output:
    """How far the output of one group has come."""

    __slots__ = ("closed", "extent", "readers", "timed")

    def __init__(self) -> None:
        self.extent = Extent()
        self.closed = False
        self.timed = False  # a watermark event is on its way
        self.readers: list[asyncio.Future[None]] = []


class Groups:
    """Implements `loop.Effects`. Bound to its loop and link once both are there."""

    def __init__(self, base: dict[str, str], environment: Environment, workers: Workers) -> None:
        """`base`: the environment that calls and workers have in common."""
        self._base = base
        self._environment = environment
        self._workers = workers
        self._loop: Loop
        self._link: Link | None = None
        self.outputs: dict[int, Output] = {}
        self._starts: dict[tuple[str, str], list[asyncio.Future[None]]] = {}
        self._inputs: dict[int, asyncio.Future[m.InputTaken]] = {}
        self._input_serial = 0
        self._acknowledged: list[int] = []
        self._discarded: list[int] = []
        self._aio = asyncio.get_running_loop()

    def bind(self, loop: Loop) -> None:
        self._loop = loop

    def attach(self, link: Link | None) -> None:
        """The link to the keeper that is there now; None while there is none."""
        self._link = link
        if link is not None:
            link.send(m.Base(self._base))
        else:
            for future in self._inputs.values():
                if not future.done():
                    future.set_exception(Rejected(Reason.KEEPER_UNAVAILABLE))

    @property
    def connected(self) -> bool:
        return self._link is not None

    def send(self, order: m.Order) -> None:
        # Without a keeper nothing is lost: what the state asks for is sent again by `resend`
        # when one is there.
        if self._link is None:
            return
        try:
            self._link.send(order)
        except m.LinkError as error:
            # Nobody would ever hear of a group whose order could not leave.
            if not isinstance(order, m.Spawn):
                raise
            reason = f"script, arguments and environment are too large together: {error}"
            self._post(c.GroupFailed(order.group, reason), order.group, final=True)

    # ------------------------------------------------------------ events to orders

    def perform(self, event: Event) -> None:
        perform = _PERFORM.get(type(event))
        if perform is not None:
            perform(self, event)

    def _call_starting(self, event: e.CallStarting) -> None:
        self._assigned(event.agent, event.call)
        if event.group:
            self._spawn(event.agent, event.call)

    def _call_stopping(self, event: e.CallStopping | e.LeftoversStopping) -> None:
        call = self._state.call(event.agent, event.call)
        if call is not None and call.group:
            self.send(m.Stop(call.group, event.grace))

    def _worker_starting(self, event: e.WorkerStarting) -> None:
        self.send(self._workers.spawn(self._state.agents[event.agent], event.group))

    def _agent_stopping(self, event: e.AgentStopping) -> None:
        worker = self._state.agents[event.agent].worker
        if worker is not None and worker.running:
            self.send(m.Stop(worker.group))

    def _call_over(self, event: e.CallEnded | e.GroupEmptied) -> None:
        self._assigned(event.agent, event.call)
        # Readers that follow a call look at its state: tell them once it is committed.
        call = self._state.call(event.agent, event.call)
        if call is not None and call.group in self.outputs:
            self._wake(self.outputs[call.group])

    def _calls_forgotten(self, event: e.CallsForgotten) -> None:
        self.send(m.Discard(event.groups))

    def _assigned(self, agent: str, call: str) -> None:
        for future in self._starts.pop((agent, call), ()):
            if not future.done():
                future.set_result(None)

    @property
    def _state(self) -> State:
        return self._loop.state

    def _spawn(self, agent_id: str, call_id: str) -> None:
        call = self._state.call(agent_id, call_id)
        if call is None or call.spec is None:
            return
        agent = self._state.agents[agent_id]
        spec = shell_spec.decode(call.spec)
        env = self._environment(agent, call)
        env.update({name: _text(value) for name, value in spec.env.items()})
        self.outputs.setdefault(call.group, Output())
        self.send(
            m.Spawn(
                group=call.group,
                label=call.label,
                argv=[_text(arg) for arg in spec.argv],
                shell=_text(spec.shell),
                cwd=_text(spec.cwd),
                env=env,
                stdin=spec.stdin,
                terminal=m.TerminalSize(spec.rows, spec.columns) if spec.rows else None,
                output_limit=spec.output_limit,
                nofile=spec.open_files,
                memory=spec.memory,
                cpu_seconds=spec.cpu_seconds,
                file_size=spec.file_size,
                script_size=len(spec.body),
                body=spec.body + spec.input,
            )
        )

    def resend(self, known: frozenset[int]) -> None:
        """Ask again for all that the state wants and this keeper may not have heard of."""
        for agent in list(self._state.agents.values()):
            for call_id in agent.live:
                call = agent.calls[call_id]
                if not call.group:
                    continue
                if call.state is CallState.RUNNING and call.group not in known:
                    self._spawn(agent.id, call.id)
                elif call.state is CallState.STOPPING:
                    self.send(m.Stop(call.group, call.grace))
            for call_id in agent.leftovers:
                call = agent.calls[call_id]
                if call.kill_leftovers or not agent.is_live:
                    self.send(m.Stop(call.group, call.grace))
            worker = agent.worker
            if worker is not None and worker.running and not agent.is_live:
                self.send(m.Stop(worker.group))

    def discard_unknown(self, groups: set[int]) -> None:
        """Of these groups that have a spool, give up those that nobody can ask for: an order to
        discard them was lost with its link, or with a daemon."""
        known = set(self._state.groups)
        for agent in self._state.agents.values():
            known.update(call.group for call in agent.calls.values())
        if unknown := sorted(groups - known):
            self.send(m.Discard(unknown))

    # ------------------------------------------------------------ reports to commands

    def report(self, report: m.Report) -> None:
        """One report of the keeper."""
        match report:
            case m.Grew():
                self._grew(report)
            case m.Started():
                self._post(
                    c.GroupStarted(report.group, report.pid, report.mono, report.at), report.group
                )
            case m.Exited():
                self._exited(report)
            case m.Empty():
                receipt = _receipt(report.receipt)
                self._post(c.GroupEmpty(report.group, receipt, report.mono), report.group, True)
            case m.Closed():
                self._closed(report.group, Extent(report.size, report.lines, report.dropped))
            case m.SpawnFailed():
                self._post(c.GroupFailed(report.group, report.reason), report.group, True)
            case m.Survived():
                receipt = _receipt(report.receipt) or Receipt()
                self._post(c.GroupSurvived(report.group, receipt, report.mono), report.group, True)
            case m.Lost():
                extent = Extent(report.size, report.lines, report.dropped)
                lost = c.GroupLost(
                    report.group,
                    extent,
                    _receipt(report.receipt),
                    "the keeper of its processes died; they were ended",
                )
                self._post(lost, report.group, True)
            case m.Paused():
                self._post(c.GroupPaused(report.group, report.paused), report.group)
            case m.InputTaken():
                future = self._inputs.pop(report.serial, None)
                if future is not None and not future.done():
                    future.set_result(report)
            case m.Hello():
                pass

    def replay(self, group: m.GroupReport) -> None:
        """Where a group stands when a keeper is connected: the same reports once more."""
        output = self.outputs.setdefault(group.group, Output())
        output.extent = Extent(group.size, group.lines, group.dropped)
        for part in (group.started, group.failed, group.exited, group.closed):
            if part is not None:
                self.report(part)
        if group.paused:
            self._post(c.GroupPaused(group.group, True), group.group)
        for end in (group.empty, group.survived, group.lost):
            if end is not None:
                self.report(end)

    def _post(self, command: c.Command, group: int, final: bool = False) -> None:
        then: Callable[[object], None] | None = None
        if final:
            worker = self._is_worker(group)

            def acknowledge(_: object) -> None:
                self._acknowledge(group)
                if worker:
                    self._discarded.append(group)  # nobody reads what it has written
                output = self.outputs.pop(group, None)
                if output is not None:
                    self._wake(output)

            then = acknowledge
        self._loop.post(command, then)

    def _acknowledge(self, group: int) -> None:
        """In a moment, with others: nobody waits for it, and each message wakes the keeper."""
        if not self._acknowledged:
            self._aio.call_later(_ACKNOWLEDGE_SECONDS, self.flush)
        self._acknowledged.append(group)

    def performed(self) -> None:
        """The orders of a decision go out before its replies are made."""
        if self._link is not None:
            self._link.flush()

    def flush(self) -> None:
        """Send what was held back."""
        groups, self._acknowledged = self._acknowledged, []
        if groups:
            self.send(m.Acknowledge(groups))
        groups, self._discarded = self._discarded, []
        if groups:
            self.send(m.Discard(groups))

    def _grew(self, report: m.Grew) -> None:
        output = self.outputs.get(report.group)
        if output is None:
            output = self.outputs[report.group] = Output()
        output.extent = Extent(report.size, report.lines, report.dropped)
        self._wake(output)
        if not output.timed:
            output.timed = True
            self._aio.call_later(_WATERMARK_SECONDS, self._watermark, report.group)

    def _watermark(self, group: int) -> None:
        """Tell how far the output has come: late, so that a short call makes no such event."""
        output = self.outputs.get(group)
        if output is not None:
            output.timed = False
            self._loop.post(c.GroupGrew(group, output.extent))

    def _exited(self, report: m.Exited) -> None:
        extent = Extent(report.size, report.lines, report.dropped)
        output = self.outputs.get(report.group)
        if output is not None:
            output.extent = extent
            output.closed = output.closed or report.end is not None
            self._wake(output)
        exit = Exit(
            code=report.code,
            signal=report.signal,
            core_dumped=report.core_dumped,
            leftover=report.leftover,
            user_seconds=report.user_seconds,
            system_seconds=report.system_seconds,
            max_rss=report.max_rss,
        )
        worker = self._is_worker(report.group)
        if worker and exit.code:
            exit.words = self._workers.last_words(report.group, report.size)
        end = None
        if report.end is not None:
            receipt = _receipt(report.end.receipt)
            end = c.GroupEmpty(report.group, receipt, report.end.mono)
        exited = c.GroupExited(report.group, exit, extent, report.mono, end)
        self._post(exited, report.group, final=end is not None)
        if worker and report.leftover:
            # A worker's own processes have no further use without it.
            self.send(m.Stop(report.group))

    def _is_worker(self, group: int) -> bool:
        owner = self._state.groups.get(group)
        return owner is not None and not owner.call

    def _closed(self, group: int, extent: Extent) -> None:
        output = self.outputs.get(group)
        if output is not None:
            output.closed = True
            output.extent = extent
            self._wake(output)
        self._loop.post(c.GroupClosed(group, extent))

    # ------------------------------------------------------------ output and input

    async def assigned(self, call: Call) -> None:
        """Returns when a queued call has its group, or has ended without one."""
        while call.live and not call.group:
            future: asyncio.Future[None] = self._aio.create_future()
            self._starts.setdefault((call.agent, call.id), []).append(future)
            await future

    def more(self, group: int) -> asyncio.Future[None]:
        """A future for the next change of a live group's output."""
        future: asyncio.Future[None] = self._aio.create_future()
        self.outputs.setdefault(group, Output()).readers.append(future)
        return future

    def _wake(self, output: Output) -> None:
        readers, output.readers = output.readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)

    async def write_input(self, group: int, data: bytes, *, eof: bool) -> m.InputTaken:
        """Hand bytes to a group's standard input; what the keeper says to it."""
        self._input_serial += 1
        serial = self._input_serial
        future: asyncio.Future[m.InputTaken] = self._aio.create_future()
        self._inputs[serial] = future
        self.send(m.Input(group, serial, eof=eof, body=data))
        try:
            return await future
        finally:
            self._inputs.pop(serial, None)

    def resize(self, group: int, rows: int, columns: int) -> None:
        self.send(m.Resize(group, m.TerminalSize(rows, columns)))


_PERFORM: dict[type[Event], Callable[[Groups, Any], None]] = {
    e.CallStarting: Groups._call_starting,
    e.CallStopping: Groups._call_stopping,
    e.LeftoversStopping: Groups._call_stopping,
    e.WorkerStarting: Groups._worker_starting,
    e.AgentStopping: Groups._agent_stopping,
    e.CallEnded: Groups._call_over,
    e.GroupEmptied: Groups._call_over,
    e.CallsForgotten: Groups._calls_forgotten,
}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _receipt(receipt: m.Receipt | None) -> Receipt | None:
    if receipt is None:
        return None
    start = receipt.signals[0].mono if receipt.signals else 0.0
    return Receipt(
        signals=[
            Signalled(s.signal, max(0.0, s.mono - start), s.pids, s.step) for s in receipt.signals
        ],
        ended=receipt.ended,
        escaped=receipt.escaped,
        ended_by=receipt.ended_by,
        proof=receipt.proof,
        survivors=[Survivor(s.pid, s.name, s.reason) for s in receipt.survivors],
        seconds=receipt.seconds,
    )
