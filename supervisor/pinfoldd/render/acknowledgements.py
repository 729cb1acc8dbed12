"""The answers of tools that are done at once (docs/contract.md, cancel and Agents)."""

from __future__ import annotations

from pinfoldd.core.values import ReportedState
from pinfoldd.render.headers import document, one_line

CANCEL_REQUESTED = "Tool cancellation requested"


def message_committed(message_id: str) -> str:
    """Stored, and the recipient was there; no promise that it answers."""
    return f"Message committed: {one_line(message_id)}; recipient was live; response not guaranteed"


def watching(agent_id: str, *, enabled: bool) -> str:
    what = "Watching" if enabled else "Stopped watching"
    return f"{what} agent `{one_line(agent_id)}`"


def status_accepted(state: ReportedState, title: str) -> str:
    return f"Status accepted: {state.value} — {one_line(title)}"


def agent_started(self_agent_id: str, sub_agent_id: str) -> str:
    """Both ids, nothing else."""
    return document([("self_agent_id", self_agent_id), ("sub_agent_id", sub_agent_id)])
