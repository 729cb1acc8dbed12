from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState, Cause, Exit, Extent, Receipt

from .world import World, got, refused


def test_it_is_accepted_at_once_and_the_end_comes_later(w: World) -> None:
    w.in_background("X")
    w.cancel("X", reason="superseded")
    assert w.call("X").state is CallState.STOPPING
    assert [n.text for n in w.events(e.Notice, "X")] == ["tool call cancellation request"]
    (request,) = w.events(e.CancelRequested, "X")
    assert (request.by, request.reason) == ("agent", "superseded")
    w.killed("X")
    result = w.call("X").result
    assert result is not None
    assert (result.state, result.cause) == (CallState.CANCELLED, Cause.CANCELLED)
    assert result.cancel_reason == "superseded"
    assert w.answer(w.wait("X")) == got("X")


def test_of_two_one_is_accepted(w: World) -> None:
    w.in_background("X")
    w.cancel("X")
    with refused(Reason.CALL_ALREADY_CANCELED):
        w.cancel("X")
    w.killed("X")
    with refused(Reason.CALL_ALREADY_CANCELED):
        w.cancel("X")
    assert len(w.events(e.Notice)) == 1


def test_what_ended_otherwise_is_done(w: World) -> None:
    w.in_background("X")
    w.exits("X", code=1)
    with refused(Reason.CALL_ALREADY_DONE):
        w.cancel("X")


def test_a_cancel_of_what_its_timeout_is_ending(w: World) -> None:
    """It runs still, so nobody may be told that it is done; that its time was up stays true."""
    w.begin("Y", timeout=1)
    w.after(1)
    w.cancel("Y")
    with refused(Reason.CALL_ALREADY_CANCELED):
        w.cancel("Y")
    assert len(w.events(e.CancelRequested)) == len(w.events(e.CallStopping)) == 1
    w.killed("Y")
    assert w.call("Y").state is CallState.TIMED_OUT
    with refused(Reason.CALL_ALREADY_DONE):
        w.cancel("Y")


def test_unknown_foreign_and_agent_ids_are_told_apart_from_nothing(w: World) -> None:
    w.open("B")
    w.child("kid")
    w.in_background("X", agent="B")
    for ended in (False, True):
        if ended:
            w.cancel("X", "B")
            w.killed("X", "B")
        for target in ("X", "nothing", "kid", "B"):
            with refused(Reason.CANCEL_TARGET_UNKNOWN, tool_call_id=target):
                w.cancel(target)


