"""From the Cancel RPC to the terminal event at a watcher, with nothing left in between."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.harness import (
    ESCAPEES,
    SLEEPING,
    STUBBORN,
    TREE,
    Bench,
    Load,
    Server,
    Sleeper,
    Supervisor,
    cancels,
    interleave,
    seconds,
)
from benchmarks.stats import Goal, Row, add, timed

_EACH = 5  # repeats in one round
_GROUPS = 500
_RATE = 1000


def run(bench: Bench) -> Iterator[Row]:
    with bench.supervisor() as supervisor:
        for load in bench.loads:
            yield from _row(bench, supervisor, load, SLEEPING, "a sleeping shell", Goal(3, 6))
        load = bench.loads[0]
        yield from _row(bench, supervisor, load, TREE, "a tree of 10", Goal(5, 10))
        what = "a tree of 10, two in sessions of their own"
        yield from _row(bench, supervisor, load, ESCAPEES, what, Goal(5, 10))
        yield from _row(bench, supervisor, load, STUBBORN, "one that ignores TERM", None)
    with bench.supervisor() as supervisor:
        supervisor.sleepers("crowd", bench.size(_GROUPS, 100))
        crowd = f"{bench.size(_GROUPS, 100)} live groups"
        what = f"a sleeping shell, among {crowd}"
        yield from _row(bench, supervisor, load, SLEEPING, what, None)
        what = f"a sleeping shell, among {crowd} and {_RATE:,} RPCs a second"
        yield from _row(bench, supervisor, load, SLEEPING, what, Goal(3, 6), noise=bench.new_load())


def _row(
    bench: Bench,
    supervisor: Supervisor,
    load: Load,
    sleeper: Sleeper,
    what: str,
    goal: Goal | None,
    noise: Load | None = None,
) -> Iterator[Row]:
    """`noise`: keeps whichever server is measured busy meanwhile, floor and question alike."""
    agent = supervisor.agent("cancel")
    each = _EACH if noise is None else _EACH * 5
    others: list[float] = []
    accepted: list[float] = []
    left, killed, repeats = 0, 0, 0

    def echo() -> list[float]:
        """The bare server's answer at the moment at which a cancel would be asked for: after
        the start of a shell everything answers later than at the fifth echo in a row."""
        told = cancels(load, supervisor, agent, sleeper, each, echo=bench.bare.address)
        return seconds(told["echoed"])

    def cancel() -> list[float]:
        nonlocal left, killed, repeats
        told = cancels(load, supervisor, agent, sleeper, each)
        left += told["left"]
        killed += told["killed"]
        repeats += each
        accepted.extend(seconds(told["accepted"]))
        return seconds(told["ended"])

    def beside(
        server: Server, measure: Callable[[], list[float]], keep: bool = False
    ) -> Callable[[], list[float]]:
        if noise is None:
            return measure

        def both() -> list[float]:
            background = noise.begin("load", address=server.address, rate=_RATE)
            time.sleep(0.1)
            took = measure()
            noise.call("stop")
            told = seconds(background()["took"])
            if keep:
                others.extend(told)
            return took

        return both

    found = interleave(
        bench.size(40, 8) if noise is None else bench.size(16, 3),
        {
            "echo": beside(bench.bare, echo),
            "kill": beside(bench.bare, lambda: bench.native.ask(f"{sleeper.floor} {each}")),
            "ended": beside(supervisor, cancel, keep=True),
        },
    )
    ended = found["ended"]
    note = f"{killed / repeats:g} processes ended, {left} survivors"
    if sleeper is SLEEPING and noise is None:
        in_a_row = statistics.median(load.took("echo", address=bench.bare.address, n=200))
        then = statistics.median(found["echo"])
        note += f"; a bare echo takes {then * 1e6:.0f} µs then, {in_a_row * 1e6:.0f} in a row"
    if sleeper is STUBBORN:
        ended = [took - sleeper.grace for took in ended]
        note += f"; the grace of {sleeper.grace:g} s taken off"
    floor = add(found["echo"], found["kill"])
    yield timed("cancel", what, ended, floor, client=load.name, goal=goal, note=note)
    if noise is not None:
        yield timed("cancel", "…and those RPCs meanwhile", others, client=noise.name)
    if sleeper is SLEEPING and load is bench.loads[0]:
        what = f"…of it until the cancel is accepted ({what})"
        yield timed("cancel", what, accepted, found["echo"], client=load.name)
