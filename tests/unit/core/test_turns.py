from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.settings import Settings

from .world import World, refused


def test_a_turn_begins_with_activating_input_only(w: World) -> None:
    w.prompt("by the way", activating=False)
    assert w.next_turn() == ""
    w.prompt("now")
    assert w.next_turn() == "t-1"
    assert w.delivered() == ["user by the way", "user now"]
    assert w.pending() == []


def test_a_delivery_is_repeated_until_it_is_acknowledged(w: World) -> None:
    w.prompt("now")
    w.next_turn()
    delivery = w.delivery()
    w.prompt("and this")
    w.next_turn()
    w.take()
    assert (w.delivery(), w.delivered()) == (delivery, ["user now"])
    w.take(ack="d-999")
    assert w.delivery() == delivery
    w.take(ack=delivery)
    assert w.delivered() == ["user and this"]
    w.take(ack=delivery)
    assert w.delivered() == ["user and this"]


def test_a_driver_that_replaces_another_gets_what_was_not_acknowledged(w: World) -> None:
    w.prompt("one")
    turn = w.next_turn()
    w.take(ack=w.delivery())
    w.prompt("two")
    w.take()
    assert w.next_turn() == turn
    assert w.delivered() == ["user two"]
    assert len(w.events(e.TurnStarted)) == 1


def test_a_driver_that_replaces_another_gets_what_has_come_since(w: World) -> None:
    w.prompt("one")
    turn = w.next_turn()
    w.take(ack=w.delivery())
    w.prompt("two")
    assert w.next_turn() == turn
    assert w.delivered() == ["user two"]


def test_what_a_turn_has_not_acknowledged_comes_with_the_next(w: World) -> None:
    w.prompt("one")
    w.next_turn()
    w.end_turn(ack=False)
    assert w.delivered() == []
    w.prompt("two", activating=False)
    assert w.next_turn() == "t-2"
    assert w.delivered() == ["user one", "user two"]
    w.end_turn()
    assert w.next_turn() == ""


def test_it_can_still_be_acknowledged_after_the_turn(w: World) -> None:
    w.prompt("one")
    w.next_turn()
    delivery = w.delivery()
    w.end_turn(ack=False)
    assert w.next_turn(ack=delivery) == ""


def test_a_turn_ends_once(w: World) -> None:
    w.prompt()
    turn = w.next_turn()
    w.end_turn("answer")
    before = w.state.revision
    w.do(c.EndTurn("A", turn, "answer"))
    assert w.state.revision == before
    with refused(Reason.TURN_UNKNOWN, turn_id="t-77"):
        w.do(c.EndTurn("A", "t-77", "answer"))
    with refused(Reason.TURN_UNKNOWN):
        w.do(c.EndTurn("A", "", "answer"))


def test_the_end_of_an_earlier_turn_does_not_end_the_next(w: World) -> None:
    w.prompt()
    first = w.next_turn()
    w.end_turn()
    w.prompt()
    second = w.next_turn()
    w.do(c.EndTurn("A", first, "late"))
    assert w.agent().turn == second


def test_outside_of_a_turn_nothing_is_taken(w: World) -> None:
    w.prompt()
    w.take()
    assert w.delivered() == []
    assert w.pending() == ["user hello"]


def test_waits_and_calls_outlive_a_turn(w: World) -> None:
    w.prompt()
    w.next_turn()
    w.in_background("X")
    wait = w.wait("X")
    w.end_turn()
    assert w.answer(wait) is None
    w.exits("X")
    assert w.call("X").consumed


def test_a_prompt_is_taken_in_once(w: World) -> None:
    w.do(c.SendPrompt("A", "r", "d", "text"))
    w.do(c.SendPrompt("A", "r", "d", "text"))
    assert w.pending() == ["user text"]
    assert w.agent().records["r"].answer == "p-1"
    with refused(Reason.REQUEST_ID_REUSED, request_id="r"):
        w.do(c.SendPrompt("A", "r", "other", "text"))


@pytest.mark.parametrize("agent", ["nothing", ""])
def test_an_unknown_agent_has_no_turns(w: World, agent: str) -> None:
    with refused(Reason.AGENT_UNKNOWN, agent_id=agent):
        w.next_turn(agent)


def test_a_delivery_holds_what_a_message_should() -> None:
    """The rest follows when it is acknowledged, in the same turn."""
    w = World(settings=Settings(delivery_bytes=2_000))
    for letter in "abc":
        w.prompt(letter * 700, activating=letter == "c")
    assert w.next_turn() == "t-1"
    assert w.delivered() == ["user " + "a" * 700, "user " + "b" * 700]
    w.take(ack=w.delivery())
    assert w.delivered() == ["user " + "c" * 700]
    assert w.pending() == []


def test_one_prompt_is_delivered_however_large_it_is() -> None:
    w = World(settings=Settings(delivery_bytes=2_000))
    w.prompt("é" * 1_500)
    w.prompt("next")
    w.next_turn()
    assert w.delivered() == ["user " + "é" * 1_500]
    w.end_turn()
    assert w.next_turn() == "t-2"
    assert w.delivered() == ["user next"]


def test_half_an_answer_of_an_agent_that_nobody_ends_is_none(w: World) -> None:
    w.prompt("one")
    turn = w.next_turn()
    before = w.state.revision
    w.do(c.EndTurn("A", turn, "half of", w.delivery(), draft=True))
    assert w.state.revision == before
    assert w.agent().turn == turn
    assert w.delivered() == ["user one"]
