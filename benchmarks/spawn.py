"""RunShell `true` until its result, its rate, and the start of workers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.harness import SHELL, Bench, Lines, Load, Supervisor, interleave
from benchmarks.stats import Goal, Row, Stats, add, timed

_EACH = 10
_ROLES = """
[roles.kit]
worker = "python"
entry = "pinfold.worker.scripted:run_turn"
[roles.once]
worker = "exec"
command = ["cat"]
"""


def run(bench: Bench) -> Iterator[Row]:
    with bench.supervisor(settings=_ROLES) as supervisor:
        agent = supervisor.agent("spawn")
        for load in bench.loads:
            yield _round_trip(bench, supervisor, load, agent)
        for width in (1, 16, 256):
            yield _rate(bench, supervisor, bench.loads[0], agent, width)
        yield from _workers(bench, supervisor)


def _run(load: Load, supervisor: Supervisor, agent: str, n: int) -> list[float]:
    return load.took(
        "run", address=supervisor.address, agent=agent, n=n, script="true", shell=SHELL
    )


def _round_trip(bench: Bench, supervisor: Supervisor, load: Load, agent: str) -> Row:
    found = interleave(
        bench.size(60, 8),
        {
            "echo": lambda: load.took("echo", address=bench.bare.address, n=_EACH),
            "spawn": lambda: bench.native.ask(f"spawn {_EACH}"),
            "run": lambda: _run(load, supervisor, agent, _EACH),
        },
    )
    return timed(
        "spawn",
        "RunShell `true` → result",
        found["run"],
        add(found["echo"], found["spawn"]),
        client=load.name,
        goal=Goal(2.5, 4),
    )


def _rate(bench: Bench, supervisor: Supervisor, load: Load, agent: str, width: int) -> Row:
    count = bench.size(1000, 500)

    def measure() -> list[float]:
        told = load.call(
            "run",
            address=supervisor.address,
            agent=agent,
            n=count,
            concurrency=width,
            script="true",
            shell=SHELL,
        )
        return [count / (told["total"] * 1e-9)]

    def floor() -> list[float]:
        return [count / bench.native.ask(f"rate {count} {width}")[0]]

    found = interleave(bench.size(5, 3), {"floor": floor, "rate": measure})
    return Row(
        "spawn",
        f"RunShell `true`, {width} at a time",
        Stats.of(found["rate"]),
        client=load.name,
        floor=Stats.of(found["floor"]),
        goal=Goal(0.35, reach=True) if width == 16 else None,
        unit="calls/s",
    )


def _workers(bench: Bench, supervisor: Supervisor) -> Iterator[Row]:
    """StartAgent until the worker's first RPC: its NextTurn begins a turn, which is an event."""
    supervisor.agent("starter")
    forks = Lines([sys.executable, "-m", "benchmarks.floors.fork", bench.bare.address])
    try:
        found = interleave(
            bench.size(15, 3),
            {
                "fork": lambda: forks.ask("2"),
                "python": lambda: _first_rpcs(supervisor, "kit", 2),
                "exec": lambda: _first_rpcs(supervisor, "once", 2),
            },
        )
    finally:
        forks.close()
    floor = found["fork"]
    note = "floor: warm fork and one RPC"
    for role, goal in (("python", Goal(2)), ("exec", None)):
        what = f"agent_start, {role} worker → its first RPC"
        yield timed("spawn", what, found[role], floor, client="python", goal=goal, note=note)


def _first_rpcs(supervisor: Supervisor, role: str, n: int) -> list[float]:
    took = []
    client = supervisor.client
    starter = client.agent("starter")
    for _ in range(n):
        events = client.events(client.info().revision + 1, names=["agent.turn_started"])
        begin = time.monotonic()
        started = starter.start_agent("[]", role=role)
        for event in events:
            if event.agent_id == started.sub_agent_id:
                took.append(time.monotonic() - begin)
                break
        client.agent(started.sub_agent_id).stop()
    return took
