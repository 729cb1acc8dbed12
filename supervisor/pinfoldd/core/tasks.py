"""The task tools' side of a call: reads with a cursor, and waiting reads."""

from __future__ import annotations

from pinfoldd.core import commands, notices
from pinfoldd.core import events as e
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Call, State
from pinfoldd.core.reasons import Reason, Rejected


def find(state: State, agent_id: str, task_id: str) -> Call:
    """The owner's task of this id. Another agent's is unknown; a forgotten one is expired."""
    agent = state.agent(agent_id)
    call_id = agent.tasks.get(task_id)
    if call_id is not None:
        return agent.calls[call_id]
    kind, _, number = task_id.rpartition("-")
    if (
        number.isascii()
        and number.isdigit()
        and len(number) <= 12
        and number[0] != "0"
        and int(number) <= agent.numbers.get(kind, 0)
    ):
        raise Rejected(Reason.TASK_EXPIRED, task_id=task_id)
    raise Rejected(Reason.TASK_UNKNOWN, task_id=task_id)


class CursorMoved(Exception):
    """Another read of the same task was faster, or it has ended meanwhile: look again."""


def read(d: Decision, c: commands.ReadTask) -> None:
    agent, call = _task(d, c.agent, c.call)
    if call.task_read(c.read) is not None:
        return
    if c.start != call.cursor or c.live not in (None, call.live):
        raise CursorMoved
    told = not call.live  # its status: the rest of a long output needs no notice
    d.emit(
        e.TaskRead(
            agent=agent.id,
            call=call.id,
            read=c.read,
            start=c.start,
            end=c.end,
            live=call.live,
            consumed=told,
            timed_out=c.timed_out,
            status=c.status,
        )
    )
    if told:
        notices.suppress(d, agent, call)


def begin_wait(d: Decision, c: commands.BeginTaskWait) -> None:
    agent, call = _task(d, c.agent, c.call)
    d.memory.task_waits[agent.id, call.id] += 1


def end_wait(d: Decision, c: commands.EndTaskWait) -> None:
    """The reader has read or is gone. Gone without a read: the notice is owed after all."""
    key = (c.agent, c.call)
    reading = d.memory.task_waits
    reading[key] -= 1
    if reading[key] <= 0:  # below: it had begun with the daemon before
        del reading[key]
        agent = d.state.agents.get(c.agent)
        call = agent.calls.get(c.call) if agent else None
        if agent is not None and call is not None:
            notices.owe(d, agent, call)


def _task(d: Decision, agent_id: str, call_id: str) -> tuple[Agent, Call]:
    agent = d.state.agent(agent_id)
    call = agent.calls.get(call_id)
    if call is None:
        raise Rejected(Reason.TASK_UNKNOWN, task_id=call_id)
    return agent, call
