"""What a decision costs, whatever has happened before. In processor time, which other work
on the machine does not lengthen much."""

from __future__ import annotations

import time
from collections.abc import Callable

from pinfoldd.core import commands as c
from pinfoldd.core.values import Exit, Extent, WaitMode

from .world import World

LIFE_MICROSECONDS = 60.0


def life(w: World, call: str, *, background: bool = False) -> None:
    now, handle = w.now, w.engine.handle
    handle(c.StartCall("A", call, "d", call, b"spec", background=background), now)
    group = w.call(call).group
    handle(c.GroupStarted(group, 1, w.mono, now.wall), now)
    handle(c.GroupExited(group, Exit(0), Extent(10, 1), w.mono), now)


def cost(step: Callable[[int], object], *, times: int = 300, runs: int = 7) -> float:
    """Microseconds of one step: the best of several runs."""
    best = float("inf")
    for run in range(runs):
        begin = time.process_time()
        for i in range(times):
            step(run * times + i)
        best = min(best, time.process_time() - begin)
    return best / times * 1e6


def full() -> World:
    """20,000 finished calls and 1,000 live ones, of one agent."""
    w = World()
    for i in range(20_000):
        life(w, f"old{i}")
    for i in range(1_000):
        w.start(f"live{i}", background=True)
        w.runs(f"live{i}")
    return w


def test_a_whole_call_costs_little_and_no_more_when_there_are_many() -> None:
    w = full()
    assert cost(lambda i: life(w, f"new{i}")) < LIFE_MICROSECONDS


def test_a_wait_and_its_answer_cost_little_when_there_are_many() -> None:
    w = full()

    def waited(i: int) -> None:
        life(w, f"new{i}", background=True)
        w.engine.handle(c.StartWait("A", f"w{i}", WaitMode.ANY_BACKGROUND, [], "d"), w.now)

    assert cost(waited) < 2 * LIFE_MICROSECONDS


def test_a_tick_with_nothing_due_costs_nothing() -> None:
    w = full()
    w.after(0.0)
    assert cost(lambda _: w.engine.handle(c.Tick(), w.now)) < LIFE_MICROSECONDS / 4
