"""Random stories: short ones by Hypothesis, which finds the shortest, and long ones by dice.

PINFOLD_WALKS=1000 pytest tests/unit/core/test_machine.py     many more of both
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import MODES, SUPERVISOR, CoreMachine

WALKS = int(os.environ.get("PINFOLD_WALKS", "12"))
KEEPER = ["started"] * 2 + ["exited"] * 8 + ["empty"] * 4
TALK = ["prompt", "message", "watch", "status"]


def walk(seed: int, steps: int) -> CoreMachine:
    """A long story by plain dice: denser than Hypothesis's, but nothing makes it shorter."""
    machine, dice = CoreMachine(), random.Random(seed)
    pick_of = dice.choice
    machine.roots()
    m: Any = machine
    moves: dict[Callable[[], object], int] = {
        lambda: m.a_call(data=dice): 14,
        lambda: m.a_sub_agent(data=dice, as_call=pick_of([0, 1]), sturdy=pick_of([0, 1])): 3,
        lambda: m.the_keeper(data=dice, kind=pick_of(KEEPER)): 24,
        lambda: m.the_keeper_seldom(data=dice, kind=pick_of(["failed", "output", "late"])): 3,
        lambda: m.the_keeper_fails(data=dice, lost=pick_of([False, False, True])): 2,
        lambda: m.the_clock(seconds=pick_of([0.3] * 4 + [1.0, 2.0, 2.0, 4.0, 70.0])): 7,
        lambda: m.a_wait(data=dice, mode=pick_of(MODES)): 6,
        lambda: m.many_waits(dice): 6,
        lambda: m.a_cancel(data=dice, kind=pick_of(["call"] * 8 + ["wait"] * 3 + ["turn"])): 8,
        lambda: m.an_end(data=dice, kind=pick_of(["stop", "again", "again"])): 2,
        lambda: m.talk(data=dice, kind=pick_of(TALK)): 4,
        lambda: m.a_turn(data=dice, kind=pick_of(["next"] * 3 + ["take"] * 2 + ["end"] * 2)): 12,
        lambda: m.a_task_tool(data=dice, kind=pick_of(["read", "comes", "goes", "goes"])): 5,
        lambda: m.a_repeat(data=dice): 3,
        lambda: m.the_supervisor(data=dice, kind=pick_of(SUPERVISOR)): 2,
    }
    population, weights = list(moves), list(moves.values())
    for move in dice.choices(population, weights, k=steps):
        move()
        machine.holds()
    return machine


@pytest.mark.parametrize("seed", range(WALKS))
def test_long_walks_agree_with_the_contract(seed: int) -> None:
    walk(seed, 400)


@pytest.mark.timeout(max(120, WALKS * 4))
def test_random_stories_agree_with_the_contract() -> None:
    chosen = settings(
        max_examples=WALKS * 8,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(CoreMachine, settings=chosen)
