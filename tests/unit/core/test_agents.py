from __future__ import annotations

import msgspec
import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import AgentState, CallState, Cause, Exit, Extent, Receipt, Surface

from .world import CANCELLED, SETTINGS, World, got, refused


class TestStart:
    def test_it_returns_at_once_and_turns_the_starters_watch_on(self, w: World) -> None:
        w.child("kid")
        assert w.agent().watching == ["kid"]
        assert w.agent().records["start-kid"].answer == "kid"
        assert w.agent().calls == {}
        assert w.pending("kid") == ["start do it"]

    def test_its_final_answer_arrives_once(self, w: World) -> None:
        w.child("kid")
        w.next_turn("kid")
        w.end_turn("found it", "kid")
        answers = [text for text in w.pending() if text.startswith("watch_answer")]
        assert answers == ["watch_answer found it t-1"]

    def test_a_repeat_starts_nothing(self, w: World) -> None:
        w.child("kid")
        before = w.state.revision
        w.do(c.StartAgent("A", "start-kid", "kid", "kid", "do it", "worker", "kid"))
        assert w.state.revision == before
        with refused(Reason.CALL_ID_REUSED):
            w.do(c.StartAgent("A", "start-kid", "x", "kid2", "do it", "worker", "kid"))

    def test_bad_requests_are_refused_before_anything_happens(self, w: World) -> None:
        before = w.replayed()
        with refused(Reason.ROLE_UNKNOWN, role="nobody"):
            w.child("kid", role="nobody")
        with refused(Reason.AGENT_ID_REUSED, agent_id="A"):
            w.child("A")
        with refused(Reason.AGENT_UNKNOWN):
            w.child("kid", of="nothing")
        assert w.state == before

    def test_the_depth_is_limited(self) -> None:
        w = World(settings=msgspec.structs.replace(SETTINGS, agent_depth=1))
        w.child("kid")
        with refused(Reason.AGENT_DEPTH_LIMIT, limit="1"):
            w.child("grandkid", of="kid")

    def test_without_a_surface_it_cannot_be_a_call(self) -> None:
        w = World(surface=Surface.NONE)
        with refused(Reason.NO_CONTROL_SURFACE):
            w.child("kid", call="D")
        assert "kid" not in w.state.agents


