"""Retention: what is forgotten, by age and count. Never a result that nobody has."""

from __future__ import annotations

from pinfoldd.core import events as e
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Call

_SOON = 1.0
_MOST_AT_ONCE = 2_000


def sweep(d: Decision) -> float:
    """Forget finished calls and stopped agents that are over the bounds. Returns when to look
    again: soon if it stopped short, so that it keeps up with a thousand calls a second."""
    more = _agents(d)
    oldest = d.now.wall - d.settings.finished_seconds
    over = d.state.finished - d.settings.finished_calls
    ended = d.memory.ended
    kept: list[tuple[str, str]] = []
    forgotten: dict[str, list[Call]] = {}
    for _ in range(_MOST_AT_ONCE):
        if not ended:
            break
        key = ended[0]
        call = d.state.call(*key)
        if call is None or call.ended_wall is None:
            ended.popleft()
            continue
        if over <= 0 and call.ended_wall > oldest:
            break
        ended.popleft()
        if _needed(d.state.agents[key[0]], call):
            kept.append(key)
            continue
        forgotten.setdefault(key[0], []).append(call)
        over -= 1
    else:
        more = True
    ended.extend(kept)
    for agent_id, calls in forgotten.items():
        _forget(d, agent_id, calls)
    return _SOON if more else d.settings.sweep_seconds


def _needed(agent: Agent, call: Call) -> bool:
    if call.group_live or call.waiter or call.reserved:
        return True
    return agent.is_live and call.background and not (call.consumed or call.reported)


def _forget(d: Decision, agent_id: str, calls: list[Call]) -> None:
    d.emit(
        e.CallsForgotten(
            agent_id,
            [call.id for call in calls],
            [call.group for call in calls if call.group],
        )
    )


def forget_tree(d: Decision, agent: Agent) -> None:
    """Forget a stopped agent and all that was below it."""
    for member in reversed(d.state.below(agent.id)):
        if member.calls:
            _forget(d, member.id, list(member.calls.values()))
        d.emit(e.AgentForgotten(member.id))


def _agents(d: Decision) -> bool:
    """Stopped agents with nothing below them, the longest stopped first. True: not all."""
    oldest = d.now.wall - d.settings.finished_seconds
    stopped = [
        (agent.stopped_wall, agent.id)
        for agent in d.state.agents.values()
        if agent.stopped_wall is not None and not agent.children
    ]
    stopped.sort()
    over = len(d.state.agents) - 2 * d.settings.live_agents
    for done, (wall, agent_id) in enumerate(stopped):
        if over <= 0 and wall > oldest:
            return False
        if done == _MOST_AT_ONCE:
            return True
        forget_tree(d, d.state.agents[agent_id])
        over -= 1
    return False
