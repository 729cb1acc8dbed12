"""How the main figures grow with live groups and with history: themselves at the smallest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from benchmarks.harness import (
    SHELL,
    SLEEPING,
    Bench,
    Load,
    Supervisor,
    cancels,
    interleave,
    seconds,
)
from benchmarks.history import history
from benchmarks.stats import Goal, Row, timed

_EACH = 5


def run(bench: Bench) -> Iterator[Row]:
    groups = (10, 100, 1000) if not bench.quick else (10, 100)
    with contextlib.ExitStack() as stack:
        supervisors = [stack.enter_context(bench.supervisor()) for _ in groups]
        for supervisor, count in zip(supervisors, groups, strict=True):
            supervisor.sleepers("crowd", count)
        names = [f"{count:,} live groups" for count in groups]
        yield from _compare(bench, supervisors, names)
    calls = (1_000, 10_000, 100_000) if not bench.quick else (500, 5_000)
    with contextlib.ExitStack() as stack:
        supervisors = [
            stack.enter_context(bench.supervisor(state=history(bench, count))) for count in calls
        ]
        names = [f"{count:,} calls of history" for count in calls]
        yield from _compare(bench, supervisors, names)


def _compare(
    bench: Bench, supervisors: Sequence[Supervisor], names: Sequence[str]
) -> Iterator[Row]:
    load = bench.loads[0]
    for supervisor in supervisors:
        supervisor.agent("scale")
    for what, measure in _MEASURES.items():
        found = interleave(
            bench.size(20, 4),
            {
                name: lambda supervisor=supervisor, measure=measure: measure(load, supervisor)  # type: ignore[misc]
                for name, supervisor in zip(names, supervisors, strict=True)
            },
        )
        for name in names[1:]:
            note = f"floor: itself with {names[0]}"
            yield timed(
                "scale",
                f"{what}, {name}",
                found[name],
                found[names[0]],
                client=load.name,
                goal=Goal(1.3) if name is names[-1] else None,
                note=note,
            )


def _cancel(load: Load, supervisor: Supervisor) -> list[float]:
    return seconds(cancels(load, supervisor, "scale", SLEEPING, _EACH)["ended"])


def _run(load: Load, supervisor: Supervisor) -> list[float]:
    return load.took(
        "run", address=supervisor.address, agent="scale", n=_EACH, script="true", shell=SHELL
    )


def _info(load: Load, supervisor: Supervisor) -> list[float]:
    return load.took("echo", address=supervisor.address, n=_EACH)


def _report(load: Load, supervisor: Supervisor) -> list[float]:
    return load.took("report", address=supervisor.address, agent="scale", n=_EACH)


_MEASURES: dict[str, Callable[[Load, Supervisor], list[float]]] = {
    "cancel of a sleeping shell": _cancel,
    "RunShell `true`": _run,
    "GetInfo": _info,
    "ReportStatus": _report,
}