class TestAsACall:
    def test_the_childs_answer_is_its_result(self, w: World) -> None:
        w.child("kid", call="D")
        assert (w.call("D").background, w.call("D").task_id) == (True, "agent-1")
        assert w.agent().watching == []
        w.next_turn("kid")
        w.after(7)
        w.end_turn("the answer", "kid")
        result = w.call("D").result
        assert result is not None
        assert (result.state, result.answer) == (CallState.SUCCEEDED, "the answer")
        assert result.seconds == pytest.approx(7)
        assert w.notices() == ["D"]
        assert w.agent("kid").state is AgentState.STOPPING
        w.worker_exits("kid")
        assert w.agent("kid").state is AgentState.STOPPED
        assert w.answer(w.wait()) == got("D")
        with refused(Reason.CALL_ALREADY_DONE):
            w.cancel("D")

    def test_the_answer_can_be_sent_again(self, w: World) -> None:
        w.child("kid", call="D")
        turn = w.next_turn("kid")
        w.end_turn("the answer", "kid")
        w.worker_exits("kid")
        before = w.state.revision
        w.do(c.EndTurn("kid", turn, "the answer"))
        assert w.state.revision == before

    def test_cancelled_it_ends_with_all_below_and_nothing_leaks_to_the_parent(
        self, w: World
    ) -> None:
        w.child("kid", call="D")
        w.in_background("inner", agent="kid")
        w.after(4)
        wait = w.wait("D")
        w.cancel("D")
        assert w.call("inner", "kid").state is CallState.STOPPING
        w.killed("inner", "kid")
        assert w.answer(wait) is None
        w.worker_exits("kid", signal=15)
        assert w.answer(wait) == got("D")
        result = w.call("D").result
        assert result is not None
        assert result.state is CallState.CANCELLED
        assert result.seconds == pytest.approx(6)
        assert w.notices() == []
        assert w.notices("kid") == []
        with refused(Reason.CALL_UNKNOWN):
            w.wait("inner")
        with refused(Reason.CALL_ALREADY_CANCELED):
            w.cancel("D")

    def test_a_sibling_delegate_is_unaffected(self, w: World) -> None:
        w.child("target", call="T")
        w.child("survivor", call="S")
        both = w.wait("T", "S")
        w.cancel("T")
        w.worker_exits("target", signal=15)
        w.next_turn("survivor")
        w.end_turn("unaffected", "survivor")
        assert w.answer(both) == got("T", "S")
        assert w.call("T").state is CallState.CANCELLED
        assert w.call("S").state is CallState.SUCCEEDED

    def test_cancelled_while_queued_no_child_is_ever_made(self) -> None:
        w = World(max_running=1)
        w.begin("X")
        w.child("kid", call="D")
        w.cancel("D")
        w.exits("X")
        assert "kid" not in w.state.agents
        assert w.call("D").state is CallState.CANCELLED
        assert w.notices() == ["D"]

    def test_cancelled_while_its_worker_starts_it_ends_with_the_worker(self, w: World) -> None:
        w.do(c.StartAgent("A", "D", "d", "kid", "go", "worker", "kid", as_call=True))
        w.cancel("D")
        w.worker_runs("kid")
        assert w.call("D").state is CallState.STOPPING
        w.worker_exits("kid", signal=15)
        assert w.call("D").state is CallState.CANCELLED

    def test_a_worker_that_cannot_be_started_fails_it(self, w: World) -> None:
        w.do(c.StartAgent("A", "D", "d", "kid", "go", "worker", "kid", as_call=True))
        w.do(c.GroupFailed(w.worker("kid"), "no such program"))
        result = w.call("D").result
        assert result is not None
        assert (result.state, result.error) == (CallState.FAILED, "no such program")
        assert w.agent("kid").state is AgentState.FAILED

    def test_a_worker_that_leaves_without_an_answer_has_failed(self, w: World) -> None:
        w.child("kid", call="D")
        w.worker_exits("kid", code=0)
        assert w.call("D").state is CallState.FAILED
        assert w.agent("kid").state is AgentState.FAILED

    def test_stopping_its_child_cancels_it(self, w: World) -> None:
        w.child("kid", call="D")
        w.stop("kid")
        w.worker_exits("kid", signal=15)
        assert w.call("D").state is CallState.CANCELLED

    def test_a_child_id_that_was_taken_meanwhile_is_a_start_error(self) -> None:
        w = World(max_running=1)
        w.begin("X")
        w.child("kid", call="D")
        w.open("kid")
        w.exits("X")
        result = w.call("D").result
        assert result is not None
        assert result.cause is Cause.START_ERROR
        assert w.agent("kid").parent == ""

    def test_a_childs_calls_keep_their_own_grace(self, w: World) -> None:
        w.child("kid", call="D")
        w.do(c.StartCall("kid", "K", "d", "K", b"", grace=30.0))
        w.cancel("D")
        assert [event.grace for event in w.events(e.CallStopping, "K")] == [30.0]


