from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState, Cause

from .world import CANCELLED, INTERRUPTED, TIMED_OUT, World, failed_with, got, refused


@pytest.mark.parametrize("size", [1, 64])
def test_a_set_answers_in_request_order(w: World, size: int) -> None:
    calls = [f"c{i}" for i in range(size)]
    w.in_background(*calls)
    wait = w.set_wait(*reversed(calls))
    for call in calls:
        assert w.answer(wait) is None
        w.exits(call)
    assert w.answer(wait) == got(*reversed(calls))
    assert all(w.consumed(call) == 1 for call in calls)
    assert w.events(e.PromptQueued) == []


def test_a_set_that_is_complete_is_answered_at_once_with_its_errors(w: World) -> None:
    w.in_background("a")
    w.start("b", background=True)
    w.do(c.GroupFailed(w.call("b").group, "no shell"))
    w.exits("a")
    assert w.answer(w.wait("b", "a")) == got("b", "a")
    result = w.call("b").result
    assert result is not None
    assert result.cause is Cause.START_ERROR
    assert w.events(e.WaitInstalled) == []
    assert w.notices() == []


def test_one_bad_member_rejects_the_whole_set_and_changes_nothing(w: World) -> None:
    w.open("B")
    w.in_background("foreign", agent="B")
    w.in_background("ok", "eaten", "waited", "reserved", "other")
    w.exits("ok")
    w.exits("eaten")
    w.wait("eaten")
    w.begin("returned")
    w.exits("returned")
    w.next_turn()  # with the notices
    w.wait("waited")
    w.wait("reserved", "other")
    before = w.replayed()
    bad = {
        "nothing": Reason.CALL_UNKNOWN,
        "foreign": Reason.CALL_UNKNOWN,
        "eaten": Reason.RESULT_CONSUMED,
        "returned": Reason.CALL_RETURNED_NORMALLY,
        "waited": Reason.WAIT_IN_PROGRESS,
        "reserved": Reason.WAIT_IN_PROGRESS,
    }
    for call, reason in bad.items():
        with refused(reason, tool_call_id=call):
            w.wait("ok", call)
    assert w.state == before
    assert w.answer(w.wait("ok")) == got("ok")


def test_a_cancelled_member_is_an_error_member_and_the_others_are_waited_for(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X", "Y")
    w.cancel("X")
    w.killed("X")
    assert w.answer(wait) is None
    w.exits("Y")
    assert w.answer(wait) == got("X", "Y")
    assert w.call("X").state is CallState.CANCELLED


def test_a_cancelled_set_releases_everything(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X", "Y")
    w.exits("X")
    assert w.notices() == []
    w.cancel_wait(wait)
    assert w.answer(wait) == CANCELLED
    assert w.notices() == ["X"]
    assert w.call("Y").state is CallState.RUNNING
    w.exits("Y")
    assert w.notices() == ["X", "Y"]
    assert w.answer(w.wait("Y")) == got("Y")
    assert w.answer(w.wait("X")) == got("X")


def test_an_interrupted_set_consumes_nothing_and_the_retry_all(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X", "Y")
    w.exits("X")
    w.message("stop that")
    assert w.answer(wait) == INTERRUPTED
    assert w.notices() == ["X"]
    w.next_turn()
    retry = w.wait("X", "Y")
    w.exits("Y")
    assert w.answer(retry) == got("X", "Y")
    assert (w.consumed("X"), w.consumed("Y")) == (1, 1)


def test_a_foreground_member_is_part_of_the_answer_but_was_not_queued(w: World) -> None:
    w.in_background("X")
    w.begin("Y")
    wait = w.wait("X", "Y")
    w.exits("Y")
    w.exits("X")
    assert w.answer(wait) == got("X", "Y")
    assert (w.consumed("X"), w.consumed("Y")) == (1, 0)


def test_a_set_times_out_without_consuming(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X", "Y", timeout=1)
    w.exits("X")
    w.after(1)
    assert w.answer(wait) == TIMED_OUT
    assert w.notices() == ["X"]


def test_a_task_read_of_a_reserved_result_leaves_it_to_the_set(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X", "Y")
    w.exits("X")
    w.do(c.ReadTask("A", "X", "r", 0, 0))
    w.exits("Y")
    assert w.answer(wait) == got("X", "Y")


class TestAnyOfASet:
    def test_the_first_to_end_is_the_answer_and_the_rest_is_free(self, w: World) -> None:
        w.in_background("X", "Y", "Z")
        wait = w.wait("X", "Y", any_of=True)
        w.exits("Y")
        assert w.answer(wait) == got("Y")
        w.exits("X")
        assert w.notices() == ["X"]
        assert w.answer(w.wait("X")) == got("X")

    def test_of_several_that_have_ended_it_is_the_first_that_did(self, w: World) -> None:
        w.in_background("X", "Y")
        w.exits("Y")
        w.exits("X")
        assert w.answer(w.wait("X", "Y", any_of=True)) == got("Y")
        assert w.notices() == ["X"]

    def test_its_members_are_taken(self, w: World) -> None:
        w.in_background("X", "Y")
        w.wait("X", "Y", any_of=True)
        with refused(Reason.WAIT_IN_PROGRESS):
            w.wait("Y")

    def test_a_bare_wait_behind_it_is_told_when_nothing_is_left(self, w: World) -> None:
        w.in_background("X")
        first = w.wait("X", any_of=True)
        bare = w.wait()
        w.exits("X")
        assert w.answer(first) == got("X")
        assert w.answer(bare) == failed_with(Reason.NOTHING_TO_WAIT_FOR)

    def test_interrupted_it_gives_everything_back(self, w: World) -> None:
        w.in_background("X", "Y")
        wait = w.wait("X", "Y", any_of=True)
        w.message()
        assert w.answer(wait) == INTERRUPTED
        w.exits("X")
        w.exits("Y")
        assert w.notices() == ["X", "Y"]
