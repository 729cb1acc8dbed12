"""10,000 parked waits: their memory, their release, and everyone else meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.crowd import Crowd, park_bare, release_bare
from benchmarks.harness import Answer, Bench, Load, Server, interleave, seconds
from benchmarks.stats import Goal, Row, Stats, timed

_NS = 1e-9


def run(bench: Bench) -> Iterator[Row]:
    size = 10_000  # also in a quick run: the goals are for as many
    loads = [bench.loads[0], bench.new_load()]
    others = bench.new_load()
    bare = bench.bare
    memory: dict[str, list[float]] = {"bare": [], "parked": []}
    meanwhile: dict[str, list[float]] = {"bare": [], "parked": []}
    with bench.supervisor() as supervisor:
        crowd = Crowd(supervisor, loads[0], "parked", size)

        def measure(
            name: str,
            server: Server,
            park: Callable[[], Callable[[], list[Answer]]],
            release: Callable[[], int],
        ) -> list[float]:
            before = server.memory()
            answers = park()
            memory[name].append((server.memory() - before) / size)
            background = others.begin("load", address=server.address, rate=200)
            time.sleep(0.3)
            began = release()
            last = max(at for answer in answers() for at in answer["at"])
            others.call("stop")
            meanwhile[name] += seconds(background()["took"])
            return [(last - began) * _NS]

        def parked() -> list[float]:
            took = measure(
                "parked", supervisor, lambda: crowd.park(loads), lambda: crowd.release(loads[0])
            )
            crowd.settle()
            return took

        def bare_parked() -> list[float]:
            return measure(
                "bare",
                bare,
                lambda: park_bare(bare, loads, size),
                lambda: release_bare(bare, loads[0]),
            )

        # The first round is the one that takes memory from the system.
        found = interleave(bench.size(7, 3), {"bare": bare_parked, "parked": parked}, False)
        yield Row(
            "parked",
            f"{size:,} parked waits: memory of each",
            Stats.one(max(memory["parked"])),
            floor=Stats.one(max(memory["bare"])),
            goal=Goal(1.3),
            unit="bytes",
        )
        name = loads[0].name
        what = f"{size:,} parked waits: released"
        yield timed("parked", what, found["parked"], found["bare"], client=name, goal=Goal(1.5))
        what = f"{size:,} parked waits: GetInfo meanwhile"
        yield timed("parked", what, meanwhile["parked"], meanwhile["bare"], client=others.name)
        yield _stream(bench, crowd, loads[0], size, found["bare"])


def _stream(bench: Bench, crowd: Crowd, load: Load, size: int, floor: list[float]) -> Row:
    took = []
    for _ in range(bench.size(5, 3)):
        answers = crowd.park([load], stream=True)
        began = crowd.release(load)
        last = max(at for answer in answers() for at in answer["at"])
        took.append((last - began) * _NS)
        crowd.settle()
    what = f"{size:,} waits over one WaitStream: released"
    note = "floor: as many bare parked RPCs"
    return timed("parked", what, took, floor, client=load.name, note=note)
