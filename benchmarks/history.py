"""State directories of supervisors that have run long: thousands of finished calls.

The daemon's own core, wire and store write them, with the events of real calls; only the
processes are left out. A hundred thousand calls that way take a minute, not ten.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.harness import Bench
from pinfoldd import shell_spec
from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.commands import Command
from pinfoldd.core.engine import Engine
from pinfoldd.core.settings import Settings
from pinfoldd.core.values import Exit, Extent, Now, Surface
from pinfoldd.rpc import wire
from pinfoldd.store import Record, Store

_BATCH = 2_000
_SPEC = shell_spec.encode(
    shell_spec.ShellSpec(argv=[], body=b"true", shell=b"/bin/sh", cwd=b"/", env={})
)


def history(bench: Bench, calls: int) -> Path:
    """The state directory of a supervisor that has finished so many calls; to be copied."""
    if calls not in bench.histories:
        bench.histories[calls] = _write(bench.scratch / f"history-{calls}", calls)
    return bench.histories[calls]


def _write(directory: Path, calls: int) -> Path:
    store = Store.open(directory, "process")
    engine = Engine(store.recover().state, Settings())
    pending: list[Record] = []
    began = Now(time.monotonic() - 3600.0, time.time() - 3600.0)

    def do(command: Command, at: float) -> list[e.Event]:
        events = engine.handle(command, Now(began.mono + at, began.wall + at))
        for stamp, event in events:
            seen = wire.serialized(stamp, event, engine.state)
            pending.append(Record.of(stamp, event, *seen))
        if len(pending) >= _BATCH:
            store.log.append(pending)
            pending.clear()
        return [event for _, event in events]

    do(c.Recover("benchmark", frozenset()), 0.0)
    agent = "past-0"
    for number in range(calls):
        at = 1.0 + number * 0.01
        if number % 1000 == 0:
            agent = f"past-{number // 1000}"
            do(c.OpenAgent(agent, Surface.TAU, "digest"), at)
        call = f"call-{number:08d}"
        started = do(c.StartCall(agent, call, "digest", f"make part-{number}", _SPEC), at)
        group = next(event.group for event in started if isinstance(event, e.CallStarting))
        do(c.GroupStarted(group, 10_000 + number % 20_000, began.mono + at, began.wall + at), at)
        end = at + 0.005
        do(c.GroupExited(group, Exit(code=0), Extent(), began.mono + end), end)
        do(c.GroupEmpty(group, None, began.mono + end), end)
    store.log.append(pending)
    store.snapshots.save(engine.state)
    store.close()
    return directory
