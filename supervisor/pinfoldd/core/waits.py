"""Waits: install, arbitrate, settle. Each result is consumed at most once, and no wait hangs."""

from __future__ import annotations

from pinfoldd.core import commands, notices
from pinfoldd.core import events as e
from pinfoldd.core.apply_agents import PROMPT
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Call, Wait
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.repeats import WAIT, is_repeat
from pinfoldd.core.values import PromptKind, ReportedState, WaitMode, WaitOutcome


def start(d: Decision, c: commands.StartWait) -> None:
    agent = d.state.agent(c.agent)
    if is_repeat(agent, c.wait, WAIT, c.digest, Reason.WAIT_ID_REUSED):
        return
    d.state.require_live(agent)
    match c.mode:
        case WaitMode.ANY_BACKGROUND:
            ready = _bare(agent)
        case WaitMode.ACTIVATING_INPUT:
            if agent.input_wait is not None:
                raise Rejected(Reason.INPUT_WAIT_IN_PROGRESS)
            ready = None
        case WaitMode.EXACT:
            call = _member(agent, c.calls[0])
            if call.consumed:
                _returned_normally(d, agent, c, call)
                return
            ready = None if call.live else [call.id]
        case WaitMode.EXACT_ALL:
            members = _members(agent, c.calls)
            ready = None if any(call.live for call in members) else list(c.calls)
        case WaitMode.EXACT_ANY:
            ended = {call.id for call in _members(agent, c.calls) if not call.live}
            ready = [i for i in agent.completed if i in ended][:1] if ended else None
    if ready is not None:
        # A result that is there beats input that is queued: the retry after an interruption
        # would only come back for it.
        _settle_new(d, agent, c, WaitOutcome.RESULT, ready)
    elif _input_queued(agent, c):
        outcome = (
            WaitOutcome.INPUT_AVAILABLE
            if c.mode is WaitMode.ACTIVATING_INPUT
            else WaitOutcome.INTERRUPTED
        )
        _settle_new(d, agent, c, outcome, [])
    elif c.timeout is not None and c.timeout <= 0:
        _settle_new(d, agent, c, WaitOutcome.TIMED_OUT, [])
    else:
        if len(agent.waits) >= d.settings.waits_per_agent:
            raise Rejected(Reason.WAIT_LIMIT, limit=str(d.settings.waits_per_agent))
        deadline = None if c.timeout is None else d.now.mono + c.timeout
        d.emit(e.WaitInstalled(agent.id, c.wait, c.mode, list(c.calls), c.digest, deadline))
        if deadline is not None:
            d.memory.arm(deadline, "wait", agent.id, c.wait)


def _member(agent: Agent, call_id: str) -> Call:
    """A call that may be waited for by its id."""
    call = agent.calls.get(call_id)
    if call is None:
        record = agent.records.get(call_id)
        if record is not None and record.tool != PROMPT:
            # a message, a status, an agent_start: it had its answer at once
            raise Rejected(Reason.CALL_RETURNED_NORMALLY, tool_call_id=call_id)
        raise Rejected(Reason.CALL_UNKNOWN, tool_call_id=call_id)
    if call.consumed and (call.background or call.refused_wait):
        raise Rejected(Reason.RESULT_CONSUMED, tool_call_id=call_id)
    if call.waiter is not None or call.reserved is not None:
        raise Rejected(Reason.WAIT_IN_PROGRESS, tool_call_id=call_id)
    return call


def _members(agent: Agent, call_ids: list[str]) -> list[Call]:
    members = [_member(agent, call_id) for call_id in call_ids]
    for call in members:
        if call.consumed:
            raise Rejected(Reason.CALL_RETURNED_NORMALLY, tool_call_id=call.id)
    return members


def _returned_normally(d: Decision, agent: Agent, c: commands.StartWait, call: Call) -> None:
    """The first wait for a foreground result is told so; the next ones, that it is consumed.
    That it was told changes the state, so this refusal is an event."""
    d.emit(
        e.WaitSettled(
            agent=agent.id,
            wait=c.wait,
            mode=c.mode,
            digest=c.digest,
            outcome=WaitOutcome.ERROR,
            calls=[call.id],
            consumed=[],
            reason=Reason.CALL_RETURNED_NORMALLY,
            details={"tool_call_id": call.id},
        )
    )


def _bare(agent: Agent) -> list[str] | None:
    if agent.bare_wait is not None:
        raise Rejected(Reason.BARE_WAIT_IN_PROGRESS)
    first = _next_completion(agent)
    if first is not None:
        return [first]
    if not _something_left(agent):
        raise Rejected(Reason.NOTHING_TO_WAIT_FOR)
    return None


def _next_completion(agent: Agent) -> str | None:
    for call_id in agent.completed:
        if agent.calls[call_id].reserved is None:
            return call_id
    return None


def _something_left(agent: Agent) -> bool:
    """Whether a bare wait may yet get something. A result that is reserved for a set is
    something: the set may be interrupted and give it back."""
    return bool(agent.completed) or any(agent.calls[call_id].background for call_id in agent.live)


