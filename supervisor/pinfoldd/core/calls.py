"""Calls: admission, start, background, stop, end. One terminal each, ever."""

from __future__ import annotations

import msgspec

from pinfoldd.core import agents, commands, notices, waits
from pinfoldd.core import events as e
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Call, State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.repeats import is_repeat
from pinfoldd.core.values import (
    CallState,
    Cause,
    Exit,
    Extent,
    Result,
    Surface,
)

SHELL = "shell"
AGENT_START = "agent_start"


def start(d: Decision, c: commands.StartCall) -> None:
    agent = d.state.agent(c.agent)
    if is_repeat(agent, c.call, SHELL, c.digest, Reason.CALL_ID_REUSED):
        return
    d.state.require_live(agent)
    admit_new(d, agent, background=c.background)
    if len(d.state.groups) >= d.settings.live_groups:
        raise Rejected(Reason.GROUP_LIMIT, limit=str(d.settings.live_groups))
    d.emit(
        e.CallQueued(
            agent=agent.id,
            call=c.call,
            tool=SHELL,
            kind="shell",
            number=agent.numbers.get("shell", 0) + 1,
            label=c.label,
            digest=c.digest,
            exclusive=c.exclusive,
            background=c.background,
            budget=None if agent.surface is Surface.NONE else c.budget,
            timeout=c.timeout,
            grace=c.grace,
            kill_leftovers=c.kill_leftovers,
            spec=c.spec,
        )
    )
    d.freed[agent.id] = None


def admit_new(d: Decision, agent: Agent, *, background: bool) -> None:
    """The limits that a new call must pass, before anything happens."""
    if d.state.draining:
        raise Rejected(Reason.DRAINING)
    if background:
        if agent.surface is Surface.NONE:
            raise Rejected(Reason.NO_CONTROL_SURFACE)
        limit = agent.max_tasks
        if not limit and agent.surface is Surface.TASKS:
            limit = d.settings.active_tasks
        if limit and len(agent.live) >= limit:
            active = sum(1 for call_id in agent.live if agent.calls[call_id].background)
            if active >= limit:
                raise Rejected(Reason.TASK_LIMIT, limit=str(limit))
    if len(agent.live) + len(agent.completed) >= d.settings.calls_per_agent:
        raise Rejected(Reason.CALL_LIMIT, limit=str(d.settings.calls_per_agent))


def fill(d: Decision) -> None:
    """Start queued calls where places have become free: the last step of a decision.

    In the middle of one, the place of a call that is cancelled would go to another that is
    about to be cancelled with it.
    """
    while d.freed:
        agent_id = next(iter(d.freed))
        del d.freed[agent_id]
        _fill(d, d.state.agents[agent_id])


def _fill(d: Decision, agent: Agent) -> None:
    """In order, as far as there are places."""
    while agent.queue and agent.is_live and not d.state.stopping:
        call = agent.calls[agent.queue[0]]
        running = agent.running()
        if running and (
            call.exclusive
            or agent.exclusive
            or (agent.max_running and running >= agent.max_running)
        ):
            return
        if call.tool == AGENT_START:
            agents.start_as_call(d, agent, call)
        elif call.timeout is not None and call.timeout <= 0:
            end(d, agent, call, Result(CallState.TIMED_OUT, Cause.TIMEOUT, seconds=0.0))
        else:
            group = d.state.counters.group + 1
            d.emit(e.CallStarting(agent.id, call.id, group=group))


def background_due(d: Decision, agent_id: str, call_id: str) -> None:
    """The foreground budget has passed."""
    call = d.state.call(agent_id, call_id)
    if call is None or call.started_mono is None or call.budget is None:
        return
    # An old timer may find another call of the same name.
    if call.live and not call.background and call.started_mono + call.budget <= d.now.mono:
        d.emit(e.CallBackgrounded(agent_id, call_id))


def timeout_due(d: Decision, agent_id: str, call_id: str) -> None:
    """The running time is used up."""
    call = d.state.call(agent_id, call_id)
    if call is None or call.started_mono is None or call.timeout is None:
        return
    if call.state is CallState.RUNNING and call.started_mono + call.timeout <= d.now.mono:
        stop(d, d.state.agents[agent_id], call, cause="timeout", reason="")


