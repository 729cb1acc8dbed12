"""Agents: the tree, their workers, stopping. What is below an agent ends with it."""

from __future__ import annotations

import msgspec

from pinfoldd.core import calls, commands, notices, retention, waits
from pinfoldd.core import events as e
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Call
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.repeats import is_repeat
from pinfoldd.core.settings import Role
from pinfoldd.core.values import (
    AgentState,
    CallState,
    Cause,
    Exit,
    PromptKind,
    Result,
)


class ChildSpec(msgspec.Struct, array_like=True):
    """What a sub-agent starts with, kept while its call waits for a place."""

    child: str
    prompt: str
    role: str
    label: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ChildSpec).decode


def open_root(d: Decision, c: commands.OpenAgent) -> None:
    known = d.state.agents.get(c.agent)
    if known is not None:
        gone = known.stopped_wall is not None
        if known.parent or (known.digest != c.digest and not gone):
            raise Rejected(Reason.AGENT_ID_REUSED, agent_id=c.agent)
        if known.is_live:
            return
        if not gone:
            raise Rejected(Reason.AGENT_STOPPED, agent_id=c.agent)
    _admit_agent(d)
    if known is not None:
        retention.forget_tree(d, known)  # another agent of the same name: nothing is inherited
    d.emit(
        e.AgentOpened(
            agent=c.agent,
            parent="",
            surface=c.surface,
            label=c.label,
            digest=c.digest,
            max_running=c.max_running,
            max_tasks=c.max_tasks,
            cwd=c.cwd,
            env=c.env,
            hidden_tools=c.hidden_tools,
        )
    )


def _admit_agent(d: Decision) -> None:
    if d.state.draining:
        raise Rejected(Reason.DRAINING)
    if len(d.state.agents) >= d.settings.live_agents:
        live = sum(1 for agent in d.state.agents.values() if agent.is_live)
        if live >= d.settings.live_agents:
            raise Rejected(Reason.AGENT_LIMIT, limit=str(d.settings.live_agents))


def start_child(d: Decision, c: commands.StartAgent) -> None:
    """`agent_start`: a watched sub-agent, or (as_call) a background call of the starter."""
    starter = d.state.agent(c.agent)
    if is_repeat(starter, c.call, calls.AGENT_START, c.digest, Reason.CALL_ID_REUSED):
        return
    d.state.require_live(starter)
    if c.role not in d.settings.roles:
        raise Rejected(Reason.ROLE_UNKNOWN, role=c.role)
    if starter.depth + 1 > d.settings.agent_depth:
        raise Rejected(Reason.AGENT_DEPTH_LIMIT, limit=str(d.settings.agent_depth))
    _admit_agent(d)
    if c.child in d.state.agents:
        raise Rejected(Reason.AGENT_ID_REUSED, agent_id=c.child)
    spec = ChildSpec(c.child, c.prompt, c.role, c.label)
    if not c.as_call:
        d.emit(e.ToolRecorded(starter.id, c.call, calls.AGENT_START, c.digest, c.child))
        _open_child(d, starter, spec, call="")
        d.emit(e.WatchChanged(starter.id, c.child, True))
        return
    calls.admit_new(d, starter, background=True)
    d.emit(
        e.CallQueued(
            agent=starter.id,
            call=c.call,
            tool=calls.AGENT_START,
            kind="agent",
            number=starter.numbers.get("agent", 0) + 1,
            label=c.label,
            digest=c.digest,
            exclusive=False,
            background=True,
            budget=None,
            timeout=None,
            grace=2.0,
            kill_leftovers=False,
            spec=_encode(spec),
        )
    )
    d.freed[starter.id] = None


def start_as_call(d: Decision, starter: Agent, call: Call) -> None:
    """A place is free for an `agent_start` call."""
    if call.spec is None:
        raise AssertionError(f"call {call.id} was queued without a spec")
    spec = _decode(call.spec)
    if spec.child in d.state.agents:
        taken = Result(
            CallState.FAILED, Cause.START_ERROR, error=f"agent id {spec.child} is in use"
        )
        calls.end(d, starter, call, taken)
        return
    d.emit(e.CallStarting(starter.id, call.id, sub_agent=spec.child))
    _open_child(d, starter, spec, call=call.id)


