from __future__ import annotations

import msgspec

from pinfoldd.core import events as e
from pinfoldd.core.values import ReportedState

from .world import INPUT, INTERRUPTED, World, got


def test_a_message_interrupts_an_exact_wait_and_the_call_runs_on(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    w.message("look here")
    assert w.answer(wait) == INTERRUPTED
    w.next_turn()
    w.exits("X")
    assert w.notices() == ["X"]
    assert w.answer(w.wait("X")) == got("X")
    assert w.notices() == []
    assert w.consumed("X") == 1


def test_one_activation_interrupts_every_wait(w: World) -> None:
    w.in_background("X", "Y", "Z", "V", "W")
    waits = [w.wait("X"), w.wait("Y", "Z"), w.wait("V", "W", any_of=True), w.wait()]
    for_input = w.wait(for_input=True, timeout=300)
    w.message()
    assert [w.answer(wait) for wait in waits] == [INTERRUPTED] * 4
    assert w.answer(for_input) == INPUT
    assert w.agent().waits == {}


def test_other_agents_waits_are_left_alone(w: World) -> None:
    w.child("kid")
    w.in_background("X")
    wait = w.wait("X")
    w.message(to="kid")
    assert w.answer(wait) is None


def test_a_wait_begun_after_the_input_is_interrupted_at_once(w: World) -> None:
    w.in_background("X", "Y")
    w.message()
    for wait in (w.wait("X"), w.wait("X", "Y"), w.wait()):
        assert w.answer(wait) == INTERRUPTED
    assert w.events(e.WaitInstalled) == []


def test_the_answer_names_no_call_and_nothing_of_the_input(w: World) -> None:
    w.in_background("X")
    w.wait("X")
    w.message("a secret")
    settled = w.events(e.WaitSettled)[0]
    assert settled.calls == []
    assert b"secret" not in msgspec.msgpack.encode(settled)


def test_input_is_queued_then_waits_are_settled_then_prompts_are_made(w: World) -> None:
    w.prompt()
    w.next_turn()
    w.take(ack=w.delivery())
    w.in_background("X")
    w.wait("X")
    w.log.clear()
    w.message()
    w.take()
    assert w.order(e.MessageSent, e.PromptQueued, e.WaitSettled, e.PromptCreated) == [
        "MessageSent",
        "PromptQueued",
        "WaitSettled",
        "PromptCreated",
    ]


def test_a_passive_prompt_interrupts_nothing(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    w.prompt("by the way", activating=False)
    assert w.answer(wait) is None


def test_a_state_line_of_a_watched_agent_interrupts_but_begins_no_turn(w: World) -> None:
    w.child("kid")
    w.in_background("X")
    wait = w.wait("X")
    w.status(ReportedState.WAITING, "for you", "kid")
    assert w.answer(wait) == INTERRUPTED
    assert w.next_turn() == ""


def test_a_completion_in_the_foreground_interrupts_nothing(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    w.begin("Y")
    w.exits("Y")
    assert w.answer(wait) is None


def test_its_own_pending_notice_does_not_interrupt_a_set(w: World) -> None:
    w.in_background("X", "Y")
    w.exits("X")
    assert w.notices() == ["X"]
    wait = w.wait("X", "Y")
    assert w.answer(wait) is None
    w.exits("Y")
    assert w.answer(wait) == got("X", "Y")
    assert w.notices() == []
