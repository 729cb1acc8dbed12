"""What all appliers of events share."""

from __future__ import annotations

from typing import Any

from pinfoldd.core import events as e
from pinfoldd.core.model import Agent, Call, State
from pinfoldd.core.reasons import IllegalTransition


def require(condition: bool, event: e.Event) -> None:
    """An event that does not fit the state is a fault of ours: it ends here."""
    if not condition:
        raise IllegalTransition(repr(event))


def call_of(state: State, event: Any) -> tuple[Agent, Call]:
    """The call that an event is about, and its agent."""
    agent = state.agents[event.agent]
    return agent, agent.calls[event.call]
