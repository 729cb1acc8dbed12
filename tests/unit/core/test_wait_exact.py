from __future__ import annotations

import msgspec

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState, Cause, Surface

from .world import CANCELLED, INTERRUPTED, SETTINGS, TIMED_OUT, World, failed_with, got, refused


def test_a_wait_gets_the_result_once_and_there_is_never_a_notice(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    assert w.answer(wait) is None
    w.exits("X")
    assert w.answer(wait) == got("X")
    assert w.events(e.PromptQueued) == []
    assert [event.background for event in w.events(e.CallEnded, "X")] == [True]


def test_a_wait_works_after_the_notice_was_delivered(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    w.next_turn()
    assert w.delivered() == ["notice X"]
    assert w.answer(w.wait("X")) == got("X")
    assert w.consumed("X") == 1


def test_a_second_wait_finds_the_result_consumed(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    w.wait("X")
    with refused(Reason.RESULT_CONSUMED, tool_call_id="X"):
        w.wait("X")


def test_of_two_sibling_waits_one_is_installed(w: World) -> None:
    w.in_background("X")
    one = w.wait("X")
    with refused(Reason.WAIT_IN_PROGRESS):
        w.wait("X")
    w.exits("X")
    assert w.answer(one) == got("X")
    assert w.consumed("X") == 1


def test_a_foreground_result_is_named_so_and_then_consumed(w: World) -> None:
    w.begin("X")
    w.exits("X")
    assert w.answer(w.wait("X")) == failed_with(Reason.CALL_RETURNED_NORMALLY, "X")
    with refused(Reason.RESULT_CONSUMED):
        w.wait("X")


def test_the_refusal_of_a_foreground_result_is_repeatable(w: World) -> None:
    w.begin("X")
    w.exits("X")
    wait = w.wait("X", id="again")
    w.wait("X", id="again")
    assert w.answer(wait) == failed_with(Reason.CALL_RETURNED_NORMALLY, "X")


def test_a_waiter_gets_the_error_of_its_call(w: World) -> None:
    w.start("X", background=True)
    wait = w.wait("X")
    w.do(c.GroupFailed(w.call("X").group, "bad shell"))
    assert w.answer(wait) == got("X")
    result = w.call("X").result
    assert result is not None
    assert result.cause is Cause.START_ERROR


def test_a_waiter_gets_the_cancelled_outcome(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    w.cancel("X")
    w.killed("X")
    assert w.answer(wait) == got("X")
    assert w.call("X").state is CallState.CANCELLED


def test_anothers_call_is_as_unknown_as_none_and_stays_its_owners(w: World) -> None:
    w.open("B")
    w.in_background("X", agent="B")
    w.exits("X", "B")
    with refused(Reason.CALL_UNKNOWN, tool_call_id="X"):
        w.wait("X")
    with refused(Reason.CALL_UNKNOWN, tool_call_id="nothing"):
        w.wait("nothing")
    assert w.answer(w.wait("X", agent="B"), "B") == got("X")


def test_a_wait_cannot_be_waited_for(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    with refused(Reason.CALL_UNKNOWN):
        w.wait(wait)


def test_a_wait_on_a_foreground_call_shares_its_result(w: World) -> None:
    w.begin("X")
    wait = w.wait("X")
    w.exits("X")
    assert w.answer(wait) == got("X")
    assert w.consumed("X") == 0
    assert w.notices() == []


def test_a_wait_on_a_foreground_call_follows_it_to_the_background(w: World) -> None:
    w.begin("X")
    wait = w.wait("X")
    w.after(5)
    assert w.answer(wait) is None
    w.exits("X")
    assert w.answer(wait) == got("X")
    assert w.consumed("X") == 1
    assert w.events(e.PromptQueued) == []


def test_a_wait_on_a_queued_call_gets_its_cancellation() -> None:
    w = World(max_running=1)
    w.begin("first")
    w.start("X")
    wait = w.wait("X")
    w.cancel("X")
    assert w.answer(wait) == got("X")


def test_the_same_wait_id_gets_the_same_answer(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X", id="lost reply")
    w.exits("X")
    before = w.state.revision
    w.wait("X", id="lost reply")
    assert w.state.revision == before
    assert w.answer(wait) == got("X")
    assert w.agent().settled[wait].calls == ["X"]
    with refused(Reason.WAIT_ID_REUSED, wait_id="lost reply"):
        w.wait(id="lost reply")


def test_the_same_answer_is_there_when_the_agent_is_not(w: World) -> None:
    w.in_background("X")
    w.wait("X", id="w")
    w.exits("X")
    w.stop("A")
    before = w.state.revision
    w.wait("X", id="w")
    assert w.state.revision == before
    with refused(Reason.AGENT_STOPPED):
        w.wait("X", id="another")


def test_a_cancelled_wait_consumes_nothing_and_its_id_is_free(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X", id="w")
    w.cancel_wait(wait)
    assert w.answer(wait) == CANCELLED
    w.cancel_wait(wait)
    w.exits("X")
    assert w.notices() == ["X"]
    assert w.answer(w.wait("X", id="w")) == got("X")
    assert w.notices() == []


def test_a_cancelled_wait_after_the_decision_changes_nothing(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    w.exits("X")
    w.cancel_wait(wait)
    assert w.answer(wait) == got("X")
    assert w.call("X").consumed


def test_a_timeout_answers_and_consumes_nothing(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X", timeout=3)
    w.after(3)
    assert w.answer(wait) == TIMED_OUT
    w.exits("X")
    assert w.notices() == ["X"]
    assert w.answer(w.wait("X")) == got("X")


def test_a_timeout_of_nothing_asks_once(w: World) -> None:
    w.in_background("X")
    assert w.answer(w.wait("X", timeout=0)) == TIMED_OUT
    w.exits("X")
    assert w.answer(w.wait("X", timeout=0)) == got("X")


def test_a_ready_result_beats_queued_input(w: World) -> None:
    w.in_background("X", "Y")
    w.exits("X")
    w.exits("Y")
    assert w.answer(w.wait("X")) == got("X")
    assert w.notices() == ["Y"]


def test_another_completion_interrupts_and_the_retry_delivers_once(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X")
    w.exits("Y")
    assert w.answer(wait) == INTERRUPTED
    w.next_turn()
    retry = w.wait("X")
    w.exits("X")
    assert w.answer(retry) == got("X")
    assert w.answer(w.wait("Y")) == got("Y")
    assert (w.consumed("X"), w.consumed("Y")) == (1, 1)


def test_limits_of_parked_waits_are_named() -> None:
    w = World(settings=msgspec.structs.replace(SETTINGS, waits_per_agent=1))
    w.in_background("X", "Y")
    w.wait("X")
    with refused(Reason.WAIT_LIMIT, limit="1"):
        w.wait("Y")


def test_an_agent_with_task_notices_can_wait_all_the_same() -> None:
    w = World(surface=Surface.TASKS)
    w.in_background("X")
    w.exits("X")
    assert w.notices() == ["X"]
    assert w.answer(w.wait("X")) == got("X")
    assert w.notices() == []


def test_a_tool_that_answered_at_once_returned_normally(w: World) -> None:
    w.child("kid")
    w.do(c.SendMessage("A", "said", "d", "kid", "hello"))
    w.do(c.SendPrompt("A", "prompted", "d", "hello", True))
    before = w.state.revision
    for _ in range(2):
        with refused(Reason.CALL_RETURNED_NORMALLY, tool_call_id="said"):
            w.wait("said")
    with refused(Reason.CALL_UNKNOWN):
        w.wait("prompted")
    assert w.state.revision == before
