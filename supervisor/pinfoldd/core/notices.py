"""Prompts on their way to an agent, and the completion notices among them.

A notice of a call is owed when it has ended in the background, nobody has its result, no
wait covers it, and its owner was not told before. It is queued at that moment, once; it is
taken back while it is pending when the result is consumed.
"""

from __future__ import annotations

from pinfoldd.core import events as e
from pinfoldd.core import waits
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Call
from pinfoldd.core.values import PromptKind, Surface


def owe(d: Decision, agent: Agent, call: Call, *, passive: bool = False) -> None:
    """Queue the notice of an ended call, if it is owed and not covered."""
    if (
        call.live
        or not call.background
        or call.consumed
        or call.reported
        or call.notice
        or call.notice_given
        or call.waiter is not None
        or call.reserved is not None
        or not agent.is_live
        or d.memory.task_waits.get((agent.id, call.id))
    ):
        return
    if agent.surface is Surface.TASKS:
        # A wake-up budget keeps two agents that wake each other from running for ever.
        activating = (
            d.settings.wake_on_task_notice and agent.wakes < d.settings.max_consecutive_wakes
        )
    else:
        activating = True
    if passive or call.passive_end:
        activating = False
    queue(d, agent, PromptKind.NOTICE, "", activating=activating, call=call.id)


def suppress(d: Decision, agent: Agent, call: Call) -> None:
    """Take a pending notice back. One that was delivered cannot be."""
    if call.notice:
        d.emit(e.PromptSuppressed(agent.id, call.notice, call.id))


def queue(
    d: Decision,
    agent: Agent,
    kind: PromptKind,
    body: str,
    *,
    activating: bool,
    from_agent: str = "",
    call: str = "",
    detail: str = "",
) -> str:
    """Queue a prompt, then interrupt the agent's waits if it does that. Returns its id."""
    prompt = f"p-{d.state.counters.prompt + 1}"
    d.emit(
        e.PromptQueued(
            agent=agent.id,
            prompt=prompt,
            kind=kind,
            activating=activating,
            body=body,
            from_agent=from_agent,
            call=call,
            detail=detail,
        )
    )
    # State lines of watched agents end a wait, but do not begin a turn: a turn makes state
    # lines of its own, and two watchers would wake each other for ever.
    if activating or kind is PromptKind.WATCH_STATE:
        waits.interrupt(d, agent)
    return prompt
