from __future__ import annotations

import msgspec

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core import tasks
from pinfoldd.core.reasons import Reason
from pinfoldd.core.settings import Settings

from .world import SETTINGS, World, got, refused

DAY = 86_400.0


def settings(**values: object) -> Settings:
    changed: Settings = msgspec.structs.replace(SETTINGS, **values)
    return changed


def test_finished_calls_are_kept_for_a_time_and_then_expired_not_unknown(w: World) -> None:
    w.begin("X")
    w.exits("X")
    w.after(6 * DAY)
    assert tasks.find(w.state, "A", "shell-1").id == "X"
    w.after(DAY + 120)
    assert w.agent().calls == {}
    with refused(Reason.TASK_EXPIRED):
        tasks.find(w.state, "A", "shell-1")
    assert [event.groups for event in w.events(e.CallsForgotten)] == [[1]]


def test_over_the_count_the_oldest_go_first() -> None:
    w = World(settings=settings(finished_calls=2))
    for call in "abcde":
        w.begin(call)
        w.exits(call)
    w.after(61)
    assert list(w.agent().calls) == ["d", "e"]
    assert w.state.finished == 2


def test_a_result_that_nobody_has_is_never_dropped() -> None:
    w = World(settings=settings(finished_calls=0))
    w.in_background("unconsumed", "consumed", "killed", "reserved", "open")
    w.exits("unconsumed")
    w.exits("consumed")
    w.wait("consumed")
    w.cancel("killed", report=True)
    w.killed("killed")
    w.next_turn()
    held = w.wait("reserved", "open")
    w.exits("reserved")
    w.begin("leftover")
    w.exits("leftover", leftover=1)
    w.after(30 * DAY)
    assert set(w.agent().calls) == {"unconsumed", "reserved", "open", "leftover"}
    w.exits("open")
    assert w.answer(held) == got("reserved", "open")
    assert w.answer(w.wait("unconsumed")) == got("unconsumed")
    w.do(c.GroupEmpty(w.call("leftover").group, None, w.mono))
    w.after(DAY)
    assert w.agent().calls == {}
    assert w.state.finished == 0


def test_a_repeated_wait_for_what_was_forgotten_takes_nothing_else() -> None:
    w = World(settings=settings(finished_calls=0))
    w.in_background("X", "Y")
    w.exits("X")
    w.wait(id="w")
    w.after(61)
    assert "X" not in w.agent().calls
    w.exits("Y")
    before = w.state.revision
    w.wait(id="w")
    assert w.state.revision == before
    assert w.agent().settled["w"].calls == ["X"]
    assert not w.call("Y").consumed


def test_an_id_that_was_forgotten_is_a_new_call() -> None:
    w = World(settings=settings(finished_calls=0))
    w.begin("X")
    w.exits("X")
    w.after(61)
    w.begin("X")
    assert w.call("X").task_id == "shell-2"
    w.after(61)
    w.exits("X")
    assert w.notices() == ["X"]


def test_a_notice_for_a_forgotten_call_is_not_delivered_again() -> None:
    w = World(settings=settings(finished_calls=0))
    w.in_background("X")
    w.exits("X")
    w.next_turn()
    w.wait("X")
    w.end_turn(ack=False)
    w.after(61)
    assert w.next_turn() == ""
    w.prompt()
    w.next_turn()
    assert w.delivered() == ["user hello"]


def test_it_keeps_up_with_many() -> None:
    w = World(settings=settings(finished_calls=10))
    for i in range(5000):
        w.start(f"c{i}", timeout=0)
    w.after(64)
    assert len(w.agent().calls) == 10


def test_unconsumed_results_in_front_do_not_hold_up_the_others() -> None:
    w = World(settings=settings(finished_calls=0))
    calls = [f"c{i}" for i in range(2500)]
    for call in calls:
        w.start(call, background=True)
        w.exits(call)
    w.begin("X")
    w.exits("X")
    w.after(65)
    assert "X" not in w.agent().calls
    assert len(w.agent().completed) == 2500


def test_a_stopped_agent_is_forgotten_with_all_it_had(w: World) -> None:
    w.child("kid")
    w.in_background("K", agent="kid")
    w.exits("K", "kid")
    w.stop("kid")
    w.worker_exits("kid", signal=15)
    assert w.call("K", "kid").result is not None
    w.after(7 * DAY + 120)
    assert "kid" not in w.state.agents
    assert w.agent().children == []
    assert w.state == w.replayed()


def test_of_too_many_agents_the_longest_stopped_go_first() -> None:
    w = World(settings=settings(live_agents=2))
    for agent in "BCDEFG":
        w.open(agent)
        w.stop(agent)
        w.after(1)
    w.after(61)
    assert list(w.state.agents) == ["A", "E", "F", "G"]


def test_the_order_of_ends_survives_a_restart() -> None:
    w = World(settings=settings(finished_calls=1))
    for call in "abc":
        w.begin(call)
        w.after(0.1)
        w.exits(call)
    w.restart()
    w.after(1)
    assert list(w.agent().calls) == ["c"]
