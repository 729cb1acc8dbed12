from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import AgentState, CallState, Exit, Extent

from .world import CANCELLED, TIMED_OUT, World, got, refused


def test_running_finished_and_waited_for_after_the_daemon_died(w: World) -> None:
    w.in_background("runs", "finished")
    w.exits("finished")
    w.next_turn()  # with the notice
    wait = w.wait("runs", id="w")
    w.restart(lost_seconds=3)
    assert w.answer(wait) == CANCELLED
    w.wait("runs", id="w")
    w.exits("runs")
    assert w.answer("w") == got("runs")
    assert w.answer(w.wait("finished")) == got("finished")
    assert len(w.events(e.CallEnded)) == 2
    assert (w.consumed("runs"), w.consumed("finished")) == (1, 1)


def test_an_answer_that_was_lost_is_given_again(w: World) -> None:
    w.in_background("X")
    w.wait("X", id="w")
    w.exits("X")
    w.restart()
    before = w.state.revision
    w.wait("X", id="w")
    assert w.state.revision == before
    assert w.agent().settled["w"].calls == ["X"]


def test_what_nobody_has_is_lost_and_waitable_once(w: World) -> None:
    w.in_background("X")
    w.do(c.GroupGrew(w.call("X").group, Extent(5, 1)))
    w.restart(known=set())
    result = w.call("X").result
    assert result is not None
    assert (result.state, result.output.size) == (CallState.LOST, 5)
    assert w.notices() == ["X"]
    assert w.answer(w.wait("X")) == got("X")
    with refused(Reason.RESULT_CONSUMED):
        w.wait("X")
    assert w.state.groups == {}


def test_a_spawn_that_never_reached_the_keeper_is_still_to_be_done(w: World) -> None:
    w.start("X")
    w.restart(known=set())
    assert w.call("X").state is CallState.RUNNING
    assert w.call("X").spec == b"spec"
    w.runs("X")
    w.exits("X")
    assert w.call("X").state is CallState.SUCCEEDED


def test_unless_it_was_cancelled_meanwhile(w: World) -> None:
    w.start("X")
    w.cancel("X")
    w.restart(known=set())
    assert w.call("X").state is CallState.CANCELLED


def test_a_worker_that_never_reached_the_keeper_is_started(w: World) -> None:
    w.do(c.StartAgent("A", "s", "d", "kid", "go", "worker", "kid"))
    w.restart(known=set())
    assert w.agent("kid").is_live
    assert len(w.events(e.WorkerStarting)) == 2
    w.worker_runs("kid")
    assert w.state.groups.keys() == {w.worker("kid")}


def test_a_worker_that_is_lost_fails_its_agent(w: World) -> None:
    w.child("kid")
    w.restart(known=set())
    assert w.agent("kid").state is AgentState.FAILED


def test_deadlines_are_made_anew(w: World) -> None:
    w.begin("X", timeout=10)
    w.after(1)
    w.restart()
    w.after(0.9)
    assert not w.call("X").background
    w.after(0.1)
    assert w.call("X").background
    w.after(7.9)
    assert w.call("X").state is CallState.RUNNING
    w.after(0.1)
    assert w.call("X").state is CallState.STOPPING


def test_deadlines_that_passed_meanwhile_are_seen_to(w: World) -> None:
    w.begin("X", timeout=10)
    w.restart(lost_seconds=60)
    w.after(0)
    assert w.call("X").background
    assert w.call("X").state is CallState.STOPPING


def test_a_restart_that_was_due_is_made_also_by_another_boots_clock(w: World) -> None:
    w.child("kid", role="sturdy")
    w.worker_exits("kid", code=1)
    w.mono = 5.0
    w.restart()
    worker = w.agent("kid").worker
    assert worker is not None
    assert worker.running
    w.worker_runs("kid")
    w.worker_exits("kid", code=1)
    assert w.agent("kid").is_live


def test_a_duration_over_a_boot_is_not_negative(w: World) -> None:
    w.child("kid", call="D")
    w.in_background("X")
    w.mono = 1.0
    w.restart(known=set())
    result = w.call("D").result
    assert result is not None
    assert result.seconds == 0.0


def test_queued_calls_go_on_after_a_stop_that_kept_the_groups() -> None:
    w = World(max_running=1)
    w.in_background("X")
    w.start("Y")
    w.do(c.StopSupervisor("upgrade", keep_groups=True))
    w.exits("X")
    assert w.call("Y").state is CallState.QUEUED
    w.restart()
    assert w.call("Y").state is CallState.RUNNING
    assert (w.state.draining, w.state.stopping) == (False, False)
    w.start("Z")


