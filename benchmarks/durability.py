"""What it costs that everything is on the disk, and what a long history costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Bench, Supervisor, interleave
from benchmarks.history import history
from benchmarks.stats import Goal, Row, Stats, timed

_NS = 1e-9
_EACH = 20


def run(bench: Bench) -> Iterator[Row]:
    with (
        bench.supervisor("--durability", "process") as process,
        bench.supervisor("--durability", "full") as full,
    ):
        modes = {"process": process, "full": full}
        for supervisor in modes.values():
            supervisor.agent("writer")
        yield from _commits(bench, modes)
        for mode, supervisor in modes.items():
            yield from _groups(bench, mode, supervisor)
    yield from _history(bench)


def _commits(bench: Bench, modes: dict[str, Supervisor]) -> Iterator[Row]:
    load = bench.loads[0]

    def report(supervisor: Supervisor) -> list[float]:
        return load.took("report", address=supervisor.address, agent="writer", n=_EACH)

    found = interleave(
        bench.size(40, 8),
        {
            "echo": lambda: load.took("echo", address=bench.bare.address, n=_EACH),
            "process": lambda: report(modes["process"]),
            "full": lambda: report(modes["full"]),
        },
    )
    for mode in modes:
        what = f"ReportStatus, one commit each ({mode})"
        yield timed("durability", what, found[mode], found["echo"], client=load.name)


def _groups(bench: Bench, mode: str, supervisor: Supervisor) -> Iterator[Row]:
    """Many at once share commits: a watcher is woken once for each."""
    load, watcher = bench.loads[0], bench.new_load()
    count, width = bench.size(4000, 800), 256
    start = supervisor.client.info().revision + 1
    answer = watcher.begin("watch", address=supervisor.address, start=start, until=count)
    told = load.call(
        "report", address=supervisor.address, agent="writer", n=count, concurrency=width
    )
    seen = answer()
    yield Row(
        "durability",
        f"ReportStatus, {width} at a time ({mode})",
        Stats.one(count / (told["total"] * _NS)),
        client=load.name,
        unit="commits/s",
        note=f"at most {seen['events'] / seen['responses']:.1f} events in a commit",
    )


def _history(bench: Bench) -> Iterator[Row]:
    calls = bench.size(100_000, 5_000)
    past = history(bench, calls)
    with bench.supervisor() as young, bench.supervisor(state=past) as old:
        memory = (old.memory() - young.memory()) / calls

        def again(supervisor: Supervisor) -> list[float]:
            supervisor.client.info()
            supervisor.end()
            return [supervisor.start()]

        found = interleave(
            bench.size(6, 2),
            {"empty": lambda: again(young), "past": lambda: again(old)},
        )
        size = _size(old.state) / calls
    what = f"start with {calls:,} calls of history"
    note = "floor: start with none"
    yield timed("durability", what, found["past"], found["empty"], goal=Goal(2), note=note)
    yield Row("durability", "memory of a finished call", Stats.one(memory), unit="bytes")
    yield Row("durability", "disk of a finished call", Stats.one(size), unit="bytes")


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