def _open_child(d: Decision, starter: Agent, spec: ChildSpec, *, call: str) -> None:
    role = d.settings.roles.get(spec.role, Role())
    d.emit(
        e.AgentOpened(
            agent=spec.child,
            parent=starter.id,
            surface=role.surface,
            label=spec.label,
            digest="",
            role=spec.role,
            max_running=role.max_running,
            cwd=starter.cwd,
            env=starter.env,
            call=call,
        )
    )
    child = d.state.agents[spec.child]
    notices.queue(d, child, PromptKind.START, spec.prompt, activating=True, from_agent=starter.id)
    start_worker(d, child)


# ------------------------------------------------------------ stopping


def stop_tree(d: Decision, c: commands.StopAgent) -> None:
    agent = d.state.agent(c.agent)
    if agent.is_live:
        stop(d, agent, c.reason, c.grace)


def stop(
    d: Decision,
    agent: Agent,
    reason: str,
    grace: float | None = None,
    *,
    failed: bool = False,
) -> None:
    """Begin to end an agent and all below it. It is stopped once nothing of it is left."""
    tree = [a for a in d.state.below(agent.id) if a.is_live]
    for member in tree:
        d.emit(e.AgentStopping(member.id, reason, failed and member is agent))
    # Leaves first: a call of the parent that stands for a child ends after the child.
    for member in reversed(tree):
        _end_work(d, member, reason, grace)
        for call_id in list(member.leftovers):
            call = member.calls[call_id]
            d.emit(e.LeftoversStopping(member.id, call_id, call.grace if grace is None else grace))
        check_stopped(d, member)


def _end_work(d: Decision, agent: Agent, reason: str, grace: float | None) -> None:
    """End the waits and calls of an agent."""
    waits.cancel_all(d, agent)
    for call_id in list(agent.live):
        call = agent.calls[call_id]
        if call.live:
            calls.stop(d, agent, call, cause="cancelled", reason=reason, grace=grace)


def check_stopped(d: Decision, agent: Agent) -> None:
    """The last of a stopping agent may be gone."""
    if agent.state is not AgentState.STOPPING or agent.live or agent.leftovers:
        return
    if agent.worker is not None and agent.worker.running:
        return
    if any(
        d.state.agents[child].state in (AgentState.LIVE, AgentState.STOPPING)
        for child in agent.children
    ):
        return
    watchers = list(agent.watchers)
    d.emit(e.AgentStopped(agent.id, agent.stop_reason, agent.failing))
    for watcher in watchers:
        _tell(d, watcher, agent, "failed" if agent.failing else "stopped")
    parent = d.state.agents.get(agent.parent)
    if parent is None:
        return
    call = parent.calls.get(agent.call) if agent.call else None
    if call is not None and call.live:
        _call_gone(d, parent, call, agent)
    check_stopped(d, parent)


def _tell(d: Decision, watcher_id: str, agent: Agent, what: str) -> None:
    watcher = d.state.agents[watcher_id]
    if watcher.is_live:
        notices.queue(
            d,
            watcher,
            PromptKind.WATCH_STATE,
            agent.stop_reason,
            activating=what == "failed",
            from_agent=agent.id,
            detail=what,
        )


def _call_gone(d: Decision, parent: Agent, call: Call, agent: Agent) -> None:
    """A sub-agent that is a call has stopped without an answer."""
    seconds = calls.seconds(call, d.now.mono)
    if call.stop_cause == "cancelled" or not agent.failing:
        result = Result(CallState.CANCELLED, Cause.CANCELLED, seconds=seconds, answer=agent.partial)
    else:
        result = Result(
            CallState.FAILED,
            Cause.UNKNOWN,
            seconds=seconds,
            error=agent.stop_reason,
            answer=agent.partial,
        )
    calls.end(d, parent, call, result)


# ------------------------------------------------------------ workers


