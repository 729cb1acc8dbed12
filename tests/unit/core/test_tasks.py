from __future__ import annotations

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core import tasks
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState, Extent, Surface

from .world import World, got, refused


@pytest.fixture
def w() -> World:
    return World(surface=Surface.TASKS)


def read(w: World, call: str, start: int, end: int, id: str = "", agent: str = "A") -> None:
    w.do(c.ReadTask(agent, call, id, start, end))


def begin(w: World, call: str) -> None:
    w.do(c.BeginTaskWait("A", call))


def end(w: World, call: str) -> None:
    w.do(c.EndTaskWait("A", call))


def test_ids_count_per_kind_and_owner(w: World) -> None:
    w.open("B")
    w.start("X")
    w.start("Y")
    w.child("kid", call="D")
    w.start("X", "B")
    assert [w.call(call).task_id for call in ("X", "Y", "D")] == [
        "shell-1",
        "shell-2",
        "agent-1",
    ]
    assert w.call("X", "B").task_id == "shell-1"
    assert list(w.agent().tasks) == ["shell-1", "shell-2", "agent-1"]


def test_a_refused_start_takes_no_number(w: World) -> None:
    w.do(c.OpenAgent("T", Surface.TASKS, "d", max_tasks=1))
    w.start("X", "T", background=True)
    with refused(Reason.TASK_LIMIT):
        w.start("Y", "T", background=True)
    w.exits("X", "T")
    w.start("Z", "T", background=True)
    assert w.call("Z", "T").task_id == "shell-2"


@pytest.mark.parametrize(
    "task", ["shell-99", "shell-0", "shell-01", "shell-", "-1", "", "shell-²", "agent-1"]
)
def test_an_unknown_task_is_not_an_expired_one(w: World, task: str) -> None:
    w.start("X")
    with refused(Reason.TASK_UNKNOWN, task_id=task):
        tasks.find(w.state, "A", task)


def test_anothers_task_is_unknown(w: World) -> None:
    w.open("B")
    w.start("X", "B")
    with refused(Reason.TASK_UNKNOWN):
        tasks.find(w.state, "A", "shell-1")
    with refused(Reason.TASK_UNKNOWN):
        read(w, "X", 0, 0)
    with refused(Reason.TASK_UNKNOWN):
        begin(w, "X")


def test_a_stream_is_read_once(w: World) -> None:
    w.in_background("X")
    w.do(c.GroupGrew(w.call("X").group, Extent(9, 1)))
    read(w, "X", 0, 9)
    assert w.call("X").cursor == 9
    with pytest.raises(tasks.CursorMoved):
        read(w, "X", 0, 9)
    read(w, "X", 9, 9)
    assert not w.call("X").consumed


def test_a_read_can_be_repeated_by_its_id(w: World) -> None:
    w.in_background("X")
    read(w, "X", 0, 9, "r1")
    before = w.state.revision
    read(w, "X", 0, 9, "r1")
    assert w.state.revision == before
    first = w.call("X").task_read("r1")
    assert first is not None
    assert (first.start, first.end, first.live) == (0, 9, True)


def test_parallel_reads_can_each_be_repeated(w: World) -> None:
    w.in_background("X")
    read(w, "X", 0, 4, "r1")
    read(w, "X", 4, 9, "r2")
    before = w.state.revision
    read(w, "X", 9, 12, "r1")
    assert w.state.revision == before
    first = w.call("X").task_read("r1")
    assert first is not None
    assert (first.start, first.end) == (0, 4)
    for n in range(100):
        read(w, "X", 9, 9, f"more{n}")
    assert w.call("X").task_read("r1") is None
    assert len(w.call("X").reads) < 50


def test_a_terminal_read_reports_consumes_and_takes_the_notice_back(w: World) -> None:
    w.in_background("X")
    w.exits("X", size=9)
    assert w.notices() == ["X"]
    read(w, "X", 0, 4)  # there is more to read, but its end is told
    assert w.notices() == []
    read(w, "X", 4, 9)
    assert (w.call("X").reported, w.call("X").consumed) == (True, True)
    with refused(Reason.RESULT_CONSUMED):
        w.wait("X")
    with refused(Reason.NOTHING_TO_WAIT_FOR):
        w.wait()