class TestStop:
    def test_a_tree_ends_from_the_leaves_and_nothing_above_it(self, w: World) -> None:
        w.child("b")
        w.child("c", of="b")
        w.child("sibling")
        for agent in ("A", "b", "c", "sibling"):
            w.in_background("X", agent=agent)
        w.stop("b")
        assert w.agent("c").state is AgentState.STOPPING
        assert w.call("X").state is w.call("X", "sibling").state is CallState.RUNNING
        w.killed("X", "b")
        w.worker_exits("b", signal=15)
        assert w.agent("b").state is AgentState.STOPPING  # c is still there
        w.worker_exits("c", signal=15)
        w.killed("X", "c")
        assert w.agent("c").state is w.agent("b").state is AgentState.STOPPED
        assert [event.agent for event in w.events(e.AgentStopped)] == ["c", "b"]
        assert w.notices() == []

    def test_nothing_of_it_reaches_anyone(self, w: World) -> None:
        w.child("kid")
        w.in_background("K", agent="kid")
        w.watch("kid", enable=False)
        w.next_turn("kid")
        before = w.pending()
        wait = w.wait("K", agent="kid")
        w.stop("kid")
        assert w.answer(wait, "kid") == CANCELLED
        w.killed("K", "kid")
        w.worker_exits("kid", signal=15)
        assert w.pending() == before
        assert w.pending("kid") == []
        assert w.call("K", "kid").consumed is False
        with refused(Reason.CALL_UNKNOWN):
            w.wait("K")

    def test_the_reason_reaches_its_calls(self, w: World) -> None:
        w.in_background("X")
        w.stop("A", reason="owner disposed")
        assert w.agent().state is AgentState.STOPPING
        w.killed("X")
        assert w.agent().state is AgentState.STOPPED
        result = w.call("X").result
        assert result is not None
        assert result.cancel_reason == "owner disposed"
        assert w.events(e.PromptQueued) == []

    def test_leftovers_are_ended_before_it_is_stopped(self, w: World) -> None:
        w.begin("X")
        w.exits("X", leftover=2)
        w.stop("A")
        assert len(w.events(e.LeftoversStopping, "X")) == 1
        assert w.agent().state is AgentState.STOPPING
        w.do(c.GroupEmpty(w.call("X").group, None, w.mono))
        assert w.agent().state is AgentState.STOPPED

    def test_leftovers_that_cannot_be_ended_do_not_hold_it_for_ever(self, w: World) -> None:
        w.begin("X")
        w.exits("X", leftover=2)
        w.stop("A")
        w.survives("X")
        assert w.agent().state is AgentState.STOPPED
        assert w.call("X").leftover == 1

    def test_the_workers_own_leftovers_are_waited_for(self, w: World) -> None:
        w.child("kid")
        group = w.worker("kid")
        w.do(c.GroupExited(group, Exit(code=0, leftover=1), Extent(), w.mono))
        assert w.agent("kid").state is AgentState.LIVE
        w.do(c.GroupEmpty(group, None, w.mono))
        assert w.agent("kid").state is AgentState.STOPPED
        assert w.engine.memory.worker_exits == {}

    def test_nothing_is_taken_from_an_agent_that_stops(self, w: World) -> None:
        w.in_background("X")
        w.stop("A")
        for command in (
            c.StartCall("A", "Y", "d", "Y", b""),
            c.SendPrompt("A", "r", "d", "text"),
            c.NextTurn("A"),
            c.CancelTurn("A"),
            c.RecordTool("A", "t", "wait", "d"),
            c.StartAgent("A", "s", "d", "kid", "go", "worker", "kid"),
        ):
            with refused(Reason.AGENT_STOPPED):
                w.do(command)

    def test_a_late_report_of_it_is_ignored(self, w: World) -> None:
        w.child("kid")
        w.in_background("K", agent="kid")
        group = w.call("K", "kid").group
        w.stop("kid")
        w.killed("K", "kid")
        w.worker_exits("kid", signal=15)
        before = w.state.revision
        w.do(c.GroupExited(group, Exit(code=0), Extent(), w.mono))
        w.worker_exits("kid")
        w.worker_runs("kid")
        assert w.state.revision == before

    def test_a_queued_call_of_it_is_never_started(self) -> None:
        w = World(max_running=1)
        w.begin("X")
        w.start("Y")
        w.stop("A")
        w.killed("X")
        assert w.events(e.CallStarting, "Y") == []
        assert w.agent().state is AgentState.STOPPED

    def test_its_id_can_be_used_again_for_another_agent(self, w: World) -> None:
        w.child("kid")
        w.in_background("X")
        w.stop("A")
        with refused(Reason.AGENT_STOPPED):
            w.open("A")
        w.killed("X")
        w.worker_exits("kid", signal=15)
        w.open("A", digest="another")
        assert w.agent().calls == {}
        assert "kid" not in w.state.agents
        with refused(Reason.CALL_UNKNOWN):
            w.wait("X")
        assert w.state == w.replayed()

    def test_many_owners_that_come_and_go_leave_nothing(self) -> None:
        settings = msgspec.structs.replace(SETTINGS, live_agents=8)
        w = World(settings=settings)
        w.in_background("mine", agent="A")
        for i in range(2048):
            owner = f"o{i}"
            w.open(owner)
            w.start("X", owner, background=True)
            w.exits("X", owner)
            w.stop(owner)
            if not i % 100:
                w.after(61)
        w.after(61)
        assert len(w.state.agents) <= 17
        assert len(w.engine.memory.timers) < 10
        assert w.state.groups.keys() == {w.call("mine").group}
        assert w.call("mine").state is CallState.RUNNING

    def test_opening_it_again_is_a_repeat_or_a_reuse(self, w: World) -> None:
        w.child("kid")
        before = w.state.revision
        w.open("A")
        assert w.state.revision == before
        with refused(Reason.AGENT_ID_REUSED):
            w.open("A", digest="other")
        with refused(Reason.AGENT_ID_REUSED):
            w.open("kid")


