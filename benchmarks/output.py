"""Bytes from children to clients."""

from __future__ import annotations

import os
from collections.abc import Iterator

from benchmarks.harness import SHELL, Bench, Load, Supervisor, interleave
from benchmarks.stats import Goal, Row, Stats
from pinfold.v1 import call_service_pb2

_PIECE = 256 * 1024
_GIB = 1 << 30


def run(bench: Bench) -> Iterator[Row]:
    size = bench.size(_GIB, _GIB >> 3)
    rounds = bench.size(4, 2)
    with bench.supervisor() as supervisor:
        agent = supervisor.agent("output")
        for load in bench.loads:
            found = interleave(
                rounds,
                {
                    "bare": lambda load=load: _bare(bench, load, size),  # type: ignore[misc]
                    "child": lambda load=load: _child(supervisor, load, agent, size),  # type: ignore[misc]
                },
                warm_up=False,
            )
            yield _row(f"{_name(size)} child → client", load, found["child"], found["bare"])
        load = bench.loads[0]
        floor = found["bare"] if load is bench.loads[-1] else _bare(bench, load, size) * 2
        yield Row(
            "output",
            "a bare stream in messages of 64 KiB",
            Stats.of(_bare(bench, load, size, _PIECE // 4)),
            client=load.name,
            floor=Stats.of(floor),
            unit="bytes/s",
            note="floor: in messages of 256 KiB",
        )
        call = _start(supervisor, agent, size)
        file = str(bench.scratch / "copy")
        speed = _read(supervisor, load, agent, call, size, file)
        yield _row(f"{_name(size)} child → client → file", load, speed, floor, goal=False)
        speed = _read(supervisor, load, agent, call, size)
        yield _row(f"{_name(size)} again, from the spool", load, speed, floor, goal=False)
        speed = _stalled(bench, supervisor, load, agent, size)
        yield _row(f"{_name(size)} beside a reader that stalls", load, speed, floor, goal=False)
        yield _many(bench, supervisor, load, agent)


def _row(
    what: str, load: Load, speed: list[float], floor: list[float], *, goal: bool = True
) -> Row:
    return Row(
        "output",
        what,
        Stats.of(speed),
        client=load.name,
        floor=Stats.of(floor),
        goal=Goal(0.6, reach=True) if goal else None,
        unit="bytes/s",
        note="floor: a bare stream of 256 KiB messages",
    )


def _name(size: int) -> str:
    return f"{size >> 30} GiB" if size >= _GIB else f"{size >> 20} MiB"


def _bare(bench: Bench, load: Load, size: int, piece: int = _PIECE) -> list[float]:
    os.sync()  # what the disk still has to do from before must not slow the floor, either
    told = load.call(
        "read", address=bench.bare.address, agent="a", call="x", offset=piece, limit=size
    )
    return [told["bytes"] / (told["total"] * 1e-9)]


def _start(supervisor: Supervisor, agent: str, size: int) -> str:
    for spool in (supervisor.state / "spool").iterdir():
        # Gigabytes that nobody reads again would make a virtual machine ask for fresh memory,
        # which some hosts hand out at 400 MiB/s.
        spool.unlink()
    os.sync()
    call = supervisor.client.agent(agent).start(
        f"head -c {size} /dev/zero",
        shell=SHELL,
        foreground_budget=3600.0,
        limits=call_service_pb2.CallLimits(output_bytes=2 * _GIB),
    )
    return call.call_id


def _child(supervisor: Supervisor, load: Load, agent: str, size: int) -> list[float]:
    return _read(supervisor, load, agent, _start(supervisor, agent, size), size)


def _read(
    supervisor: Supervisor, load: Load, agent: str, call: str, size: int, file: str = ""
) -> list[float]:
    told = load.call("read", address=supervisor.address, agent=agent, call=call, file=file)
    if told["bytes"] != size:
        raise AssertionError(f"{told['bytes']} bytes instead of {size}")
    return [size / (told["total"] * 1e-9)]


def _stalled(
    bench: Bench, supervisor: Supervisor, load: Load, agent: str, size: int
) -> list[float]:
    other = bench.new_load()
    call = _start(supervisor, agent, size)
    stalled = other.begin("read", address=supervisor.address, agent=agent, call=call, stall=True)
    speed = _read(supervisor, load, agent, call, size)
    other.call("stop")
    if stalled()["bytes"] != size:
        raise AssertionError("the stalled reader has lost something")
    return speed


def _many(bench: Bench, supervisor: Supervisor, load: Load, agent: str) -> Row:
    """200 children that write at once; the time until the last result is there."""
    children, each = bench.size(200, 50), 1 << 20
    told = load.call(
        "run",
        address=supervisor.address,
        agent=agent,
        n=children,
        concurrency=children,
        script=f"head -c {each} /dev/zero",
        shell=SHELL,
    )
    return Row(
        "output",
        f"{children} children write 1 MiB each at once",
        Stats.one(children * each / (told["total"] * 1e-9)),
        client=load.name,
        unit="bytes/s",
        note="from RunShell to the last result",
    )