def test_a_final_output_can_be_read_again(w: World) -> None:
    w.child("kid", call="D")
    read(w, "D", 0, 0)
    assert not w.call("D").reported
    w.next_turn("kid")
    w.end_turn("answer", "kid")
    for _ in range(2):
        read(w, "D", 0, 0)
    assert w.call("D").reported


def test_a_waiting_reader_at_the_end_means_no_notice(w: World) -> None:
    w.in_background("X")
    begin(w, "X")
    w.exits("X")
    assert w.notices() == []
    read(w, "X", 0, 0)
    end(w, "X")
    assert w.events(e.PromptQueued) == []


def test_a_waiting_reader_that_leaves_without_reading_leaves_the_notice(w: World) -> None:
    w.in_background("X")
    begin(w, "X")
    begin(w, "X")
    w.exits("X")
    end(w, "X")
    assert w.notices() == []
    end(w, "X")
    assert w.notices() == ["X"]


def test_a_waiting_reader_that_leaves_before_the_end_leaves_nothing_behind(w: World) -> None:
    w.in_background("X")
    begin(w, "X")
    end(w, "X")
    assert w.engine.memory.task_waits == {}
    w.exits("X")
    assert w.notices() == ["X"]


def test_a_waiting_reader_whose_daemon_died_leaves_the_notice(w: World) -> None:
    w.in_background("X")
    begin(w, "X")
    w.exits("X")
    assert w.notices() == []
    w.restart()
    assert w.notices() == ["X"]


def test_the_end_of_a_wait_that_began_before_a_restart_is_harmless(w: World) -> None:
    w.in_background("X")
    begin(w, "X")
    w.restart()
    end(w, "X")
    w.exits("X")
    assert w.notices() == ["X"]


def test_a_kill_by_the_owner_reports_by_anyone_else_not(w: World) -> None:
    w.in_background("X", "Y")
    w.cancel("X", reason="superseded", report=True)
    w.cancel("Y", by="operator")
    w.killed("X")
    w.killed("Y")
    assert w.notices() == ["Y"]
    result = w.call("X").result
    assert result is not None
    assert result.cancel_reason == "superseded"
    assert w.call("X").state is CallState.CANCELLED
    assert len(w.events(e.CallEnded, "X")) == 1


def test_a_kill_by_the_owner_of_what_is_being_ended_reports_too(w: World) -> None:
    w.in_background("X", "Y")
    w.cancel("X", by="operator", reason="first")
    w.cancel("Y", by="operator")
    w.cancel("X", reason="second", report=True)
    w.cancel("X", report=True)
    w.killed("X")
    w.killed("Y")
    assert w.notices() == ["Y"]
    result = w.call("X").result
    assert result is not None
    assert result.cancel_reason == "first"


def test_what_an_agent_says_while_it_is_being_ended_is_kept(w: World) -> None:
    w.child("kid", call="D")
    w.next_turn("kid")
    w.cancel("D", report=True)
    w.end_turn("half of it", "kid")
    w.worker_exits("kid", signal=15)
    result = w.call("D").result
    assert result is not None
    assert (result.state, result.answer) == (CallState.CANCELLED, "half of it")
    assert w.notices() == []


def test_a_killed_task_can_still_be_waited_for(w: World) -> None:
    w.in_background("X")
    w.cancel("X", report=True)
    w.killed("X")
    assert w.answer(w.wait("X")) == got("X")


def test_a_bare_wait_is_told_when_the_task_tools_take_the_last_result(w: World) -> None:
    w.in_background("X")
    w.start("Y", budget=None)
    w.runs("Y")
    both = w.wait("X", "Y")
    w.exits("X")
    bare = w.wait()
    read(w, "X", 0, 0)
    assert w.answer(bare) is None  # X is the set's
    w.cancel_wait(both)
    assert w.answer(bare) == got("X")


def test_a_result_of_a_set_that_was_read_is_not_given_to_another_wait(w: World) -> None:
    w.in_background("X", "Y")
    both = w.wait("X", "Y")
    w.exits("X")
    read(w, "X", 0, 0)
    w.cancel_wait(both)
    assert w.notices() == []
    assert w.answer(w.wait("X")) == got("X")
