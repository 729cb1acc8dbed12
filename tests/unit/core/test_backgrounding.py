from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState, Cause, Extent, Surface

from .world import World, refused


def test_a_quick_call_returns_in_the_foreground_and_is_never_announced(w: World) -> None:
    w.begin("X")
    w.after(0.5)
    w.exits("X")
    w.after(10)
    assert w.call("X").state is CallState.SUCCEEDED
    assert w.events(e.CallBackgrounded) == []
    assert w.notices() == []


def test_a_slow_call_goes_to_the_background_after_its_budget_and_is_announced_once(
    w: World,
) -> None:
    w.begin("X")
    w.after(1.99)
    assert not w.call("X").background
    w.after(0.01)
    assert w.call("X").background
    w.after(2)
    w.exits("X")
    assert [event.background for event in w.events(e.CallEnded)] == [True]
    assert w.notices() == ["X"]
    w.after(100)
    assert w.notices() == ["X"]


def test_the_budget_begins_with_the_execution_not_with_the_request() -> None:
    w = World(max_running=1)
    w.begin("first")
    w.start("X")
    w.after(30)
    w.exits("first")
    w.after(3)  # the keeper takes its time
    w.runs("X")
    w.after(1.9)
    assert not w.call("X").background
    w.after(0.1)
    assert w.call("X").background


def test_a_call_can_start_in_the_background(w: World) -> None:
    w.start("X", background=True)
    w.runs("X")
    w.exits("X")
    assert w.events(e.CallBackgrounded) == []
    assert w.notices() == ["X"]


def test_a_call_without_a_budget_stays_in_the_foreground(w: World) -> None:
    w.start("X", budget=None)
    w.runs("X")
    w.after(1000)
    assert not w.call("X").background


def test_without_a_surface_nothing_goes_to_the_background() -> None:
    w = World(surface=Surface.NONE)
    w.begin("X")
    w.after(100)
    assert not w.call("X").background
    with refused(Reason.NO_CONTROL_SURFACE):
        w.start("Y", background=True)
    assert "Y" not in w.agent().calls
    w.start("Z")
    assert w.call("Z").task_id == "shell-2"


def test_an_exit_code_and_a_signal_are_results(w: World) -> None:
    w.begin("X")
    w.exits("X", code=7)
    w.begin("Y")
    w.exits("Y", signal=15)
    x, y = w.call("X").result, w.call("Y").result
    assert x is not None
    assert y is not None
    assert (x.state, x.cause) == (CallState.SUCCEEDED, Cause.EXIT)
    assert (y.state, y.cause) == (CallState.SUCCEEDED, Cause.SIGNAL)


def test_an_exit_that_is_not_known_is_not_zero(w: World) -> None:
    w.begin("X")
    w.exits("X", code=None)
    result = w.call("X").result
    assert result is not None
    assert result.cause is Cause.UNKNOWN


def test_a_timeout_is_a_result_that_keeps_its_output(w: World) -> None:
    w.begin("X", timeout=1)
    w.do(c.GroupGrew(w.call("X").group, Extent(7, 1)))
    w.after(1)
    assert w.call("X").state is CallState.STOPPING
    w.killed("X", size=7)
    result = w.call("X").result
    assert result is not None
    assert (result.state, result.cause, result.output.size) == (
        CallState.TIMED_OUT,
        Cause.TIMEOUT,
        7,
    )
    assert result.seconds == pytest.approx(1.0)


def test_a_timeout_counts_time_in_the_background_too(w: World) -> None:
    w.begin("X", timeout=5)
    w.after(4.9)
    assert w.call("X").state is CallState.RUNNING
    w.after(0.1)
    assert w.call("X").state is CallState.STOPPING


def test_a_timeout_of_nothing_is_immediate_and_starts_nothing(w: World) -> None:
    w.start("X", timeout=0)
    assert w.call("X").state is CallState.TIMED_OUT
    assert w.events(e.CallStarting) == []
    assert w.state.groups == {}


def test_a_timer_of_a_call_that_is_gone_does_not_touch_another_of_its_name(w: World) -> None:
    w.after(1)
    w.begin("X", timeout=50)
    w.exits("X")
    w.stop("A")
    w.open("A")
    w.after(1)
    w.begin("X", timeout=50)
    w.after(1.5)
    assert not w.call("X").background
    w.after(48.0)
    assert w.call("X").state is CallState.RUNNING
    w.after(0.5)
    assert w.call("X").state is CallState.STOPPING


def test_a_start_that_fails_is_an_error_with_its_reason(w: World) -> None:
    w.start("X")
    w.do(c.GroupFailed(w.call("X").group, "no such directory"))
    result = w.call("X").result
    assert result is not None
    assert (result.cause, result.error) == (Cause.START_ERROR, "no such directory")
    assert w.state.groups == {}


