"""What the events of calls and of task reads do to the state."""

from __future__ import annotations

from pinfoldd.core import events as e
from pinfoldd.core.applied import call_of, require
from pinfoldd.core.model import (
    Call,
    Owner,
    State,
    TaskReadRecord,
)
from pinfoldd.core.values import (
    CallState,
    Cause,
    Stamp,
)

KEPT_READS = 16  # of one task: more than are on their way at a time


def call_queued(state: State, event: e.CallQueued, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(event.call not in agent.calls, event)
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


def call_starting(state: State, event: e.CallStarting, stamp: Stamp) -> None:
    agent, call = call_of(state, event)
    require(call.state is CallState.QUEUED, event)
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


def call_started(state: State, event: e.CallStarted, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    require(call.state in (CallState.RUNNING, CallState.STOPPING) and not call.pid, event)
    call.pid = event.pid
    call.started_mono = event.mono
    call.started_wall = event.wall
    call.spec = None


def call_backgrounded(state: State, event: e.CallBackgrounded, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    require(call.live and not call.background, event)
    call.background = True


def call_paused(state: State, event: e.CallPaused, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    call.paused = event.paused


def output_grew(state: State, event: e.OutputGrew, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    call.output = event.output
    if event.closed:
        call.closed = True


def cancel_requested(state: State, event: e.CancelRequested, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    require(call.live, event)
    call.cancel_asked = True
    call.passive_end = call.passive_end or event.passive


def call_stopping(state: State, event: e.CallStopping, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    require(call.state is CallState.RUNNING, event)
    call.state = CallState.STOPPING
    call.stop_cause = event.cause
    call.stop_reason = event.reason
    call.grace = event.grace  # what was asked for: after a restart it is asked for again


def leader_exited(state: State, event: e.LeaderExited, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    require(call.state is CallState.STOPPING and call.exit_seen is None, event)
    call.exit_seen = event.exit
    call.output = event.output


def call_ended(state: State, event: e.CallEnded, stamp: Stamp) -> None:
    agent, call = call_of(state, event)
    require(call.live and call.background == event.background, event)
    if call.state is CallState.QUEUED:
        agent.queue.remove(call.id)
    result = event.result
    call.state = result.state
    call.result = result
    call.ended_wall = stamp.wall
    if result.seconds is not None and call.started_wall is not None:
        # Not when it was heard of: a daemon that was away hears of it much later.
        call.ended_wall = call.started_wall + result.seconds
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


def leftovers_stopping(state: State, event: e.LeftoversStopping, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    require(call.group_live and not call.live, event)


def group_emptied(state: State, event: e.GroupEmptied, stamp: Stamp) -> None:
    agent, call = call_of(state, event)
    require(call.group_live and not call.live, event)
    call.group_live = False
    call.leftover = len(event.receipt.survivors) if event.receipt else 0
    agent.leftovers.pop(call.id, None)
    # The keeper tells the last of the output before the end of the group. A group that waited
    # here for one word more would keep the supervisor from ever stopping.
    call.closed = True
    state.groups.pop(call.group, None)


def calls_forgotten(state: State, event: e.CallsForgotten, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    for call_id in event.calls:
        call = agent.calls.pop(call_id)
        require(not call.live and not call.group_live, event)
        state.groups.pop(call.group, None)
        agent.completed.pop(call_id, None)
        agent.tasks.pop(call.task_id, None)
        state.finished -= 1


def task_reported(state: State, event: e.TaskReported, stamp: Stamp) -> None:
    _, call = call_of(state, event)
    call.reported = True


def task_read(state: State, event: e.TaskRead, stamp: Stamp) -> None:
    agent, call = call_of(state, event)
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