def cancel(d: Decision, c: commands.CancelCall) -> None:
    agent = d.state.agent(c.agent)
    if c.record and is_repeat(agent, c.record, "cancel", c.record_digest, Reason.CALL_ID_REUSED):
        return
    call = agent.calls.get(c.call)
    if call is None:
        if c.call in agent.waits:
            raise Rejected(Reason.CALL_NOT_CANCELLABLE, tool_call_id=c.call)
        if c.call in agent.settled or c.call in agent.records:
            raise Rejected(Reason.CALL_ALREADY_DONE, tool_call_id=c.call)
        raise Rejected(Reason.CANCEL_TARGET_UNKNOWN, tool_call_id=c.call)
    if c.report and call.state is CallState.STOPPING:
        # Somebody else's cancel or the timeout was first; but now its owner knows of the end.
        if not call.reported:
            d.emit(e.TaskReported(agent.id, call.id))
        _record(d, agent, c)
        return
    if call.stop_cause == "cancelled" or (call.live and call.cancel_asked):
        raise Rejected(Reason.CALL_ALREADY_CANCELED, tool_call_id=c.call)
    if not call.live:
        raise Rejected(Reason.CALL_ALREADY_DONE, tool_call_id=c.call)
    d.emit(e.CancelRequested(agent.id, call.id, c.by, c.reason))
    if call.state is CallState.STOPPING:
        # Its time was up before. It is being ended as it is, and its end will say why.
        _record(d, agent, c)
        return
    d.emit(e.Notice(agent.id, call.id))
    _record(d, agent, c)
    if c.report and not call.reported:
        d.emit(e.TaskReported(agent.id, call.id))
    stop(d, agent, call, cause="cancelled", reason=c.reason, grace=c.grace)


def _record(d: Decision, agent: Agent, c: commands.CancelCall) -> None:
    """That it was accepted, for whoever sends it again."""
    if c.record:
        d.emit(e.ToolRecorded(agent.id, c.record, "cancel", c.record_digest))


def stop(
    d: Decision,
    agent: Agent,
    call: Call,
    *,
    cause: str,
    reason: str,
    grace: float | None = None,
) -> None:
    """Begin to end a call. Queued: it is over at once and nothing was started."""
    if call.state is CallState.QUEUED:
        result = Result(CallState.CANCELLED, Cause.CANCELLED, cancel_reason=reason)
        end(d, agent, call, result)
    elif call.state is CallState.RUNNING:
        own = call.grace if grace is None else grace
        d.emit(e.CallStopping(agent.id, call.id, cause, reason, own))
        if call.sub_agent:
            agents.stop(d, d.state.agents[call.sub_agent], reason or cause, grace)


def end(
    d: Decision,
    agent: Agent,
    call: Call,
    result: Result,
    *,
    group_live: bool = False,
) -> None:
    """The one terminal of a call, and all that follows from it."""
    result.cancel_reason = result.cancel_reason or call.stop_reason
    d.emit(e.CallEnded(agent.id, call.id, result, call.background, group_live))
    d.memory.ended.append((agent.id, call.id))
    waits.call_ended(d, agent, call)
    notices.owe(d, agent, call)
    waits.check_bare(d, agent)
    d.freed[agent.id] = None
    agents.check_stopped(d, agent)


# ------------------------------------------------------------ reports of the keeper


def _owned(state: State, group: int) -> tuple[Agent, Call] | None:
    owner = state.groups.get(group)
    if owner is None or not owner.call:
        return None
    agent = state.agents.get(owner.agent)
    if agent is None or owner.call not in agent.calls:
        return None
    return agent, agent.calls[owner.call]


def started(d: Decision, c: commands.GroupStarted) -> None:
    if (owned := _owned(d.state, c.group)) is None:
        agents.worker_started(d, c)
        return
    agent, call = owned
    if call.live and not call.pid:
        d.emit(e.CallStarted(agent.id, call.id, c.pid, c.mono, c.wall))


def failed(d: Decision, c: commands.GroupFailed) -> None:
    """Nothing was started. What has been seen to run did not fail to start."""
    if (owned := _owned(d.state, c.group)) is None:
        agents.worker_failed(d, c.group, c.reason)
        return
    agent, call = owned
    if not call.live or call.pid:
        return
    if call.stop_cause == "cancelled":
        result = Result(CallState.CANCELLED, Cause.CANCELLED)
    else:
        result = Result(CallState.FAILED, Cause.START_ERROR, error=c.reason)
    end(d, agent, call, result)


def grew(d: Decision, c: commands.GroupGrew) -> None:
    if (owned := _owned(d.state, c.group)) is not None:
        agent, call = owned
        if c.output.size > call.output.size and not call.closed:
            d.emit(e.OutputGrew(agent.id, call.id, c.output))


def paused(d: Decision, c: commands.GroupPaused) -> None:
    if (owned := _owned(d.state, c.group)) is not None:
        agent, call = owned
        if call.live and call.paused != c.paused:
            d.emit(e.CallPaused(agent.id, call.id, c.paused))