def test_a_wait_is_not_cancellable_by_it(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    with refused(Reason.CALL_NOT_CANCELLABLE):
        w.cancel(wait)
    w.exits("X")
    with refused(Reason.CALL_ALREADY_DONE):
        w.cancel(wait)


def test_a_tool_that_was_decided_at_once_is_done(w: World) -> None:
    w.do(c.RecordTool("A", "m", "message", "d"))
    with refused(Reason.CALL_ALREADY_DONE):
        w.cancel("m")


def test_a_queued_call_ends_at_once_and_nothing_is_spawned() -> None:
    w = World(max_running=1)
    w.begin("first")
    w.start("X")
    w.cancel("X")
    assert w.call("X").state is CallState.CANCELLED
    w.exits("first")
    assert w.events(e.CallStarting, "X") == []
    assert len(w.events(e.CallEnded, "X")) == 1


def test_a_sibling_is_not_touched(w: World) -> None:
    w.in_background("X", "Y")
    w.cancel("X")
    w.killed("X")
    assert w.call("Y").state is CallState.RUNNING
    w.exits("Y")
    assert w.notices() == ["X", "Y"]


def test_a_late_success_is_ignored(w: World) -> None:
    w.in_background("X")
    w.cancel("X")
    w.killed("X")
    w.do(c.GroupExited(w.call("X").group, Exit(code=0), Extent(), w.mono))
    assert [event.result.state for event in w.events(e.CallEnded, "X")] == [CallState.CANCELLED]


def test_an_exit_that_comes_first_wins(w: World) -> None:
    w.in_background("X")
    w.exits("X", code=0)
    with refused(Reason.CALL_ALREADY_DONE):
        w.cancel("X")
    assert w.call("X").state is CallState.SUCCEEDED


def test_an_exit_of_zero_after_the_request_is_still_cancelled(w: World) -> None:
    w.in_background("X")
    w.cancel("X")
    group = w.call("X").group
    w.do(c.GroupExited(group, Exit(code=0, leftover=3), Extent(5, 1), w.mono))
    assert w.call("X").state is CallState.STOPPING  # until the group is proven empty
    w.do(c.GroupEmpty(group, Receipt(ended=4), w.mono))
    result = w.call("X").result
    assert result is not None
    assert result.state is CallState.CANCELLED
    assert result.exit == Exit(code=0)  # what it left behind was ended too
    assert result.receipt == Receipt(ended=4)
    assert result.output == Extent(5, 1)


def test_an_exit_that_is_told_twice_meanwhile_counts_once(w: World) -> None:
    w.in_background("X")
    w.cancel("X")
    group = w.call("X").group
    for code in (0, 1):
        w.do(c.GroupExited(group, Exit(code=code, leftover=3), Extent(), w.mono))
    w.do(c.GroupFailed(group, "too late"))
    assert w.call("X").exit_seen == Exit(code=0, leftover=3)
    assert len(w.events(e.LeaderExited)) == 1


def test_a_group_that_is_empty_before_its_exit_is_told_has_ended(w: World) -> None:
    w.in_background("X")
    w.cancel("X")
    group = w.call("X").group
    w.do(c.GroupEmpty(group, Receipt(), w.mono))
    assert w.call("X").state is CallState.CANCELLED
    w.do(c.GroupExited(group, Exit(code=0), Extent(), w.mono))
    assert len(w.events(e.CallEnded)) == 1


def test_the_duration_is_that_of_its_running_time(w: World) -> None:
    w.in_background("X")
    w.after(4.5)
    w.cancel("X")
    w.after(0.3)
    w.killed("X", size=9)
    result = w.call("X").result
    assert result is not None
    assert result.seconds == pytest.approx(6.8)
    assert result.output.size == 9


def test_a_spawn_that_fails_after_the_request_is_cancelled(w: World) -> None:
    w.start("X")
    w.cancel("X")
    w.do(c.GroupFailed(w.call("X").group, "too late"))
    assert w.call("X").state is CallState.CANCELLED


def test_a_start_that_is_told_after_the_request_is_taken_in(w: World) -> None:
    w.start("X")
    w.cancel("X")
    w.runs("X")
    assert w.call("X").pid
    w.killed("X")
    assert w.call("X").state is CallState.CANCELLED


def test_a_stop_that_does_not_succeed_frees_the_place_and_names_the_pids() -> None:
    w = World(max_running=1)
    w.begin("X")
    w.start("Y")
    w.cancel("X")
    w.survives("X")
    result = w.call("X").result
    assert result is not None
    assert result.state is CallState.FAILED
    assert result.receipt is not None
    assert [s.pid for s in result.receipt.survivors] == [77]
    assert w.call("Y").state is CallState.RUNNING


def test_a_repeat_of_the_cancel_itself_is_accepted_again(w: World) -> None:
    w.in_background("X")
    w.do(c.CancelCall("A", "X", record="k", record_digest="d"))
    before = w.state.revision
    w.do(c.CancelCall("A", "X", record="k", record_digest="d"))
    assert w.state.revision == before
    with refused(Reason.CALL_ID_REUSED, tool_call_id="k"):
        w.do(c.CancelCall("A", "X", record="k", record_digest="other"))


def test_a_foreground_call_can_go_to_the_background_while_it_is_ended(w: World) -> None:
    w.begin("X")
    w.cancel("X")
    w.after(3)
    assert w.call("X").background
    w.killed("X")
    assert w.notices() == ["X"]


class TestOfATurn:
    def test_its_calls_end_with_passive_notices_and_no_turn_begins(self, w: World) -> None:
        w.open("B")
        w.in_background("other", agent="B")
        w.prompt("do it")
        w.next_turn()
        w.take(ack=w.delivery())
        w.in_background("bg")
        w.begin("fg")
        wait = w.wait("bg")
        w.do(c.CancelTurn("A", "enough"))
        assert w.agent().turn == ""
        assert w.answer(wait) is not None
        w.killed("bg")
        w.killed("fg")
        assert w.notices() == ["bg"]
        assert not w.call("fg").background
        assert w.call("fg").state is CallState.CANCELLED
        assert w.next_turn() == ""
        w.prompt("something else")
        w.next_turn()
        assert w.delivered() == ["notice bg", "user something else"]
        assert w.call("other", "B").state is CallState.RUNNING
        w.exits("other", "B")
        assert w.notices("B") == ["other"]

    def test_a_call_that_was_being_ended_already_wakes_nobody_either(self, w: World) -> None:
        w.in_background("X")
        w.cancel("X")
        w.do(c.CancelTurn("A"))
        w.killed("X")
        assert w.notices() == ["X"]
        assert w.next_turn() == ""
        assert len(w.events(e.Notice)) == 1

    def test_queued_calls_end_and_none_of_them_is_started_on_the_way(self) -> None:
        w = World(max_running=1)
        w.in_background("X")
        w.start("Y", background=True)
        w.start("Z")
        w.do(c.CancelTurn("A"))
        assert w.call("Y").state is CallState.CANCELLED
        assert w.call("Z").state is CallState.CANCELLED
        w.killed("X")
        assert w.events(e.CallStarting, "Y") == []
        assert w.events(e.CallStarting, "Z") == []
        assert w.next_turn() == ""

    def test_behind_an_exclusive_call_nothing_is_started_on_the_way(self, w: World) -> None:
        w.in_background("X")
        w.start("E", exclusive=True)
        w.start("Z")
        w.do(c.CancelTurn("A"))
        assert w.events(e.CallStarting, "Z") == []
        assert w.call("Z").state is CallState.CANCELLED

    def test_a_notice_that_comes_back_by_it_wakes_nobody(self, w: World) -> None:
        w.in_background("X", "Y")
        w.wait("X", "Y")
        w.exits("X")
        w.do(c.CancelTurn("A"))
        assert w.notices() == ["X"]
        assert w.next_turn() == ""

    def test_what_it_was_about_does_not_begin_anew_by_itself(self, w: World) -> None:
        w.prompt("do it")
        w.next_turn()
        w.do(c.CancelTurn("A"))
        assert w.next_turn() == ""
        w.prompt("something else")
        w.next_turn()
        assert w.delivered() == ["user do it", "user something else"]

    def test_a_late_acknowledgement_of_it_counts(self, w: World) -> None:
        w.prompt("do it")
        w.next_turn()
        delivery = w.delivery()
        w.do(c.CancelTurn("A"))
        w.prompt("something else")
        w.next_turn(ack=delivery)
        assert w.delivered() == ["user something else"]

    def test_the_drivers_late_answer_is_dropped(self, w: World) -> None:
        w.prompt("do it")
        turn = w.next_turn()
        w.do(c.CancelTurn("A"))
        w.do(c.EndTurn("A", turn, "late"))
        assert [event.answer for event in w.events(e.TurnEnded)] == [""]
