"""Events to watchers: as they come, and a hundred thousand at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from benchmarks.floors.bare import write_messages
from benchmarks.harness import Bench, Load, Supervisor, interleave
from benchmarks.history import history
from benchmarks.stats import Goal, Row, Stats
from pinfold.v1 import watch_service_pb2

_NS = 1e-9


def run(bench: Bench) -> Iterator[Row]:
    with bench.supervisor() as supervisor:
        agent = supervisor.agent("watch")
        for watchers in (1, 10, 100):
            yield from _rate(bench, supervisor, agent, watchers)
        yield from _rate(bench, supervisor, agent, 1, stalled=True)
    # Each call in it has made four events.
    state = history(bench, bench.size(25_000, 4_000))
    with bench.supervisor(state=state) as supervisor:
        yield from _catch_up(bench, supervisor, bench.scratch / "messages")


def _rate(
    bench: Bench, supervisor: Supervisor, agent: str, watchers: int, *, stalled: bool = False
) -> Iterator[Row]:
    """How fast one status after another gets to all watchers, and what they cost its sender."""
    watching, sending = bench.loads[0], bench.loads[-1] if stalled else bench.new_load()
    count = bench.size(3000, 500)
    address = supervisor.address
    alone = sending.call("report", address=address, agent=agent, n=count, concurrency=8)
    stuck = None
    if stalled:
        stuck = sending.begin("watch", address=address, start=1, until=1 << 30, stall=True)
    start = supervisor.client.info().revision + 1
    answer = watching.begin("watch", address=address, start=start, watchers=watchers, until=count)
    sent = sending.call("report", address=address, agent=agent, n=count, concurrency=8)
    told = answer()
    if stuck is not None:
        sending.call("stop")
        stuck()
    what = f"{watchers} watcher{'s' if watchers > 1 else ''}"
    if stalled:
        what += " and one that stalls"
    yield Row(
        "watch",
        f"{what}: events delivered",
        Stats.one(told["events"] / (sent["total"] * _NS)),
        client=watching.name,
        unit="events/s",
        note=f"{told['events'] / told['responses']:.1f} events in a response",
    )
    yield Row(
        "watch",
        f"{what}: the sender",
        Stats.one(count / (sent["total"] * _NS)),
        client=sending.name,
        floor=Stats.one(count / (alone["total"] * _NS)),
        unit="events/s",
        note="floor: the same without watchers",
    )


def _catch_up(bench: Bench, supervisor: Supervisor, file: Path) -> Iterator[Row]:
    events = supervisor.client.info().revision
    write_messages(file, _messages(supervisor))

    def measure(load: Load, address: str, start: int, name: str = "") -> list[float]:
        told = load.call("watch", address=address, start=start, name=name)
        if told["events"] < events:
            raise AssertionError(f"{told['events']} events of {events}")
        return [told["events"] / (told["total"] * _NS)]

    for load in bench.loads:
        found = interleave(
            bench.size(5, 2),
            {
                "bare": lambda load=load: measure(load, bench.bare.address, 1, str(file)),  # type: ignore[misc]
                "log": lambda load=load: measure(load, supervisor.address, 1),  # type: ignore[misc]
            },
        )
        yield Row(
            "watch",
            f"catching up {events:,} events",
            Stats.of(found["log"]),
            client=load.name,
            floor=Stats.of(found["bare"]),
            goal=Goal(0.5, reach=True),
            unit="events/s",
            note="floor: a bare stream of the same messages",
        )


def _messages(supervisor: Supervisor) -> list[bytes]:
    """What the supervisor sends, as bytes."""
    request = watch_service_pb2.WatchRequest(start_revision=1, stop_at_end=True)
    options = [("grpc.max_receive_message_length", 64 << 20)]
    with grpc.insecure_channel(supervisor.address, options=options) as channel:
        method: Any = channel.unary_stream(
            "/pinfold.v1.WatchService/Watch",
            request_serializer=watch_service_pb2.WatchRequest.SerializeToString,
        )
        return [bytes(message) for message in method(request)]