class TestWorker:
    def test_its_death_ends_its_calls_and_its_watchers_are_told_once(self, w: World) -> None:
        w.child("kid")
        w.child("sibling")
        w.in_background("S", agent="sibling")
        w.in_background("K", "L", agent="kid")
        w.worker_exits("kid", signal=9)
        w.killed("K", "kid")
        w.killed("L", "kid")
        assert w.agent("kid").state is AgentState.FAILED
        assert w.call("K", "kid").state is CallState.CANCELLED
        assert w.call("L", "kid").state is CallState.CANCELLED
        assert w.pending() == ["watch_state worker ended by signal 9 failed"]
        assert w.agent().prompts[0].activating
        assert w.call("S", "sibling").state is CallState.RUNNING

    def test_a_clean_exit_between_turns_is_a_stop(self, w: World) -> None:
        w.child("kid")
        w.next_turn("kid")
        w.end_turn(agent="kid")
        w.worker_exits("kid", code=0)
        assert w.agent("kid").state is AgentState.STOPPED

    def test_with_a_policy_it_is_started_again_until_it_dies_too_often(self, w: World) -> None:
        w.child("kid", role="sturdy")
        for restarts in (1, 2):
            w.worker_exits("kid", code=1)
            assert w.agent("kid").is_live
            w.after(0.2)
            worker = w.agent("kid").worker
            assert worker is not None
            assert (worker.running, worker.restarts) == (True, restarts)
            w.worker_runs("kid")
        w.worker_exits("kid", code=1)
        assert w.agent("kid").state is AgentState.FAILED

    def test_without_a_policy_it_is_not_started_again_however_long_it_lived(self, w: World) -> None:
        w.child("kid")
        w.after(3600)
        w.worker_exits("kid", code=1)
        assert w.agent("kid").state is AgentState.FAILED

    def test_deaths_that_are_far_apart_do_not_add_up(self, w: World) -> None:
        w.child("kid", role="sturdy")
        for _ in range(10):
            w.after(40)
            w.worker_exits("kid", code=1)
            w.after(0.2)
            w.worker_runs("kid")
        assert w.agent("kid").is_live

    def test_a_restart_ends_what_was_under_way_and_keeps_what_was_not_consumed(
        self, w: World
    ) -> None:
        w.child("kid", role="sturdy")
        w.child("grandkid", of="kid")
        turn = w.next_turn("kid")
        w.in_background("done", "open", agent="kid")
        w.exits("done", "kid")
        w.worker_exits("kid", signal=9)
        assert w.call("open", "kid").state is CallState.STOPPING
        assert w.agent("grandkid").state is AgentState.STOPPING
        assert sum("restarting" in text for text in w.pending()) == 1
        w.killed("open", "kid")
        w.after(0.2)
        assert w.next_turn("kid") == turn
        assert w.delivered("kid") == ["start do it", "notice done", "notice open"]
        assert w.answer(w.wait(agent="kid"), "kid") == got("done")
        assert w.answer(w.wait(agent="kid"), "kid") == got("open")

    def test_the_next_worker_begins_the_open_turn_again(self, w: World) -> None:
        w.child("kid", role="sturdy")
        turn = w.next_turn("kid")
        first = w.delivery("kid")
        w.prompt("and this", "kid")
        w.take("kid", ack=first)
        second = w.delivery("kid")
        w.take("kid", ack=second)
        told = w.pending()
        w.message("later", to="kid")
        w.worker_exits("kid", signal=9)
        w.after(0.2)
        assert len(w.events(e.PromptsReturned)) == 1
        assert w.next_turn("kid") == turn
        assert w.delivered("kid") == ["start do it", "user and this", "message later m-1"]
        assert w.delivery("kid") not in (first, second)
        # A late word of the dead one changes nothing, and its watchers hear no prompt twice.
        w.take("kid", ack=second)
        assert len(w.delivered("kid")) == 3
        assert w.pending()[: len(told)] == told
        assert sum("watch_prompt" in text for text in w.pending()) == 1
        w.worker_runs("kid")
        w.worker_exits("kid", signal=9)
        w.after(0.2)
        w.next_turn("kid")
        assert len(w.delivered("kid")) == 3
        assert w.state == w.replayed()

    def test_a_turn_that_has_ended_is_not_begun_again(self, w: World) -> None:
        w.child("kid", role="sturdy")
        w.next_turn("kid")
        w.end_turn(agent="kid")
        w.worker_exits("kid", signal=9)
        w.after(0.2)
        assert w.next_turn("kid") == ""
        assert w.events(e.PromptsReturned) == []

    def test_a_turn_that_a_user_cancelled_meanwhile_is_not_begun_again(self, w: World) -> None:
        w.child("kid", role="sturdy")
        w.next_turn("kid")
        w.take("kid", ack=w.delivery("kid"))
        w.worker_exits("kid", signal=9)
        w.do(c.CancelTurn("kid"))
        w.after(0.2)
        assert w.next_turn("kid") == ""
        assert w.pending("kid") == []

    def test_the_notice_of_a_result_that_is_gone_is_not_repeated(self, w: World) -> None:
        w.child("kid", role="sturdy")
        w.next_turn("kid")
        w.in_background("had", "left", agent="kid")
        w.exits("had", "kid")
        w.exits("left", "kid")
        w.take("kid", ack=w.delivery("kid"))
        w.wait("had", agent="kid")
        w.take("kid", ack=w.delivery("kid"))
        w.worker_exits("kid", signal=9)
        w.after(0.2)
        w.next_turn("kid")
        assert w.delivered("kid") == ["start do it", "notice left"]
        assert w.state == w.replayed()

    def test_without_a_policy_nothing_is_kept_for_another(self, w: World) -> None:
        w.child("kid")
        w.next_turn("kid")
        w.take("kid", ack=w.delivery("kid"))
        assert w.agent("kid").taken == []

    def test_it_is_kept_over_a_restart_of_the_daemon(self, w: World) -> None:
        w.child("kid", role="sturdy")
        w.next_turn("kid")
        w.take("kid", ack=w.delivery("kid"))
        w.restart(known=set())
        w.after(0.2)
        w.next_turn("kid")
        assert w.delivered("kid") == ["start do it"]

    def test_a_stop_before_the_restart_prevents_it(self, w: World) -> None:
        w.child("kid", role="sturdy")
        w.worker_exits("kid", code=1)
        w.stop("kid")
        assert w.agent("kid").state is AgentState.STOPPED
        w.after(5)
        assert len(w.events(e.WorkerStarting)) == 1

    def test_it_is_not_started_again_while_the_supervisor_drains(self, w: World) -> None:
        w.child("kid", role="sturdy")
        w.do(c.Drain("bye"))
        w.worker_exits("kid", code=1)
        assert w.agent("kid").state is AgentState.FAILED

    def test_reports_that_do_not_fit_it_are_ignored(self, w: World) -> None:
        w.child("kid")
        group = w.worker("kid")
        w.do(c.GroupFailed(group, "too late"))
        w.do(c.GroupExited(group, Exit(code=3, leftover=1), Extent(), w.mono))
        w.do(c.GroupExited(group, Exit(code=0), Extent(), w.mono))
        assert w.agent("kid").is_live
        w.do(c.GroupEmpty(group, None, w.mono))
        assert w.agent("kid").stop_reason == "worker exited with code 3"

    def test_its_last_words_are_a_part_of_the_reason(self, w: World) -> None:
        w.child("kid")
        group = w.worker("kid")
        w.do(c.GroupExited(group, Exit(code=3, words="no such module"), Extent(), w.mono))
        assert w.agent("kid").stop_reason == "worker exited with code 3: no such module"

    def test_one_that_could_not_be_ended_does_not_hold_the_agent(self, w: World) -> None:
        w.child("kid")
        w.stop("kid")
        w.do(c.GroupSurvived(w.worker("kid"), Receipt(), w.mono))
        assert w.agent("kid").state is AgentState.STOPPED
