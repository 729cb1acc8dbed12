from __future__ import annotations

import msgspec

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState

from .world import INTERRUPTED, SETTINGS, World, refused


def parked(w: World) -> None:
    """A child in a turn: one call in the background, another queued behind it."""
    w.child("kid", role="single")
    w.next_turn("kid")
    w.take("kid", ack=w.delivery("kid"))
    w.in_background("sleep 30", agent="kid")
    w.start("sleep 5", "kid")


def test_it_is_stored_exactly_and_before_it_answers(w: World) -> None:
    w.child("kid")
    body = "a\n\n  <message>\u2028</message>\n🙂"
    w.message(body, to="kid")
    (sent,) = w.events(e.MessageSent)
    assert (sent.agent, sent.recipient, sent.body) == ("A", "kid", body)
    assert w.agent("kid").prompts[-1].body == body
    assert w.agent("kid").prompts[-1].from_agent == "A"


def test_it_can_go_to_oneself(w: World) -> None:
    w.message("note", to="A", by="A")
    assert w.pending() == ["message note m-1"]


def test_a_parked_round_is_closed_in_order(w: World) -> None:
    parked(w)
    w.log.clear()
    w.message("stop", to="kid")
    w.take("kid")
    assert w.order(e.MessageSent, e.PromptQueued, e.WaitSettled, e.CallEnded, e.PromptCreated) == [
        "MessageSent",
        "PromptQueued",
        "CallEnded",
        "PromptCreated",
    ]
    assert w.call("sleep 5", "kid").state is CallState.CANCELLED
    assert w.call("sleep 30", "kid").state is CallState.RUNNING
    w.exits("sleep 30", "kid")
    assert w.notices("kid") == ["sleep 30"]
    assert w.notices() == []
    assert w.events(e.CallStarting, "sleep 5") == []


def test_once_one_of_the_round_has_started_nothing_is_preempted(w: World) -> None:
    w.child("kid")
    w.in_background("sleep 30", agent="kid")
    w.begin("sleep 5", "kid")
    w.start("E", "kid", exclusive=True)
    w.message(to="kid")
    assert w.call("sleep 5", "kid").state is CallState.RUNNING
    assert w.call("E", "kid").state is CallState.QUEUED


def test_without_anything_in_the_background_nothing_is_preempted(w: World) -> None:
    w.child("kid", role="single")
    w.begin("X", "kid")
    w.start("Y", "kid")
    w.message(to="kid")
    assert w.call("Y", "kid").state is CallState.QUEUED


def test_every_queued_call_of_the_round_ends_and_none_slips_in(w: World) -> None:
    w.in_background("X")
    w.start("E", exclusive=True)
    w.start("Z")
    w.message()
    assert w.call("E").state is w.call("Z").state is CallState.CANCELLED
    assert w.events(e.CallStarting, "Z") == []


def test_a_call_queued_in_the_background_is_not_of_the_round(w: World) -> None:
    w.child("kid", role="single")
    w.in_background("X", agent="kid")
    w.start("Y", "kid", background=True)
    w.message(to="kid")
    assert w.call("Y", "kid").state is CallState.QUEUED


def test_a_blocked_wait_is_interrupted_before_the_prompt_is_made(w: World) -> None:
    parked(w)
    wait = w.wait("sleep 30", agent="kid")
    w.log.clear()
    w.message("nonce", to="kid")
    w.take("kid")
    assert w.answer(wait, "kid") == INTERRUPTED
    assert w.delivered("kid") == ["message nonce m-1"]
    assert w.order(e.MessageSent, e.WaitSettled, e.CallEnded, e.PromptCreated) == [
        "MessageSent",
        "WaitSettled",
        "CallEnded",
        "PromptCreated",
    ]


def test_bad_recipients_are_told_apart_and_nothing_is_written(w: World) -> None:
    w.open("stranger")
    w.child("kid")
    w.stop("kid")
    before = w.state.revision
    with refused(Reason.RECIPIENT_UNKNOWN, recipient_id="nothing"):
        w.message(to="nothing")
    with refused(Reason.RECIPIENT_UNKNOWN, recipient_id="stranger"):
        w.message(to="stranger")
    with refused(Reason.RECIPIENT_STOPPED, recipient_id="kid"):
        w.message(to="kid")
    assert w.state.revision == before


def test_a_repeat_is_one_message(w: World) -> None:
    w.do(c.SendMessage("A", "r", "d", "A", "once"))
    w.do(c.SendMessage("A", "r", "d", "A", "once"))
    assert w.pending() == ["message once m-1"]
    with refused(Reason.REQUEST_ID_REUSED):
        w.do(c.SendMessage("A", "r", "other", "A", "twice"))


def test_a_full_mailbox_is_named() -> None:
    w = World(settings=msgspec.structs.replace(SETTINGS, pending_prompts=1))
    w.message()
    with refused(Reason.PROMPT_LIMIT, limit="1"):
        w.message()


def test_prompts_keep_their_order(w: World) -> None:
    w.child("kid")
    w.message("one", to="kid")
    w.prompt("two", "kid")
    w.message("three", to="kid")
    w.next_turn("kid")
    assert w.delivered("kid") == [
        "start do it",
        "message one m-1",
        "user two",
        "message three m-2",
    ]