def test_leftovers_are_counted_and_do_not_hold_up_the_end(w: World) -> None:
    w.begin("X")
    w.exits("X", leftover=1, size=5)
    assert w.call("X").state is CallState.SUCCEEDED
    assert w.call("X").leftover == 1
    assert w.events(e.LeftoversStopping) == []
    w.do(c.GroupEmpty(w.call("X").group, None, w.mono))
    assert w.call("X").leftover == 0
    assert list(w.agent().leftovers) == []


def test_what_has_ended_with_leftovers_can_neither_fail_nor_end_again(w: World) -> None:
    w.begin("X")
    w.exits("X", leftover=1)
    w.exits("X", code=9, leftover=1)
    w.do(c.GroupFailed(w.call("X").group, "too late"))
    assert len(w.events(e.CallEnded)) == 1


def test_leftovers_are_ended_where_that_was_asked(w: World) -> None:
    w.start("X", kill_leftovers=True)
    w.runs("X")
    w.exits("X", leftover=2)
    assert len(w.events(e.LeftoversStopping, "X")) == 1


def test_what_leftovers_still_write_lands_in_the_log(w: World) -> None:
    w.begin("X")
    w.exits("X", leftover=1, size=5)
    group = w.call("X").group
    w.do(c.GroupGrew(group, Extent(9, 1)))
    assert w.call("X").output.size == 9
    w.do(c.GroupClosed(group, Extent(12, 1)))
    w.do(c.GroupEmpty(group, None, w.mono))
    assert (w.call("X").output.size, w.call("X").closed) == (12, True)
    assert w.call("X").result is not None
    assert w.state.groups == {}


def test_streams_may_close_before_the_end(w: World) -> None:
    w.begin("X")
    group = w.call("X").group
    w.do(c.GroupClosed(group, Extent(2, 1)))
    assert w.call("X").closed
    w.do(c.GroupGrew(group, Extent(2, 1)))
    assert w.call("X").closed
    w.exits("X", code=5, size=2)
    assert w.call("X").closed
    assert w.state.groups == {}


def test_output_never_shrinks(w: World) -> None:
    w.begin("X")
    w.do(c.GroupGrew(w.call("X").group, Extent(100, 10)))
    w.exits("X", size=40)
    assert w.call("X").output.size == 100


def test_a_repeat_attaches_and_the_id_for_anything_else_is_refused(w: World) -> None:
    w.start("X", digest="sleep 4")
    before = w.state.revision
    w.start("X", digest="sleep 4")
    assert w.state.revision == before
    with refused(Reason.CALL_ID_REUSED, tool_call_id="X"):
        w.start("X", digest="sleep 5")
    w.runs("X")
    w.exits("X")
    w.start("X", digest="sleep 4")
    assert len(w.events(e.CallQueued)) == 1


def test_ids_of_all_tools_of_an_agent_are_one_namespace(w: World) -> None:
    w.in_background("X")
    wait = w.wait("X")
    w.do(c.RecordTool("A", "m", "message", "d"))
    with refused(Reason.CALL_ID_REUSED):
        w.start(wait)
    with refused(Reason.CALL_ID_REUSED):
        w.start("m")
    with refused(Reason.WAIT_ID_REUSED):
        w.wait("X", id="X")
    with refused(Reason.WAIT_ID_REUSED):
        w.wait("X", id="m")
    for taken in (wait, "X"):
        with refused(Reason.REQUEST_ID_REUSED):
            w.do(c.SendMessage("A", taken, "d", "A", "body"))


def test_a_report_twice_or_for_an_ended_call_is_ignored(w: World) -> None:
    w.in_background("X")
    w.exits("X")
    before = w.state.revision
    w.exits("X", code=3)
    w.runs("X")
    w.killed("X")
    w.survives("X")
    w.do(c.GroupLost(w.call("X").group, Extent(), None, "gone"))
    w.do(c.GroupFailed(w.call("X").group, "no"))
    w.do(c.GroupEmpty(4711, None, w.mono))
    assert w.state.revision == before
    assert len(w.events(e.CallEnded)) == 1


def test_a_paused_call_is_shown_so_until_it_goes_on_or_ends(w: World) -> None:
    w.begin("X")
    w.do(c.GroupPaused(w.call("X").group, True))
    w.do(c.GroupPaused(w.call("X").group, True))
    assert w.call("X").paused
    assert len(w.events(e.CallPaused)) == 1
    w.cancel("X")
    w.killed("X")
    assert not w.call("X").paused


def test_no_call_of_a_draining_supervisor_is_new(w: World) -> None:
    w.in_background("X")
    w.do(c.Drain("upgrade"))
    with refused(Reason.DRAINING):
        w.start("Y")
    with refused(Reason.DRAINING):
        w.open("B")
    w.start("X")  # a repeat still attaches
    w.exits("X")
    assert w.notices() == ["X"]
