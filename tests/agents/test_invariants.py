"""The checker of logs finds what it is there to find: one log with each thing wrong in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents.invariants import Event, check
from pinfold.v1 import agent_pb2, call_pb2, watch_service_pb2

NOTICE = agent_pb2.PROMPT_KIND_NOTICE
MESSAGE = agent_pb2.PROMPT_KIND_MESSAGE
WATCH_ANSWER = agent_pb2.PROMPT_KIND_WATCH_ANSWER
WATCH_STATE = agent_pb2.PROMPT_KIND_WATCH_STATE

Decisions = list[list[Event]]


def event(name: str, agent: str = "A", call: str = "", **body: Any) -> Event:
    return Event(name=name, agent_id=agent, call_id=call, **body)


def opened(agent: str, parent: str = "") -> Event:
    name = "agent.started" if parent else "agent.opened"
    body = watch_service_pb2.AgentOpened(parent_id=parent)
    return event(name, agent, agent_opened=body)


def queued(prompt: str, kind: int, agent: str = "A", call: str = "", of: str = "") -> Event:
    body = agent_pb2.Prompt(
        prompt_id=prompt,
        kind=kind,  # type: ignore[arg-type]
        activating=kind != WATCH_STATE,
        call_id=call,
        from_agent_id=of,
    )
    return event(
        "prompt.queued", agent, call, prompt_queued=watch_service_pb2.PromptQueued(prompt=body)
    )


def suppressed(prompt: str, call: str) -> Event:
    body = watch_service_pb2.PromptSuppressed(prompt_id=prompt, call_id=call)
    return event("prompt.suppressed", call=call, prompt_suppressed=body)


def begun(call: str, agent: str = "A") -> Decisions:
    """In the background."""
    return [
        [
            event("call.queued", agent, call),
            event("call.starting", agent, call),
        ],
        [event("call.started", agent, call)],
        [
            event(
                "call.backgrounded",
                agent,
                call,
                call_backgrounded=watch_service_pb2.CallBackgrounded(),
            )
        ],
    ]


def ended(call: str, agent: str = "A") -> Event:
    result = call_pb2.CallResult(call_id=call)
    body = watch_service_pb2.CallEnded(result=result, background=True)
    return event("tool.background_result", agent, call, call_ended=body)


def installed(wait: str, mode: str, *calls: str) -> Event:
    body = watch_service_pb2.WaitInstalled(wait_id=wait, mode=mode, call_ids=calls)
    return event("wait.installed", wait_installed=body)


def settled(wait: str, mode: str, outcome: str, *consumed: str) -> Event:
    body = watch_service_pb2.WaitSettled(
        wait_id=wait, mode=mode, outcome=outcome, consumed_call_ids=consumed
    )
    return event("wait.settled", wait_settled=body)


def turn_started(turn: str) -> Event:
    return event("agent.turn_started", turn_started=watch_service_pb2.TurnStarted(turn_id=turn))


def turn_ended(turn: str) -> Event:
    return event("agent.turn_ended", turn_ended=watch_service_pb2.TurnEnded(turn_id=turn))


def created(delivery: str, turn: str, *prompts: str) -> Event:
    body = watch_service_pb2.PromptCreated(delivery_id=delivery, turn_id=turn, prompt_ids=prompts)
    return event("agent.prompt_created", prompt_created=body)


def acknowledged(delivery: str) -> Event:
    body = watch_service_pb2.DeliveryAcknowledged(delivery_id=delivery)
    return event("prompt.acknowledged", delivery_acknowledged=body)


def watching(agent: str, *, by: str = "A") -> Event:
    body = watch_service_pb2.WatchChanged(watched_agent_id=agent, enabled=True)
    return event("agent.watch_changed", by, watch_changed=body)


def sent(recipient: str) -> Event:
    body = watch_service_pb2.MessageSent(recipient_id=recipient)
    return event("agent.message_sent", message_sent=body)


def good() -> Decisions:
    return [
        [opened("A")],  # 0
        [opened("B", "A"), watching("B")],
        *begun("X"),  # 2, 3, 4
        *begun("Y"),  # 5, 6, 7
        *begun("Z"),  # 8, 9, 10
        [ended("X"), queued("p1", NOTICE, call="X")],  # 11
        [ended("Y"), queued("p2", NOTICE, call="Y")],
        [settled("w1", "any_background", "result", "X"), suppressed("p1", "X")],  # 13
        [turn_started("t1"), created("d1", "t1", "p2")],
        [acknowledged("d1")],  # 15
        [installed("w2", "exact", "Z")],
        [sent("A"), queued("p3", MESSAGE), settled("w2", "exact", "interrupted")],  # 17
        [created("d2", "t1", "p3")],
        [installed("w3", "exact", "Z")],  # 19
        [ended("Z"), settled("w3", "exact", "result", "Z")],
        [settled("w4", "exact", "result", "Y")],  # 21
        [turn_ended("t1")],
        [turn_started("t2"), created("d3", "t2", "p3")],  # 23: it was not acknowledged
        [event("prompt.returned")],
        [created("d4", "t2", "p3")],  # 25: a worker that was started again
        [acknowledged("d4"), turn_ended("t2")],
        *begun("K", "B"),  # 27, 28, 29
        [queued("p4", WATCH_ANSWER, of="B")],
        [event("agent.stopping", "B")],  # 31
        [
            ended("K", "B"),
            event("agent.stopped", "B"),
            queued("p5", WATCH_STATE, of="B"),
        ],
    ]


def faults(decisions: Decisions) -> list[str]:
    revision = 0
    events = []
    for decision in decisions:
        first = revision + 1
        for one in decision:
            revision += 1
            copy = Event()
            copy.CopyFrom(one)
            copy.revision, copy.decision_revision = revision, first
            events.append(copy)
    return check(events)


def test_a_good_log_has_no_faults() -> None:
    assert faults(good()) == []


WRONG: dict[str, tuple[Callable[[Decisions], Any], str]] = {
    "a second terminal": (lambda d: d.insert(12, [ended("X")]), "a second terminal"),
    "no terminal": (lambda d: d[32].pop(0), "its calls have no end: ['K']"),
    "a live call": (lambda d: d.extend(begun("Q")), "Q of A has no end"),
    "started after its end": (
        lambda d: d.insert(12, [event("call.started", call="X")]),
        "is not running",
    ),
    "consumed twice": (
        lambda d: d.insert(22, [settled("w9", "exact", "result", "X")]),
        "took X again",
    ),
    "consumed before its end": (
        lambda d: d.insert(11, [settled("w9", "exact", "result", "X")]),
        "took X before its end",
    ),
    "consumed by an interrupted wait": (
        lambda d: d.insert(17, [settled("w9", "exact", "interrupted", "Y")]),
        "interrupted has consumed ['Y']",
    ),
    "consumed by another agent": (
        lambda d: d.insert(29, [settled("w9", "exact", "result", "K")]),
        "took K, which is not its call",
    ),
    "not the oldest": (
        lambda d: d.__setitem__(13, [settled("w1", "any_background", "result", "Y")]),
        "took ['Y'], the first was ['X']",
    ),
    "a lost notice": (lambda d: d[12].pop(), "the notice of Y of A is lost"),
    "a notice taken back for nothing": (
        lambda d: d.insert(12, [suppressed("p1", "X")]),
        "its notice was taken back for nothing",
    ),
    "a second notice": (
        lambda d: d.insert(13, [queued("p9", NOTICE, call="Y")]),
        "a second notice",
    ),
    "a notice of what was told": (
        lambda d: d.insert(16, [queued("p9", NOTICE, call="Y")]),
        "a notice of what it was told of",
    ),
    "a notice of what it has": (
        lambda d: d.insert(14, [queued("p9", NOTICE, call="X")]),
        "a notice of what it has",
    ),
    "a notice for somebody else": (
        lambda d: d.insert(30, [queued("p9", NOTICE, call="K")]),
        "the notice of K, which is not its call",
    ),
    "a prompt delivered twice": (
        lambda d: d[25].append(created("d5", "t2", "p3")),
        "p3 was not pending: delivered twice, or never queued",
    ),
    "a prompt left behind": (lambda d: d[18].__setitem__(0, created("d2", "t1")), "left ['p3']"),
    "a stuck wait": (lambda d: d[20].pop(), "wait w3 (exact) of A is stuck"),
    "a stuck bare wait": (
        lambda d: d.insert(22, [installed("w9", "any_background")]),
        "wait w9 (any_background) of A is stuck",
    ),
    "a wait that input does not end": (lambda d: d[17].pop(), "input left waits of A: ['w2']"),
    "a wait that never ends": (
        lambda d: d.append([installed("w9", "activating_input")]),
        "A waits at the end: ['w9']",
    ),
    "two waits for one call": (
        lambda d: d.insert(17, [installed("w9", "exact", "Z")]),
        "Z has a wait already",
    ),
    "a turn in a turn": (lambda d: d.insert(16, [turn_started("t9")]), "is in a turn already"),
    "a message to the dead": (
        lambda d: d.append([sent("B")]),
        "to an agent that is not live",
    ),
    "an answer of the dead": (
        lambda d: d.insert(32, [queued("p9", WATCH_ANSWER, of="B")]),
        "of an agent that is stopped",
    ),
    "told twice of an end": (
        lambda d: d.append([queued("p9", WATCH_STATE, of="B")]),
        "of an agent it does not watch",
    ),
    "begun while it stops": (
        lambda d: d.insert(32, [event("call.queued", "B", "L")]),
        "begins something, but it is stopped",
    ),
    "a parent that stops first": (
        lambda d: d.insert(31, [event("agent.stopping"), event("agent.stopped")]),
        "its child B is live",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name: str) -> None:
    spoil, text = WRONG[name]
    decisions = good()
    spoil(decisions)
    found = faults(decisions)
    assert any(text in fault for fault in found), found


def test_a_hole_is_found() -> None:
    events = [Event(revision=n, decision_revision=n, name="x") for n in (1, 2, 4)]
    assert check(events) == ["revision 4 (x  ): follows 2"]
