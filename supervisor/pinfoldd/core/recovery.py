"""A daemon begins or ends, or a keeper is replaced: bring the state and the groups together."""

from __future__ import annotations

from operator import itemgetter

from pinfoldd.core import agents, calls, commands, notices, waits
from pinfoldd.core import events as e
from pinfoldd.core.decision import Decision, Memory, Timer
from pinfoldd.core.model import Call, State
from pinfoldd.core.values import CallState, Cause, Result

LOST = "the processes were lost with the machine or their keeper"


def arm_call(memory: Memory, call: Call) -> None:
    """Set the deadlines of a started call."""
    if call.started_mono is None:
        return
    if call.budget is not None and not call.background:
        memory.arm(call.started_mono + call.budget, "budget", call.agent, call.id)
    if call.timeout is not None and call.state is CallState.RUNNING:
        memory.arm(call.started_mono + call.timeout, "timeout", call.agent, call.id)


def rearm(state: State, memory: Memory) -> None:
    """Make the timers of a replayed state anew."""
    ended: list[tuple[float, tuple[str, str]]] = []
    for agent in state.agents.values():
        for call in agent.calls.values():
            if call.ended_wall is None:
                arm_call(memory, call)
            else:
                ended.append((call.ended_wall, (agent.id, call.id)))
        for wait in agent.waits.values():
            if wait.deadline is not None:
                memory.arm(wait.deadline, "wait", agent.id, wait.id)
        if agent.worker is not None and agent.worker.restart_at is not None:
            memory.arm(agent.worker.restart_at, "restart", agent.id, "")
    ended.sort(key=itemgetter(0))
    memory.ended.extend(key for _, key in ended)
    memory.arm(0.0, "sweep", "", "")


def prune(state: State, memory: Memory) -> None:
    """Forget deadlines of what has ended before them, or they would pile up: a call with a
    limit of a day leaves its own behind after a second."""
    memory.prune(lambda timer: needed(state, timer))


def needed(state: State, timer: Timer) -> bool:
    """Whether there is still something for this deadline to decide."""
    agent = state.agents.get(timer.agent)
    match timer.kind:
        case "budget" | "timeout":
            call = agent.calls.get(timer.id) if agent else None
            if call is None or not call.live:
                return False
            return timer.kind == "timeout" or not call.background
        case "wait":
            wait = agent.waits.get(timer.id) if agent else None
            return wait is not None and wait.deadline == timer.mono
        case "restart":
            worker = agent.worker if agent else None
            return worker is not None and worker.restart_at == timer.mono
        case _:
            return True


def recover(d: Decision, c: commands.Recover) -> None:
    """The first decision of a daemon: waits whose RPCs are gone end, notices that are owed
    are queued, and calls whose processes nobody has are lost."""
    live = [a.calls[i] for a in d.state.agents.values() for i in a.live]
    lost = [call for call in live if _is_lost(call, c.known)]
    running = sum(1 for call in live if call.state is not CallState.QUEUED)
    d.emit(e.SupervisorStarted("", c.version, running - len(lost), len(lost)))
    for agent in list(d.state.agents.values()):
        waits.cancel_all(d, agent)
    _reconcile(d, c.known)
    for agent in list(d.state.agents.values()):
        for call_id in list(agent.completed):
            notices.owe(d, agent, agent.calls[call_id])
        d.freed[agent.id] = None
        worker = agent.worker
        if agent.is_live and worker is not None and worker.restart_at is not None:
            agents.start_worker(d, agent)  # its moment may be one of another boot's clock
        agents.check_stopped(d, agent)


def reconcile(d: Decision, c: commands.Reconcile) -> None:
    _reconcile(d, c.known)


def _is_lost(call: Call, known: frozenset[int]) -> bool:
    """Started (or perhaps started) in a group that no keeper knows. A call whose spawn was
    decided but never reached a keeper still has its spec: it is started now."""
    return bool(call.group) and call.group not in known and call.spec is None


def _reconcile(d: Decision, known: frozenset[int]) -> None:
    for group, owner in list(d.state.groups.items()):
        if group in known:
            continue
        agent = d.state.agents[owner.agent]
        if not owner.call:
            if agent.is_live and agent.worker is not None and not agent.worker.pid:
                # Its spawn never reached a keeper. The order is given again.
                d.emit(e.WorkerExited(agent.id, None, "not started", None))
                agents.start_worker(d, agent)
            else:
                agents.worker_exited(d, group, None, LOST)
            continue
        call = agent.calls[owner.call]
        if call.live and _is_lost(call, known):
            calls.end(
                d,
                agent,
                call,
                Result(CallState.LOST, Cause.UNKNOWN, output=call.output, error=LOST),
            )
        elif call.live and call.state is CallState.STOPPING:
            # Its spawn never reached a keeper: nothing was started, nothing is left.
            calls.end(d, agent, call, Result(CallState.CANCELLED, Cause.CANCELLED))
        elif not call.live and call.group_live:
            d.emit(e.GroupEmptied(agent.id, call.id, None))
            agents.check_stopped(d, agent)


def drain(d: Decision, c: commands.Drain) -> None:
    if not d.state.draining:
        d.emit(e.SupervisorDraining("", c.reason))


def stop_supervisor(d: Decision, c: commands.StopSupervisor) -> None:
    """Refuse what is new, and (unless the groups are to run on) end what there is."""
    if not d.state.draining:
        d.emit(e.SupervisorDraining("", c.reason))
    if not d.state.stopping:
        d.emit(e.SupervisorStopping("", c.reason))
    if c.keep_groups:
        return
    for agent in list(d.state.agents.values()):
        if agent.parent and agent.is_live:
            agents.stop(d, agent, c.reason, c.grace)
    for agent in list(d.state.agents.values()):
        if not agent.is_live:
            continue  # it has been seen to
        for call_id in list(agent.live):
            call = agent.calls[call_id]
            if call.live:
                calls.stop(d, agent, call, cause="cancelled", reason=c.reason, grace=c.grace)
        for call_id in list(agent.leftovers):
            call = agent.calls[call_id]
            grace = call.grace if c.grace is None else c.grace
            d.emit(e.LeftoversStopping(agent.id, call_id, grace))
