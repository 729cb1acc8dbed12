from __future__ import annotations

import msgspec

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.values import PromptKind, Surface

from .world import INTERRUPTED, SETTINGS, World, got


def test_it_is_activating_and_typed(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    (prompt,) = w.agent().prompts
    assert (prompt.kind, prompt.activating, prompt.call) == (PromptKind.NOTICE, True, "X")


def test_consuming_takes_back_a_pending_one(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    w.wait()
    assert w.notices() == []
    assert len(w.events(e.PromptSuppressed, "X")) == 1
    assert len(w.events(e.CallEnded, "X")) == 1


def test_a_delivered_one_is_never_repeated(w: World) -> None:
    w.in_background("X", "Y")
    w.exits("X")
    w.next_turn()
    wait = w.wait("X", "Y")
    w.cancel_wait(wait)
    assert w.notices() == []


def test_one_that_a_wait_suppressed_comes_back_when_the_wait_is_cancelled(w: World) -> None:
    w.in_background("X", "Y")
    ended, running = w.wait("X", "Y"), None
    w.exits("X")
    w.cancel_wait(ended)
    assert w.notices() == ["X"]
    running = w.wait("Y")
    w.cancel_wait(running)
    assert w.notices() == ["X"]
    w.exits("Y")
    assert w.notices() == ["X", "Y"]
    w.after(60)
    assert w.notices() == ["X", "Y"]


def test_none_is_invented_for_a_foreground_call(w: World) -> None:
    w.begin("X")
    wait = w.wait("X")
    w.cancel_wait(wait)
    w.exits("X")
    assert w.notices() == []


def test_several_that_come_back_at_once_come_each_once_and_in_order(w: World) -> None:
    w.in_background("a", "b", "c", "d")
    wait = w.wait("a", "b", "c", "d")
    for call in ("a", "b", "c"):
        w.exits(call)
    w.message()
    assert w.answer(wait) == INTERRUPTED
    assert w.notices() == ["a", "b", "c"]


def test_one_that_comes_back_ends_other_waits_like_any_other(w: World) -> None:
    w.in_background("X", "Y", "Z")
    both, single = w.wait("X", "Y"), w.wait("Z")
    w.exits("X")
    w.cancel_wait(both)
    assert w.notices() == ["X"]
    assert w.answer(single) == INTERRUPTED


def test_a_delivered_one_that_nobody_acknowledged_comes_with_the_next_turn(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    w.next_turn()
    w.end_turn(ack=False)
    assert w.next_turn() == "t-2"
    assert w.delivered() == ["notice X"]


def test_but_not_if_its_result_was_consumed_meanwhile(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    w.next_turn()
    w.wait("X")
    w.end_turn(ack=False)
    assert w.next_turn() == ""
    w.prompt("and now?")
    w.next_turn()
    assert w.delivered() == ["user and now?"]


def test_nor_if_it_was_consumed_between_the_turns(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    w.next_turn()
    w.end_turn(ack=False)
    w.wait("X")
    assert w.next_turn() == ""


def test_one_that_is_pending_again_can_be_taken_back(w: World) -> None:
    w.in_background("X", "Y")
    w.exits("X")
    w.next_turn()
    w.end_turn(ack=False)
    w.exits("Y")
    w.do(c.CancelTurn("A"))
    w.next_turn()
    assert w.delivered() == ["notice X", "notice Y"]
    assert w.answer(w.wait("X")) == got("X")


class TestOfTasks:
    def test_it_is_passive_and_wakes_nobody(self) -> None:
        w = World(surface=Surface.TASKS)
        w.in_background("X", "Y")
        wait = w.wait("Y")
        w.exits("X")
        assert w.notices() == ["X"]
        assert w.answer(wait) is None
        assert w.next_turn() == ""
        w.prompt("go on")
        w.next_turn()
        assert w.delivered() == ["notice X", "user go on"]

    def test_an_owner_can_be_woken_but_not_for_ever(self) -> None:
        settings = msgspec.structs.replace(
            SETTINGS, wake_on_task_notice=True, max_consecutive_wakes=2
        )
        w = World(surface=Surface.TASKS, settings=settings)
        turns = []
        for i in range(4):
            w.in_background(f"c{i}")
            w.exits(f"c{i}")
            turns.append(w.next_turn())
            if turns[-1]:
                w.end_turn()
        assert turns == ["t-1", "t-2", "", ""]
        w.prompt("go on")
        assert w.next_turn() == "t-3"
        assert w.delivered() == ["notice c2", "notice c3", "user go on"]
        w.end_turn()
        w.in_background("X")
        w.exits("X")
        assert w.next_turn() == "t-4"
