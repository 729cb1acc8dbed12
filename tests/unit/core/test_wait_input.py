from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import ReportedState

from .world import CANCELLED, INPUT, TIMED_OUT, World, got, refused

MINUTES = 5 * 60.0


def timed_out(w: World) -> bool:
    """One input wait that times out; whether it carried advice."""
    wait = w.wait(for_input=True, timeout=MINUTES)
    w.after(MINUTES)
    assert w.answer(wait) == TIMED_OUT
    return w.agent().settled[wait].advice


def test_a_message_wakes_it_and_is_still_delivered(w: World) -> None:
    wait = w.wait(for_input=True, timeout=MINUTES)
    w.message("news")
    assert w.answer(wait) == INPUT
    w.next_turn()
    assert w.delivered() == ["message news m-1"]


def test_with_input_queued_it_is_answered_at_once(w: World) -> None:
    w.message("news")
    assert w.answer(w.wait(for_input=True, timeout=MINUTES)) == INPUT
    assert w.pending() == ["message news m-1"]


def test_passive_prompts_are_no_input(w: World) -> None:
    w.prompt("by the way", activating=False)
    assert w.answer(w.wait(for_input=True, timeout=MINUTES)) is None


def test_after_its_deadline_later_input_cannot_answer_it_again(w: World) -> None:
    wait = w.wait(for_input=True, timeout=MINUTES)
    w.after(MINUTES)
    w.message()
    assert w.answer(wait) == TIMED_OUT
    assert len(w.events(e.WaitSettled)) == 1


def test_after_input_its_deadline_cannot_answer_it_again(w: World) -> None:
    wait = w.wait(for_input=True, timeout=MINUTES)
    w.message()
    w.after(2 * MINUTES)
    assert w.answer(wait) == INPUT
    assert len(w.events(e.WaitSettled)) == 1


def test_a_second_one_is_refused_and_the_first_still_wakes(w: World) -> None:
    wait = w.wait(for_input=True, timeout=MINUTES)
    with refused(Reason.INPUT_WAIT_IN_PROGRESS):
        w.wait(for_input=True, timeout=MINUTES)
    w.prompt()
    assert w.answer(wait) == INPUT


def test_a_completion_wakes_it_and_is_there_for_a_bare_wait(w: World) -> None:
    w.in_background("X")
    wait = w.wait(for_input=True, timeout=MINUTES)
    w.exits("X")
    assert w.answer(wait) == INPUT
    assert w.answer(w.wait()) == got("X")


def test_the_third_timeout_in_a_row_carries_advice_and_no_other(w: World) -> None:
    assert [timed_out(w) for _ in range(6)] == [False, False, True, False, False, False]


@pytest.mark.parametrize("progress", ["status", "tool", "call", "input", "read"])
def test_progress_begins_the_row_anew(w: World, progress: str) -> None:
    w.in_background("X")
    assert [timed_out(w) for _ in range(2)] == [False, False]
    match progress:
        case "status":
            w.status(ReportedState.WORKING)
        case "tool":
            w.do(c.RecordTool("A", "m", "task_list", "d"))
        case "call":
            w.start("Y")
        case "read":
            w.do(c.ReadTask("A", "X", "r", 0, 0))
        case "input":
            w.message()
            w.next_turn()
    assert [timed_out(w) for _ in range(4)] == [False, False, True, False]


def test_what_others_send_passively_is_no_progress(w: World) -> None:
    assert [timed_out(w) for _ in range(2)] == [False, False]
    w.prompt("by the way", activating=False)
    assert timed_out(w)


def test_a_repeated_wait_does_not_count_twice(w: World) -> None:
    assert not timed_out(w)
    w.wait(for_input=True, timeout=MINUTES, id="w1")
    assert not timed_out(w)
    assert timed_out(w)


def test_there_is_no_advice_while_the_status_is_waiting(w: World) -> None:
    w.status(ReportedState.WAITING)
    assert [timed_out(w) for _ in range(4)] == [False] * 4


def test_it_is_no_edge_of_a_turn(w: World) -> None:
    w.prompt()
    turn = w.next_turn()
    w.take(ack=w.delivery())
    timed_out(w)
    wait = w.wait(for_input=True, timeout=MINUTES)
    w.message()
    assert w.answer(wait) == INPUT
    assert w.agent().turn == turn
    assert len(w.events(e.TurnStarted)) == 1
    assert w.events(e.TurnEnded) == []


def test_an_old_deadline_never_fires_for_a_new_wait_of_the_same_name(w: World) -> None:
    w.wait(for_input=True, timeout=MINUTES, id="w")
    w.cancel_wait("w")
    assert w.answer("w") == CANCELLED
    w.stop("A")
    w.open("A")
    w.after(60)
    w.wait(for_input=True, timeout=MINUTES, id="w")
    w.after(MINUTES - 1)
    assert w.answer("w") is None
    w.after(1)
    assert w.answer("w") == TIMED_OUT
