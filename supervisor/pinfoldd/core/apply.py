"""What each event does to the state. Total, deterministic, and free of decisions.

An event that does not fit the state raises `IllegalTransition`: replaying a log can then
never end in a state that no supervisor was ever in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfoldd.core import events as e
from pinfoldd.core.model import (
    Agent,
    Call,
    Delivery,
    Owner,
    Prompt,
    SettledWait,
    State,
    StatusReport,
    TaskReadRecord,
    ToolRecord,
    Wait,
    Worker,
)
from pinfoldd.core.reasons import IllegalTransition, Reason
from pinfoldd.core.values import (
    AgentState,
    CallState,
    Cause,
    PromptKind,
    Stamp,
    Surface,
    WaitMode,
    WaitOutcome,
)

KEPT_RECORDS = 512
KEPT_READS = 16  # of one task: more than are on their way at a time
_KEPT_STARTS = 1_000  # of a worker: more than any restart intensity asks about
PROMPT = "prompt"
"""The tool of the record of a user prompt."""


def apply(state: State, event: e.Event, stamp: Stamp) -> None:
    """Bring the state past the event."""
    if stamp.revision != state.revision + 1:
        raise IllegalTransition(f"revision {stamp.revision} after {state.revision}")
    state.revision = stamp.revision
    _APPLY[type(event)](state, event, stamp)


def _require(condition: bool, event: e.Event) -> None:
    if not condition:
        raise IllegalTransition(repr(event))


def _call(state: State, event: Any) -> tuple[Agent, Call]:
    agent = state.agents[event.agent]
    return agent, agent.calls[event.call]


# ------------------------------------------------------------ the supervisor


def _supervisor_started(state: State, event: e.SupervisorStarted, stamp: Stamp) -> None:
    state.draining = False
    state.stopping = False


def _supervisor_draining(state: State, event: e.SupervisorDraining, stamp: Stamp) -> None:
    state.draining = True


def _supervisor_stopping(state: State, event: e.SupervisorStopping, stamp: Stamp) -> None:
    state.draining = True
    state.stopping = True


# ------------------------------------------------------------ agents


def _agent_opened(state: State, event: e.AgentOpened, stamp: Stamp) -> None:
    _require(event.agent not in state.agents, event)
    parent = state.agents.get(event.parent) if event.parent else None
    state.agents[event.agent] = Agent(
        id=event.agent,
        parent=event.parent,
        root=parent.root if parent else event.agent,
        depth=parent.depth + 1 if parent else 0,
        surface=event.surface,
        label=event.label,
        digest=event.digest,
        opened_wall=stamp.wall,
        role=event.role,
        max_running=event.max_running,
        max_tasks=event.max_tasks,
        cwd=event.cwd,
        env=event.env,
        hidden_tools=event.hidden_tools,
        call=event.call,
    )
    if parent:
        parent.children.append(event.agent)


def _agent_stopping(state: State, event: e.AgentStopping, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(agent.state is AgentState.LIVE, event)
    agent.state = AgentState.STOPPING
    agent.stop_reason = event.reason
    agent.failing = event.failed


def _agent_stopped(state: State, event: e.AgentStopped, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(agent.state is AgentState.STOPPING and not agent.live, event)
    agent.state = AgentState.FAILED if event.failed else AgentState.STOPPED
    agent.stopped_wall = stamp.wall
    agent.turn = ""
    agent.prompts.clear()
    agent.delivery = None
    agent.unconfirmed = None
    agent.taken.clear()
    agent.completed.clear()  # its results can be read, but nobody is left to consume them
    for watched in agent.watching:
        state.agents[watched].watchers.remove(agent.id)
    for watcher in agent.watchers:
        state.agents[watcher].watching.remove(agent.id)
    agent.watching.clear()
    agent.watchers.clear()


def _agent_forgotten(state: State, event: e.AgentForgotten, stamp: Stamp) -> None:
    agent = state.agents.pop(event.agent)
    _require(agent.state in (AgentState.STOPPED, AgentState.FAILED), event)
    _require(not agent.calls, event)
    parent = state.agents.get(agent.parent)
    if parent:
        parent.children.remove(agent.id)


def _turn_started(state: State, event: e.TurnStarted, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(not agent.turn, event)
    agent.turn = event.turn
    agent.turn_cancelled = False
    state.counters.turn += 1
    again = agent.unseen()
    agent.unconfirmed = None
    _put_back(agent, again)
    # A budget of wake-ups keeps two agents from waking each other with notices for ever.
    alone = all(p.kind is PromptKind.NOTICE for p in agent.prompts if p.activating)
    agent.wakes = agent.wakes + 1 if alone and agent.surface is Surface.TASKS else 0


def _put_back(agent: Agent, prompts: list[Prompt]) -> None:
    """Delivered prompts are pending again, before those that have come since."""
    agent.prompts[:0] = prompts
    for prompt in prompts:
        if prompt.kind is PromptKind.NOTICE:
            agent.calls[prompt.call].notice = prompt.id


def _turn_ended(state: State, event: e.TurnEnded, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(agent.turn == event.turn, event)
    agent.turn = ""
    agent.last_turn = event.turn
    agent.turn_cancelled = event.cancelled
    if agent.state is AgentState.STOPPING:
        agent.partial = event.answer
    agent.unconfirmed, agent.delivery = agent.delivery, None
    agent.taken.clear()


def _prompt_queued(state: State, event: e.PromptQueued, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    state.counters.prompt += 1
    agent.prompts.append(
        Prompt(
            id=event.prompt,
            kind=event.kind,
            activating=event.activating,
            body=event.body,
            queued_wall=stamp.wall,
            from_agent=event.from_agent,
            call=event.call,
            detail=event.detail,
        )
    )
    if event.kind is PromptKind.NOTICE:
        call = agent.calls[event.call]
        _require(not call.notice and not call.notice_given and not call.live, event)
        call.notice = event.prompt


def _prompt_suppressed(state: State, event: e.PromptSuppressed, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    agent.prompts = [p for p in agent.prompts if p.id != event.prompt]
    call = agent.calls.get(event.call)
    if call is not None:
        call.notice = ""


def _prompt_created(state: State, event: e.PromptCreated, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(agent.delivery is None and bool(agent.turn), event)
    named = set(event.prompts)
    delivered = [p for p in agent.prompts if p.id in named]
    agent.prompts = [p for p in agent.prompts if p.id not in named]
    agent.delivery = Delivery(id=event.delivery, prompts=delivered)
    state.counters.delivery += 1
    for prompt in delivered:
        prompt.delivered = True
        if prompt.kind is PromptKind.NOTICE and prompt.call in agent.calls:
            call = agent.calls[prompt.call]
            call.notice = ""
            call.notice_given = True


def _delivery_acknowledged(state: State, event: e.DeliveryAcknowledged, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    if agent.delivery is not None and agent.delivery.id == event.delivery:
        if event.kept:
            agent.taken += agent.delivery.prompts
        agent.delivery = None
    else:
        _require(agent.unconfirmed is not None and agent.unconfirmed.id == event.delivery, event)
        agent.unconfirmed = None


def _prompts_returned(state: State, event: e.PromptsReturned, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(bool(agent.turn), event)
    again = agent.of_turn()
    agent.taken.clear()
    agent.delivery = None
    _put_back(agent, again)


def _message_sent(state: State, event: e.MessageSent, stamp: Stamp) -> None:
    state.counters.message += 1


def _watch_changed(state: State, event: e.WatchChanged, stamp: Stamp) -> None:
    watcher, watched = state.agents[event.agent], state.agents[event.watched]
    _require((event.watched in watcher.watching) != event.enabled, event)
    if event.enabled:
        watcher.watching.append(watched.id)
        watched.watchers.append(watcher.id)
    else:
        watcher.watching.remove(watched.id)
        watched.watchers.remove(watcher.id)


def _status_reported(state: State, event: e.StatusReported, stamp: Stamp) -> None:
    state.agents[event.agent].status = StatusReport(event.state, event.title)


def _tool_recorded(state: State, event: e.ToolRecorded, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    if event.tool != PROMPT:  # that is what others do to the agent
        agent.input_timeouts = 0
    if event.call:
        agent.records[event.call] = ToolRecord(event.tool, event.digest, event.answer)
        while len(agent.records) > KEPT_RECORDS:
            del agent.records[next(iter(agent.records))]


def _worker_starting(state: State, event: e.WorkerStarting, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    state.counters.group = max(state.counters.group, event.group)
    state.groups[event.group] = Owner(event.agent)
    if agent.worker is None:
        agent.worker = Worker(group=event.group)
    else:
        _require(not agent.worker.running, event)
        agent.worker.restarts += 1
        agent.worker.group = event.group
        agent.worker.restart_at = None
    agent.worker.running = True
    agent.worker.pid = 0
    agent.worker.starts.append(stamp.mono)
    del agent.worker.starts[:-_KEPT_STARTS]


def _worker_started(state: State, event: e.WorkerStarted, stamp: Stamp) -> None:
    worker = state.agents[event.agent].worker
    if worker is None:
        raise IllegalTransition(repr(event))
    worker.pid = event.pid


def _worker_exited(state: State, event: e.WorkerExited, stamp: Stamp) -> None:
    worker = state.agents[event.agent].worker
    if worker is None or not worker.running:
        raise IllegalTransition(repr(event))
    worker.running = False
    worker.pid = 0
    worker.restart_at = event.restart_at
    state.groups.pop(worker.group, None)


# ------------------------------------------------------------ calls


def _call_queued(state: State, event: e.CallQueued, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(event.call not in agent.calls, event)
    agent.calls[event.call] = Call(
        id=event.call,
        agent=event.agent,
        tool=event.tool,
        kind=event.kind,
        number=event.number,
        label=event.label,
        digest=event.digest,
        exclusive=event.exclusive,
        budget=event.budget,
        timeout=event.timeout,
        grace=event.grace,
        kill_leftovers=event.kill_leftovers,
        queued_mono=stamp.mono,
        queued_wall=stamp.wall,
        background=event.background,
        spec=event.spec,
    )
    agent.numbers[event.kind] = event.number
    agent.tasks[f"{event.kind}-{event.number}"] = event.call
    agent.live[event.call] = None
    agent.queue.append(event.call)
    agent.input_timeouts = 0


def _call_starting(state: State, event: e.CallStarting, stamp: Stamp) -> None:
    agent, call = _call(state, event)
    _require(call.state is CallState.QUEUED, event)
    call.state = CallState.RUNNING
    agent.queue.remove(call.id)
    if call.exclusive:
        agent.exclusive = call.id
    if event.group:
        call.group = event.group
        call.group_live = True
        state.counters.group = max(state.counters.group, event.group)
        state.groups[event.group] = Owner(agent.id, call.id)
    else:
        call.sub_agent = event.sub_agent
        call.spec = None
        call.started_mono = stamp.mono
        call.started_wall = stamp.wall


def _call_started(state: State, event: e.CallStarted, stamp: Stamp) -> None:
    _, call = _call(state, event)
    _require(call.state in (CallState.RUNNING, CallState.STOPPING) and not call.pid, event)
    call.pid = event.pid
    call.started_mono = event.mono
    call.started_wall = event.wall
    call.spec = None


def _call_backgrounded(state: State, event: e.CallBackgrounded, stamp: Stamp) -> None:
    _, call = _call(state, event)
    _require(call.live and not call.background, event)
    call.background = True


def _call_paused(state: State, event: e.CallPaused, stamp: Stamp) -> None:
    _, call = _call(state, event)
    call.paused = event.paused


def _output_grew(state: State, event: e.OutputGrew, stamp: Stamp) -> None:
    _, call = _call(state, event)
    call.output = event.output
    if event.closed:
        call.closed = True


def _cancel_requested(state: State, event: e.CancelRequested, stamp: Stamp) -> None:
    _, call = _call(state, event)
    _require(call.live, event)
    call.passive_end = call.passive_end or event.passive


def _call_stopping(state: State, event: e.CallStopping, stamp: Stamp) -> None:
    _, call = _call(state, event)
    _require(call.state is CallState.RUNNING, event)
    call.state = CallState.STOPPING
    call.stop_cause = event.cause
    call.stop_reason = event.reason


def _leader_exited(state: State, event: e.LeaderExited, stamp: Stamp) -> None:
    _, call = _call(state, event)
    _require(call.state is CallState.STOPPING and call.exit_seen is None, event)
    call.exit_seen = event.exit
    call.output = event.output


def _call_ended(state: State, event: e.CallEnded, stamp: Stamp) -> None:
    agent, call = _call(state, event)
    _require(call.live and call.background == event.background, event)
    if call.state is CallState.QUEUED:
        agent.queue.remove(call.id)
    result = event.result
    call.state = result.state
    call.result = result
    call.ended_wall = stamp.wall
    call.paused = False
    call.spec = None
    call.output = result.output
    call.exit_seen = None
    if result.cause is Cause.CANCELLED:
        call.stop_cause = "cancelled"
    del agent.live[call.id]
    if agent.exclusive == call.id:
        agent.exclusive = ""
    if event.background:
        agent.completed[call.id] = None
    else:
        call.consumed = True
    call.group_live = event.group_live
    if event.group_live:
        call.leftover = max(1, result.exit.leftover if result.exit else 1)
        agent.leftovers[call.id] = None
    else:
        call.closed = True  # with nobody left, nothing more can come
        state.groups.pop(call.group, None)
    state.finished += 1


def _leftovers_stopping(state: State, event: e.LeftoversStopping, stamp: Stamp) -> None:
    _, call = _call(state, event)
    _require(call.group_live and not call.live, event)


def _group_emptied(state: State, event: e.GroupEmptied, stamp: Stamp) -> None:
    agent, call = _call(state, event)
    _require(call.group_live and not call.live, event)
    call.group_live = False
    call.leftover = len(event.receipt.survivors) if event.receipt else 0
    agent.leftovers.pop(call.id, None)
    # The keeper tells the last of the output before the end of the group. A group that waited
    # here for one word more would keep the supervisor from ever stopping.
    call.closed = True
    state.groups.pop(call.group, None)


def _calls_forgotten(state: State, event: e.CallsForgotten, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    for call_id in event.calls:
        call = agent.calls.pop(call_id)
        _require(not call.live and not call.group_live, event)
        state.groups.pop(call.group, None)
        agent.completed.pop(call_id, None)
        agent.tasks.pop(call.task_id, None)
        state.finished -= 1


def _task_reported(state: State, event: e.TaskReported, stamp: Stamp) -> None:
    _, call = _call(state, event)
    call.reported = True


def _task_read(state: State, event: e.TaskRead, stamp: Stamp) -> None:
    agent, call = _call(state, event)
    call.cursor = max(call.cursor, event.end)
    if event.read:
        call.reads.append(
            TaskReadRecord(
                event.read, event.start, event.end, event.live, event.timed_out, event.status
            )
        )
        del call.reads[:-KEPT_READS]
    agent.input_timeouts = 0
    if event.consumed:
        call.reported = True
        if call.reserved is None:
            call.consumed = True
            agent.completed.pop(call.id, None)


# ------------------------------------------------------------ waits


def _wait_installed(state: State, event: e.WaitInstalled, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    _require(event.wait not in agent.waits, event)
    wait = Wait(event.wait, event.agent, event.mode, event.calls, event.digest, event.deadline)
    agent.waits[event.wait] = wait
    if event.mode is WaitMode.ANY_BACKGROUND:
        _require(agent.bare_wait is None, event)
        agent.bare_wait = wait.id
    elif event.mode is WaitMode.ACTIVATING_INPUT:
        _require(agent.input_wait is None, event)
        agent.input_wait = wait.id
    for call_id in event.calls:
        call = agent.calls[call_id]
        _require(call.waiter is None and call.reserved is None, event)
        if event.mode is WaitMode.EXACT_ALL:
            call.reserved = wait.id
        else:
            call.waiter = wait.id


def _wait_settled(state: State, event: e.WaitSettled, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    wait = agent.waits.pop(event.wait, None)
    if wait is not None:
        if agent.bare_wait == wait.id:
            agent.bare_wait = None
        if agent.input_wait == wait.id:
            agent.input_wait = None
        for call_id in wait.calls:
            call = agent.calls[call_id]
            if call.waiter == wait.id:
                call.waiter = None
            if call.reserved == wait.id:
                call.reserved = None
    for call_id in event.consumed:
        call = agent.calls[call_id]
        _require(not call.live and not call.consumed, event)
        call.consumed = True
        del agent.completed[call_id]
    if event.reason is Reason.CALL_RETURNED_NORMALLY:
        for call_id in event.calls:
            agent.calls[call_id].refused_wait = True
    if event.mode is WaitMode.ACTIVATING_INPUT:
        if event.outcome is WaitOutcome.TIMED_OUT:
            agent.input_timeouts += 1
        elif event.outcome is WaitOutcome.INPUT_AVAILABLE:
            agent.input_timeouts = 0
    if event.outcome is not WaitOutcome.CANCELLED:
        agent.settled[event.wait] = SettledWait(
            mode=event.mode,
            digest=event.digest,
            outcome=event.outcome,
            calls=event.calls,
            revision=stamp.revision,
            reason=event.reason,
            details=event.details,
            advice=event.advice,
        )
        while len(agent.settled) > KEPT_RECORDS:
            del agent.settled[next(iter(agent.settled))]


def _nothing(state: State, event: e.Event, stamp: Stamp) -> None:
    """Facts for the log alone."""


_APPLY: dict[type[e.Event], Callable[[State, Any, Stamp], None]] = {
    e.SupervisorStarted: _supervisor_started,
    e.SupervisorDraining: _supervisor_draining,
    e.SupervisorStopping: _supervisor_stopping,
    e.AgentOpened: _agent_opened,
    e.AgentStopping: _agent_stopping,
    e.AgentStopped: _agent_stopped,
    e.AgentForgotten: _agent_forgotten,
    e.TurnStarted: _turn_started,
    e.TurnEnded: _turn_ended,
    e.PromptQueued: _prompt_queued,
    e.PromptSuppressed: _prompt_suppressed,
    e.PromptCreated: _prompt_created,
    e.DeliveryAcknowledged: _delivery_acknowledged,
    e.PromptsReturned: _prompts_returned,
    e.MessageSent: _message_sent,
    e.WatchChanged: _watch_changed,
    e.StatusReported: _status_reported,
    e.ToolRecorded: _tool_recorded,
    e.WorkerStarting: _worker_starting,
    e.WorkerStarted: _worker_started,
    e.WorkerExited: _worker_exited,
    e.CallQueued: _call_queued,
    e.CallStarting: _call_starting,
    e.CallStarted: _call_started,
    e.CallBackgrounded: _call_backgrounded,
    e.CallPaused: _call_paused,
    e.OutputGrew: _output_grew,
    e.CancelRequested: _cancel_requested,
    e.Notice: _nothing,
    e.CallStopping: _call_stopping,
    e.LeaderExited: _leader_exited,
    e.CallEnded: _call_ended,
    e.LeftoversStopping: _leftovers_stopping,
    e.GroupEmptied: _group_emptied,
    e.CallsForgotten: _calls_forgotten,
    e.TaskReported: _task_reported,
    e.TaskRead: _task_read,
    e.WaitInstalled: _wait_installed,
    e.WaitSettled: _wait_settled,
}
