"""What the events of waits do to the state."""

from __future__ import annotations

from pinfoldd.core import events as e
from pinfoldd.core.applied import require
from pinfoldd.core.model import (
    SettledWait,
    State,
    Wait,
)
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import (
    Stamp,
    WaitMode,
    WaitOutcome,
)

KEPT_SETTLED = 512  # of one agent, for repeats


def wait_installed(state: State, event: e.WaitInstalled, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(event.wait not in agent.waits, event)
    wait = Wait(event.wait, event.agent, event.mode, event.calls, event.digest, event.deadline)
    agent.waits[event.wait] = wait
    if event.mode is WaitMode.ANY_BACKGROUND:
        require(agent.bare_wait is None, event)
        agent.bare_wait = wait.id
    elif event.mode is WaitMode.ACTIVATING_INPUT:
        require(agent.input_wait is None, event)
        agent.input_wait = wait.id
    for call_id in event.calls:
        call = agent.calls[call_id]
        require(call.waiter is None and call.reserved is None, event)
        if event.mode is WaitMode.EXACT_ALL:
            call.reserved = wait.id
        else:
            call.waiter = wait.id


def wait_settled(state: State, event: e.WaitSettled, stamp: Stamp) -> None:
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
        require(not call.live and not call.consumed, event)
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
        while len(agent.settled) > KEPT_SETTLED:
            del agent.settled[next(iter(agent.settled))]