def test_a_stop_ends_all_calls_and_all_sub_agents(w: World) -> None:
    w.child("kid")
    w.watch("kid", enable=False)
    w.child("call", call="D")
    w.in_background("X")
    w.in_background("K", agent="kid")
    w.begin("left")
    w.exits("left", leftover=1)
    wait = w.wait("X", "D")
    w.do(c.StopSupervisor("bye", keep_groups=False))
    assert w.call("K", "kid").state is CallState.STOPPING
    assert len(w.events(e.LeftoversStopping, "left")) == 1
    w.killed("X")
    w.killed("K", "kid")
    w.worker_exits("kid", signal=15)
    w.worker_exits("call", signal=15)
    w.do(c.GroupEmpty(w.call("left").group, None, w.mono))
    assert w.answer(wait) == got("X", "D")
    assert w.call("D").state is CallState.CANCELLED
    assert w.agent().is_live
    w.do(c.GroupClosed(w.call("left").group, Extent()))
    assert w.state.groups == {}
    w.restart()
    assert w.agent().is_live
    w.start("Y")


def test_a_stop_whose_end_was_never_told_is_finished_by_the_next_daemon(w: World) -> None:
    w.child("kid")
    w.in_background("K", agent="kid")
    w.in_background("X")
    w.do(c.StopSupervisor("bye", keep_groups=False))
    w.restart(known=set())
    assert w.agent("kid").state is AgentState.STOPPED
    assert w.call("X").result is not None
    assert w.state.groups == {}
    assert w.answer(w.wait()) == got("X")


def test_no_worker_is_started_again_while_the_supervisor_stops(w: World) -> None:
    w.child("kid", role="sturdy")
    w.worker_exits("kid", code=1)
    w.do(c.StopSupervisor("upgrade", keep_groups=True))
    w.after(5)
    assert len(w.events(e.WorkerStarting)) == 1
    w.restart()
    assert len(w.events(e.WorkerStarting)) == 2


def test_leftovers_that_are_gone_are_gone(w: World) -> None:
    w.begin("X")
    w.exits("X", leftover=1)
    w.stop("A")
    w.restart(known=set())
    assert w.agent().state is AgentState.STOPPED
    assert w.state.groups == {}


def test_a_group_that_is_empty_is_waited_for_by_nobody(w: World) -> None:
    """Whatever became of its streams: a word that never comes would keep every stop waiting."""
    w.begin("X")
    w.exits("X", leftover=1)
    w.do(c.GroupEmpty(w.call("X").group, None, w.mono))
    assert w.call("X").closed
    assert w.state.groups == {}


def test_a_new_keeper_leaves_waits_alone(w: World) -> None:
    w.in_background("X", "Y")
    wait = w.wait("X", timeout=60)
    w.do(c.Reconcile(frozenset({w.call("X").group})))
    assert w.call("Y").state is CallState.LOST
    assert w.answer(wait) is not None  # by the notice of Y
    wait = w.wait("Y")
    assert w.answer(wait) == got("Y")


def test_notices_that_a_wait_suppressed_come_back(w: World) -> None:
    w.in_background("X", "Y")
    w.wait("X", "Y")
    w.exits("X")
    w.restart()
    assert w.notices() == ["X"]


def test_a_delivery_survives(w: World) -> None:
    w.prompt("now")
    turn = w.next_turn()
    w.restart()
    assert w.next_turn() == turn
    assert w.delivered() == ["user now"]
    w.end_turn(ack=False)
    w.restart()
    w.next_turn()
    assert w.delivered() == ["user now"]


@pytest.mark.parametrize("reports", [1, 2, 3])
def test_a_keeper_may_tell_all_again(w: World, reports: int) -> None:
    w.in_background("X", "Y")
    w.cancel("Y")
    w.restart()
    for _ in range(reports):
        for call in ("X", "Y"):
            w.runs(call)
        w.exits("X")
        w.killed("Y")
    assert len(w.events(e.CallEnded)) == 2
    assert w.notices() == ["X", "Y"]


def test_old_deadlines_do_not_pile_up(w: World) -> None:
    for i in range(50):
        w.begin(f"c{i}", timeout=86_400)
        w.exits(f"c{i}")
        wait = w.wait(for_input=True, timeout=86_400)
        w.cancel_wait(wait)
    w.begin("X", timeout=86_400)
    kept = w.wait(for_input=True, timeout=300)
    assert len(w.engine.memory.timers) > 150
    w.after(61)
    assert len(w.engine.memory.timers) == 3
    w.after(300)
    assert w.answer(kept) == TIMED_OUT


def test_the_log_gives_the_state(w: World) -> None:
    w.child("kid", role="sturdy")
    w.in_background("X", "Y")
    w.wait("X", "Y")
    w.exits("X")
    w.worker_exits("kid", code=1)
    w.prompt()
    w.next_turn()
    assert w.replayed() == w.state


def test_a_call_ended_when_it_did_and_not_when_that_was_told(w: World) -> None:
    w.in_background("X")
    call = w.call("X")
    assert call.started_mono is not None
    assert call.started_wall is not None
    begun = call.started_mono
    w.after(30)
    w.do(c.GroupExited(call.group, Exit(code=0), Extent(), begun + 2.5))
    assert w.call("X").ended_wall == call.started_wall + 2.5