def exited(d: Decision, c: commands.GroupExited) -> None:
    if (owned := _owned(d.state, c.group)) is None:
        agents.worker_leader_exited(d, c.group, c.exit)
        return
    agent, call = owned
    if call.live and call.exit_seen is None:
        _leader_exited(d, agent, call, c)
    if c.end is not None:
        emptied(d, c.end)


def _leader_exited(d: Decision, agent: Agent, call: Call, c: commands.GroupExited) -> None:
    output = _later(call.output, c.output)
    if call.state is CallState.STOPPING:
        if c.end is None:
            d.emit(e.LeaderExited(agent.id, call.id, c.exit, output))
        else:
            _stopped(d, agent, call, c.exit, output, c.end)
        return
    cause = Cause.UNKNOWN
    if c.exit.code is not None:
        cause = Cause.EXIT
    elif c.exit.signal is not None:
        cause = Cause.SIGNAL
    result = Result(
        CallState.SUCCEEDED,
        cause,
        exit=c.exit,
        seconds=seconds(call, c.mono),
        output=output,
    )
    left = c.exit.leftover > 0
    end(d, agent, call, result, group_live=left)
    if left and call.kill_leftovers:
        d.emit(e.LeftoversStopping(agent.id, call.id, call.grace))


def closed(d: Decision, c: commands.GroupClosed) -> None:
    if (owned := _owned(d.state, c.group)) is not None:
        agent, call = owned
        if not call.closed:
            output = _later(call.output, c.output)
            d.emit(e.OutputGrew(agent.id, call.id, output, closed=True))


def emptied(d: Decision, c: commands.GroupEmpty) -> None:
    if (owned := _owned(d.state, c.group)) is None:
        agents.worker_emptied(d, c.group)
        return
    agent, call = owned
    if call.state is CallState.STOPPING:
        _stopped(d, agent, call, call.exit_seen, call.output, c)
    elif not call.live and call.group_live:
        d.emit(e.GroupEmptied(agent.id, call.id, c.receipt))
        agents.check_stopped(d, agent)


def _stopped(
    d: Decision,
    agent: Agent,
    call: Call,
    exit: Exit | None,
    output: Extent,
    c: commands.GroupEmpty,
) -> None:
    timed_out = call.stop_cause == "timeout"
    result = Result(
        CallState.TIMED_OUT if timed_out else CallState.CANCELLED,
        Cause.TIMEOUT if timed_out else Cause.CANCELLED,
        exit=_with_leftovers(exit, 0),
        seconds=seconds(call, c.mono),
        output=output,
        receipt=c.receipt,
    )
    end(d, agent, call, result)


def _with_leftovers(exit: Exit | None, count: int) -> Exit | None:
    """What the leader left behind was ended too: what counts is what is left now."""
    return None if exit is None else msgspec.structs.replace(exit, leftover=count)


def survived(d: Decision, c: commands.GroupSurvived) -> None:
    """Processes could not be ended. The place is freed and the pids are named; silence or an
    endless `stopping` would be worse."""
    if (owned := _owned(d.state, c.group)) is None:
        agents.worker_exited(d, c.group, None, "could not be ended")
        return
    agent, call = owned
    if call.live:
        result = Result(
            CallState.FAILED,
            Cause.TIMEOUT if call.stop_cause == "timeout" else Cause.CANCELLED,
            exit=_with_leftovers(call.exit_seen, len(c.receipt.survivors)),
            seconds=seconds(call, c.mono),
            output=call.output,
            receipt=c.receipt,
            error="processes could not be ended",
        )
        end(d, agent, call, result)
    elif call.group_live:
        d.emit(e.GroupEmptied(agent.id, call.id, c.receipt))
        agents.check_stopped(d, agent)


def lost(d: Decision, c: commands.GroupLost) -> None:
    if (owned := _owned(d.state, c.group)) is None:
        agents.worker_exited(d, c.group, None, c.reason)
        return
    agent, call = owned
    if call.live:
        result = Result(
            CallState.LOST,
            Cause.UNKNOWN,
            exit=call.exit_seen,
            seconds=seconds(call, d.now.mono),
            output=_later(call.output, c.output),
            receipt=c.receipt,
            error=c.reason,
        )
        end(d, agent, call, result)
    elif call.group_live:
        d.emit(e.GroupEmptied(agent.id, call.id, c.receipt))
        agents.check_stopped(d, agent)


def _later(known: Extent, told: Extent) -> Extent:
    """Output only grows: a report that was overtaken takes nothing back."""
    return told if told.size >= known.size else known


def seconds(call: Call, mono: float) -> float | None:
    """How long it ran. The clock may have begun anew since: then not at all."""
    if call.started_mono is None:
        return None
    return max(0.0, mono - call.started_mono)
