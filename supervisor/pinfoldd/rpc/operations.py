"""What both doors do, the typed services and the tools: submit, wait for the answer, let go.

An operation is a view. When the RPC that asked for it ends, only the view ends; a wait that
nobody looks at any more is cancelled, and consumes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Self

from pinfoldd.config import Config
from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core import tasks
from pinfoldd.core.model import Agent, Call, State, TaskReadRecord
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import Receipt, Surface, WaitMode, WaitOutcome
from pinfoldd.groups import Groups
from pinfoldd.loop import Loop
from pinfoldd.outputs import Outputs
from pinfoldd.render import task_output
from pinfoldd.render.shell_output import Chunk, Piece
from pinfoldd.render.tasks import status_line

READ_BYTES = 256 * 1024  # of a task's output at a time


class Settled(NamedTuple):
    """The decision about one wait."""

    mode: WaitMode
    outcome: WaitOutcome
    calls: list[str]
    advice: bool
    revision: int


class TaskDelta(NamedTuple):
    """One answered read of a task."""

    call: Call
    text: str
    cursor: int
    timed_out: bool
    status: str
    left: int  # bytes of an ended task that this read has not come to


class Endings:
    """The receipts of groups that are ended together: of calls, and of what outlived theirs."""

    def __init__(self, loop: Loop, calls: Sequence[Call]) -> None:
        self._loop = loop
        self._calls = calls
        self._emptied = [
            (key, loop.subscribe(key)) for key in (("empty", c.agent, c.id) for c in calls)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for key, future in self._emptied:
            self._loop.unsubscribe(key, future)
            future.cancel()

    def receipts(self) -> list[Receipt]:
        """Of those that have ended by now."""
        found = [call.result.receipt for call in self._calls if call.result is not None]
        for _, future in self._emptied:
            if future.done():
                event = future.result()
                assert isinstance(event, e.GroupEmptied)
                found.append(event.receipt)
        return [receipt for receipt in found if receipt is not None]


class Operations:
    """Shared by all services of one supervisor."""

    def __init__(self, loop: Loop, groups: Groups, outputs: Outputs, config: Config) -> None:
        self.loop = loop
        self.groups = groups
        self.outputs = outputs
        self.config = config
        self._attached: dict[tuple[str, str], int] = {}  # views of each wait

    @property
    def state(self) -> State:
        return self.loop.state

    @property
    def parked_waits(self) -> int:
        return len(self._attached)

    # ------------------------------------------------------------ calls

    async def run(self, command: c.StartCall, *, detach: bool = False) -> Call:
        """Start (or attach to) a call and wait until it has ended or is in the background."""
        if not self.groups.connected:
            raise Rejected(Reason.KEEPER_UNAVAILABLE)
        key = ("answer", command.agent, command.call)
        answer = self.loop.subscribe(key)
        try:
            await self.loop.submit(command)
            call = self._call(command.agent, command.call)
            if not detach and call.live and not call.background:
                await answer
            return call
        finally:
            self.loop.unsubscribe(key, answer)

    def _call(self, agent_id: str, call_id: str) -> Call:
        call = self.state.call(agent_id, call_id)
        if call is None:
            raise Rejected(Reason.CALL_UNKNOWN, tool_call_id=call_id)
        return call

    def find_call(self, agent_id: str, name: str) -> Call:
        """By call id or task id."""
        agent = self.state.agent(agent_id)
        call = agent.calls.get(name)
        if call is None and name in agent.tasks:
            call = agent.calls.get(agent.tasks[name])
        if call is None:
            raise Rejected(Reason.CALL_UNKNOWN, tool_call_id=name)
        return call

    # ------------------------------------------------------------ waits

    async def wait(self, command: c.StartWait) -> Settled:
        """Raises Rejected also for a wait that was installed and ended as an error."""
        known = self.state.agents.get(command.agent)
        settled = known.settled.get(command.wait) if known is not None else None
        if settled is not None and settled.digest == command.digest:
            if settled.reason is not None:
                raise Rejected(settled.reason, **settled.details)
            return Settled(
                settled.mode, settled.outcome, settled.calls, settled.advice, settled.revision
            )
        key = ("wait", command.agent, command.wait)
        held = (command.agent, command.wait)
        answer = self.loop.subscribe(key)
        self._attached[held] = self._attached.get(held, 0) + 1
        settled_event: e.Event | None = None
        try:
            for stamp, event in await self.loop.submit(command):
                if type(event) is e.WaitSettled and event.wait == command.wait:
                    return _settled(event, stamp.revision)
            settled_event = await answer
        finally:
            self.loop.unsubscribe(key, answer)
            self._attached[held] -= 1
            if not self._attached[held]:
                del self._attached[held]
                if settled_event is None:
                    self.loop.post(c.CancelWait(command.agent, command.wait))
        assert isinstance(settled_event, e.WaitSettled)
        agent = self.state.agents.get(command.agent)
        record = agent.settled.get(command.wait) if agent is not None else None
        if settled_event.outcome is WaitOutcome.CANCELLED:
            if agent is None or not agent.is_live:
                raise Rejected(Reason.AGENT_STOPPED, agent_id=command.agent)
            raise Rejected(Reason.WAIT_CANCELLED, wait_id=command.wait)
        return _settled(settled_event, record.revision if record else self.state.revision)

    # ------------------------------------------------------------ turns

    async def next_turn(self, command: c.NextTurn, timeout: float | None) -> Agent | None:
        """The agent, in a turn; None if the timeout passed first."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            key = ("input", command.agent)
            arrived = self.loop.subscribe(key)
            try:
                await self.loop.submit(command)
                agent = self.state.agents[command.agent]
                if agent.turn:
                    return agent
                left = None
                if deadline is not None:
                    left = max(0.0, deadline - asyncio.get_running_loop().time())
                await asyncio.wait_for(arrived, left)
            except TimeoutError:
                return None
            finally:
                self.loop.unsubscribe(key, arrived)

    # ------------------------------------------------------------ agents

    async def stop_agent(self, command: c.StopAgent) -> tuple[int, int]:
        """Returns when nothing of the agent is left: how many agents and calls this stop ended.
        Of stops at the same time each counts what it was first to end."""
        key = ("stopped", command.agent)
        stopped = self.loop.subscribe(key)
        try:
            decided = await self.loop.submit(command)
            if self.state.agents[command.agent].stopped_wall is None:
                await stopped
            tree = {agent.id for agent in self.state.below(command.agent)}
            agents, calls = set(), set()
            for _, event in decided:
                if isinstance(event, e.AgentStopping):
                    agents.add(event.agent)
                elif isinstance(event, e.CallStopping | e.CallEnded) and event.agent in tree:
                    calls.add((event.agent, event.call))
            return len(agents), len(calls)
        finally:
            self.loop.unsubscribe(key, stopped)

    # ------------------------------------------------------------ tasks

    async def read_task(
        self, agent_id: str, task_id: str, read_id: str, timeout: float | None
    ) -> TaskDelta:
        """`timeout`: seconds to wait for the end first; None: do not wait."""
        call = tasks.find(self.state, agent_id, task_id)
        if (record := call.task_read(read_id)) is not None:
            return self._repeat(call, record)
        if timeout is None or not call.live:
            return await self._read(call, read_id, timed_out=False)
        # Whatever ends this RPC, and be it before the wait has begun: the wait is over then,
        # and a notice that it has kept back is owed.
        begun = self.loop.submit(c.BeginTaskWait(agent_id, call.id))
        try:
            await begun
            return await self._read(
                call, read_id, timed_out=not await self._ended_within(call, timeout)
            )
        finally:
            self.loop.post(c.EndTaskWait(agent_id, call.id))

    async def _ended_within(self, call: Call, timeout: float) -> bool:
        key = ("end", call.agent, call.id)
        ended = self.loop.subscribe(key)
        try:
            if call.live:
                await asyncio.wait_for(ended, timeout)
        except TimeoutError:
            return not call.live
        finally:
            self.loop.unsubscribe(key, ended)
        return True

    async def _read(self, call: Call, read_id: str, *, timed_out: bool) -> TaskDelta:
        while True:
            if (record := call.task_read(read_id)) is not None:
                return self._repeat(call, record)  # sent again while the first waited
            live = call.live
            start = call.cursor
            if call.kind == "agent":
                end, text = 0, task_output.final_output(call)
            else:
                chunks = self.outputs.between(call, start, READ_BYTES)
                stop = self._readable(call)
                kept = _before(chunks, stop)
                all_read = not kept or kept[-1].offset + len(kept[-1].data) >= stop
                end, text = task_output.delta(kept, start, final=not live and all_read)
            status = status_line(call)
            try:
                await self.loop.submit(
                    c.ReadTask(call.agent, call.id, read_id, start, end, timed_out, live, status)
                )
            except tasks.CursorMoved:
                continue
            return TaskDelta(call, text, end, timed_out and live, status, _left(call, end, live))

    def _readable(self, call: Call) -> int:
        if call.result is not None:
            return call.result.output.size
        return self.outputs.standing(call).extent.size

    def _repeat(self, call: Call, record: TaskReadRecord) -> TaskDelta:
        if call.kind == "agent":
            text = "" if record.live else task_output.final_output(call)
        else:
            chunks = self.outputs.between(call, record.start, record.end - record.start)
            kept = _before(chunks, record.end)
            text = task_output.delta(kept, record.start, final=True).text
        left = _left(call, record.end, record.live)
        return TaskDelta(call, text, record.end, record.timed_out, record.status, left)

    def task_wait(self, asked: float | None) -> float:
        """How long a waiting read waits, in seconds: asked or the default, within the cap."""
        settings = self.config.tasks
        if asked is None:
            asked = settings.wait_timeout_ms / 1000
        return min(asked, settings.max_wait_timeout_ms / 1000)

    # ------------------------------------------------------------ defaults

    def budget(self, agent_id: str) -> float | None:
        agent = self.state.agents.get(agent_id)
        if agent is not None and agent.surface is Surface.NONE:
            return None
        return self.config.shell.foreground_budget


def _left(call: Call, end: int, live: bool) -> int:
    return 0 if live or call.result is None else max(0, call.result.output.size - end)


def _settled(event: e.WaitSettled, revision: int) -> Settled:
    if event.outcome is WaitOutcome.ERROR and event.reason is not None:
        raise Rejected(event.reason, **event.details)
    return Settled(event.mode, event.outcome, event.calls, event.advice, revision)


def _before(chunks: Sequence[Chunk], stop: int) -> list[Chunk]:
    """Only what lies before an offset: later output is not part of the read."""
    kept: list[Chunk] = []
    for chunk in chunks:
        if chunk.offset >= stop:
            break
        data = chunk.data[: max(0, stop - chunk.offset)]
        missing = min(chunk.missing, max(0, stop - chunk.offset))
        kept.append(Piece(chunk.stream, chunk.offset, data, missing))
    return kept