def _input_queued(agent: Agent, c: commands.StartWait) -> bool:
    for prompt in agent.prompts:
        if not prompt.activating:
            continue
        own = prompt.kind is PromptKind.NOTICE and (
            prompt.call in c.calls or c.mode is WaitMode.ANY_BACKGROUND
        )
        if not own:
            return True
    return False


# ------------------------------------------------------------ settling


def _settle_new(
    d: Decision, agent: Agent, c: commands.StartWait, outcome: WaitOutcome, calls: list[str]
) -> None:
    """Decide a wait that was never installed."""
    _settle(d, agent, Wait(c.wait, agent.id, c.mode, [], c.digest, None), outcome, calls)


def _settle(
    d: Decision,
    agent: Agent,
    wait: Wait,
    outcome: WaitOutcome,
    calls: list[str],
    *,
    reason: Reason | None = None,
) -> None:
    consumed = [call_id for call_id in calls if not agent.calls[call_id].consumed]
    advice = (
        wait.mode is WaitMode.ACTIVATING_INPUT
        and outcome is WaitOutcome.TIMED_OUT
        and agent.input_timeouts + 1 == d.settings.advice_after
        and not (agent.status and agent.status.state is ReportedState.WAITING)
    )
    d.emit(
        e.WaitSettled(
            agent=agent.id,
            wait=wait.id,
            mode=wait.mode,
            digest=wait.digest,
            outcome=outcome,
            calls=calls,
            consumed=consumed,
            reason=reason,
            advice=advice,
        )
    )
    for call_id in consumed:
        notices.suppress(d, agent, agent.calls[call_id])


def _release(d: Decision, agent: Agent, covered: list[str], *, passive: bool = False) -> None:
    """What a wait covered and did not consume: to the bare wait, or announced after all."""
    check_bare(d, agent)
    for call_id in covered:
        notices.owe(d, agent, agent.calls[call_id], passive=passive)


def call_ended(d: Decision, agent: Agent, call: Call) -> None:
    """Give the end of a call to the wait it belongs to: set, exact, bare, else nobody."""
    if call.reserved is not None:
        wait = agent.waits[call.reserved]
        if not any(agent.calls[call_id].live for call_id in wait.calls):
            _settle(d, agent, wait, WaitOutcome.RESULT, list(wait.calls))
    elif call.waiter is not None:
        wait = agent.waits[call.waiter]
        _settle(d, agent, wait, WaitOutcome.RESULT, [call.id])
    elif call.background and agent.bare_wait is not None:
        _settle(d, agent, agent.waits[agent.bare_wait], WaitOutcome.RESULT, [call.id])


def check_bare(d: Decision, agent: Agent) -> None:
    """A bare wait takes what has become free; with nothing left it ends, instead of hanging."""
    if agent.bare_wait is None:
        return
    wait = agent.waits[agent.bare_wait]
    first = _next_completion(agent)
    if first is not None:
        _settle(d, agent, wait, WaitOutcome.RESULT, [first])
    elif not _something_left(agent):
        _settle(d, agent, wait, WaitOutcome.ERROR, [], reason=Reason.NOTHING_TO_WAIT_FOR)


def interrupt(d: Decision, agent: Agent) -> None:
    """Activating input has been queued: it ends every installed wait of the agent."""
    covered: list[str] = []
    for wait in list(agent.waits.values()):
        covered += wait.calls
        outcome = (
            WaitOutcome.INPUT_AVAILABLE
            if wait.mode is WaitMode.ACTIVATING_INPUT
            else WaitOutcome.INTERRUPTED
        )
        _settle(d, agent, wait, outcome, [])
    # Only now: a notice that comes back must not find half of the waits still installed.
    _release(d, agent, covered)


def timeout_due(d: Decision, agent_id: str, wait_id: str) -> None:
    agent = d.state.agents.get(agent_id)
    wait = agent.waits.get(wait_id) if agent else None
    if agent is None or wait is None or wait.deadline is None or wait.deadline > d.now.mono:
        return
    _settle(d, agent, wait, WaitOutcome.TIMED_OUT, [])
    _release(d, agent, wait.calls)


def cancel(d: Decision, c: commands.CancelWait) -> None:
    """The waiter is gone before the decision: nothing is consumed."""
    agent = d.state.agents.get(c.agent)
    wait = agent.waits.get(c.wait) if agent else None
    if agent is not None and wait is not None:
        _settle(d, agent, wait, WaitOutcome.CANCELLED, [])
        _release(d, agent, wait.calls)


def cancel_all(d: Decision, agent: Agent, *, passive: bool = False) -> None:
    """Its agent stops, or its turn is cancelled, or the daemon that held the RPCs is gone."""
    covered: list[str] = []
    for wait in list(agent.waits.values()):
        covered += wait.calls
        _settle(d, agent, wait, WaitOutcome.CANCELLED, [])
    _release(d, agent, covered, passive=passive)
