"""A watcher that begins with a snapshot: nothing is missing between it and the events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinfold.v1 import watch_service_pb2
from pinfoldd.core import commands as c
from pinfoldd.core.engine import Engine
from pinfoldd.core.model import State
from pinfoldd.core.settings import Settings
from pinfoldd.core.values import Surface
from pinfoldd.loop import Loop
from pinfoldd.rpc import wire
from pinfoldd.rpc.watch_service import WatchService
from pinfoldd.supervisor import Texts


@pytest.fixture
async def loop() -> Loop:
    log = SimpleNamespace(
        append=lambda _: None, checkpoint_due=lambda: False, oldest_revision=lambda: 1
    )
    effects = SimpleNamespace(perform=lambda _: None, performed=lambda: None)
    return Loop(
        Engine(State(), Settings()),
        cast(Any, SimpleNamespace(log=log)),
        lambda stamp, event, state: wire.serialized(stamp, event, state, texts=Texts()),
        cast(Any, effects),
    )


async def opened(loop: Loop, agent: str) -> None:
    await loop.submit(c.OpenAgent(agent, surface=Surface.TAU, digest="", label="x" * 900))


async def test_what_happens_while_it_is_on_its_way_follows_it(loop: Loop) -> None:
    early = [f"early-{number:03}" for number in range(1_000)]
    for agent in early:
        await opened(loop, agent)
    service = WatchService(
        cast(Any, SimpleNamespace(loop=loop, state=loop.state)), *[cast(Any, None)] * 2
    )
    stream = service.Watch(watch_service_pb2.WatchRequest(start_revision=0, stop_at_end=True))
    shown: list[str] = []
    told: list[str] = []
    parts = 0
    async for response in stream:
        if isinstance(response, bytes):
            response = watch_service_pb2.WatchResponse.FromString(response)
        if response.HasField("snapshot"):
            parts += 1
            shown += [agent.agent_id for agent in response.snapshot.agents]
            await opened(loop, f"late-{parts}")
        told += [event.agent_id for event in response.events]
    assert parts > 1
    assert shown == early
    assert told == [f"late-{number}" for number in range(1, parts + 1)]