def _with_worker(d: Decision, group: int) -> Agent | None:
    owner = d.state.groups.get(group)
    agent = d.state.agents.get(owner.agent) if owner else None
    if agent is None or agent.worker is None or agent.worker.group != group:
        return None
    return agent if agent.worker.running else None


def worker_started(d: Decision, c: commands.GroupStarted) -> None:
    agent = _with_worker(d, c.group)
    if agent is not None and agent.worker is not None and not agent.worker.pid:
        d.emit(e.WorkerStarted(agent.id, c.pid))


def worker_failed(d: Decision, group: int, reason: str) -> None:
    agent = _with_worker(d, group)
    if agent is not None and agent.worker is not None and not agent.worker.pid:
        worker_exited(d, group, None, reason)


def worker_leader_exited(d: Decision, group: int, exit: Exit) -> None:
    if group in d.memory.worker_exits:
        return
    if exit.leftover == 0:
        worker_exited(d, group, exit, "")
    elif _with_worker(d, group) is not None:
        # Its leftovers are being ended (the loop does so for every worker): it is gone when
        # they are, or a stopped agent would leave processes behind.
        d.memory.worker_exits[group] = exit


def worker_emptied(d: Decision, group: int) -> None:
    worker_exited(d, group, None, "")


def worker_exited(d: Decision, group: int, exit: Exit | None, reason: str) -> None:
    """A worker ended: as asked, or its agent fails, or it is started again."""
    exit = exit or d.memory.worker_exits.pop(group, None)
    agent = _with_worker(d, group)
    if agent is None or agent.worker is None:
        return
    reason = reason or _exit_reason(exit)
    if not agent.is_live:
        d.emit(e.WorkerExited(agent.id, exit, reason))
        check_stopped(d, agent)
        return
    call = d.state.call(agent.parent, agent.call)
    unanswered = call is not None and call.live
    clean = exit is not None and exit.code == 0 and not agent.turn and not unanswered
    role = role_of(d, agent)
    now = d.now.mono
    # The clock may have begun anew since: what it says of an earlier boot is in the future.
    restarts = [t for t in agent.worker.starts[1:] if now - role.restart_window < t <= now]
    # As OTP's restart intensity: one more than `restarts` within the window is a fault that
    # starting again does not mend.
    if not clean and not d.state.draining and len(restarts) < role.restarts:
        restart_at = d.now.mono + role.restart_delay
        d.emit(e.WorkerExited(agent.id, exit, reason, restart_at))
        # The next one knows nothing of what was under way, and begins the turn again.
        for child in list(agent.children):
            if d.state.agents[child].is_live:
                stop(d, d.state.agents[child], reason)
        _end_work(d, agent, reason, None)
        for watcher in list(agent.watchers):
            _tell(d, watcher, agent, f"restarting: {reason}")
        d.memory.arm(restart_at, "restart", agent.id, "")
        return
    d.emit(e.WorkerExited(agent.id, exit, reason))
    stop(d, agent, reason, failed=not clean)


def _exit_reason(exit: Exit | None) -> str:
    if exit is None or (exit.code is None and exit.signal is None):
        return "worker ended, its status is not known"
    if exit.signal is not None:
        return f"worker ended by signal {exit.signal}"
    reason = f"worker exited with code {exit.code}"
    return f"{reason}: {exit.words}" if exit.code and exit.words else reason


def restart_due(d: Decision, agent_id: str) -> None:
    agent = d.state.agents.get(agent_id)
    if agent is None or not agent.is_live or agent.worker is None or d.state.stopping:
        return
    if agent.worker.restart_at is not None and agent.worker.restart_at <= d.now.mono:
        start_worker(d, agent)


def role_of(d: Decision, agent: Agent) -> Role:
    return d.settings.roles.get(agent.role, Role())


def start_worker(d: Decision, agent: Agent) -> None:
    if agent.turn and (agent.taken or agent.delivery):
        # What the last one was told has gone with it; this one begins the turn again.
        d.emit(e.PromptsReturned(agent.id))
    d.emit(e.WorkerStarting(agent.id, d.state.counters.group + 1))
