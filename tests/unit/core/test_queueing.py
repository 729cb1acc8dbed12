from __future__ import annotations

import msgspec

from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState, Surface

from .world import SETTINGS, World, refused


def started(w: World) -> list[str]:
    return [event.call for event in w.events(e.CallStarting)]


def test_over_the_limit_calls_queue_in_order() -> None:
    w = World(max_running=2)
    for call in "abcde":
        w.start(call)
    assert started(w) == ["a", "b"]
    w.exits("b")
    w.exits("a")
    assert started(w) == ["a", "b", "c", "d"]
    w.exits("c")
    assert started(w) == ["a", "b", "c", "d", "e"]


def test_a_call_in_the_background_keeps_its_place() -> None:
    w = World(max_running=1)
    w.in_background("X")
    w.start("Y")
    assert w.call("Y").state is CallState.QUEUED
    w.exits("X")
    assert w.call("Y").state is CallState.RUNNING


def test_a_call_that_is_being_ended_keeps_its_place() -> None:
    w = World(max_running=1)
    w.begin("X")
    w.start("Y")
    w.cancel("X")
    assert w.call("Y").state is CallState.QUEUED
    w.killed("X")
    assert w.call("Y").state is CallState.RUNNING


def test_an_exclusive_call_overlaps_with_none(w: World) -> None:
    w.begin("a")
    w.start("E", exclusive=True)
    w.start("b")
    assert started(w) == ["a"]
    w.exits("a")
    assert started(w) == ["a", "E"]
    w.exits("E")
    assert started(w) == ["a", "E", "b"]


def test_exclusive_calls_of_different_agents_overlap(w: World) -> None:
    w.open("B")
    w.start("E", exclusive=True)
    w.start("E", "B", exclusive=True)
    assert w.call("E").state is w.call("E", "B").state is CallState.RUNNING


def test_cancelling_a_blocked_exclusive_call_lets_the_next_go(w: World) -> None:
    w.begin("a")
    w.start("E", exclusive=True)
    w.start("b")
    w.cancel("E")
    assert started(w) == ["a", "b"]


def test_waits_do_not_queue() -> None:
    w = World(max_running=1)
    w.in_background("X")
    w.start("Y")
    assert w.answer(w.wait("X")) is None


def test_a_long_queue_of_calls_that_end_at_once_is_no_burden() -> None:
    w = World(max_running=1)
    w.begin("X")
    for i in range(3000):
        w.start(f"c{i}", timeout=0)
    w.exits("X")
    assert len(w.events(e.CallEnded)) == 3001
    assert w.agent().queue == []


def test_the_limit_of_background_tasks_refuses_until_one_has_really_ended() -> None:
    w = World(surface=Surface.TASKS, max_tasks=1)
    w.start("X", background=True)
    with refused(Reason.TASK_LIMIT, limit="1"):
        w.start("Y", background=True)
    w.runs("X")
    w.cancel("X")
    with refused(Reason.TASK_LIMIT):
        w.start("Y", background=True)
    assert "Y" not in w.agent().calls
    w.killed("X")
    w.start("Y", background=True)
    assert w.call("Y").task_id == "shell-2"


def test_the_limit_of_calls_counts_what_is_live_or_not_consumed() -> None:
    w = World(settings=msgspec.structs.replace(SETTINGS, calls_per_agent=2))
    w.in_background("X", "Y")
    w.exits("X")
    with refused(Reason.CALL_LIMIT, limit="2"):
        w.start("Z")
    w.wait("X")
    w.start("Z")


def test_the_limit_of_groups_counts_all_agents_and_leftovers() -> None:
    w = World(settings=msgspec.structs.replace(SETTINGS, live_groups=1))
    w.open("B")
    w.begin("X")
    w.exits("X", leftover=1)
    with refused(Reason.GROUP_LIMIT, limit="1"):
        w.start("Y", "B")


def test_the_limit_of_agents_counts_live_ones() -> None:
    w = World(settings=msgspec.structs.replace(SETTINGS, live_agents=2))
    w.open("B")
    with refused(Reason.AGENT_LIMIT, limit="2"):
        w.open("C")
    w.stop("B")
    w.open("C")
