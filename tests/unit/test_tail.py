"""The end of the log that is kept in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinfoldd.core import commands as c
from pinfoldd.core.engine import Engine
from pinfoldd.core.model import State
from pinfoldd.core.settings import Settings
from pinfoldd.core.values import Surface
from pinfoldd.loop import Loop

MIB = 1 << 20


@pytest.mark.parametrize(("size", "kept"), [(MIB, 31), (33 * MIB, 0), (10, 100)])
async def test_it_is_bounded_in_bytes(size: int, kept: int) -> None:
    log = SimpleNamespace(append=lambda _: None, checkpoint_due=lambda: False)
    effects = SimpleNamespace(perform=lambda _: None, performed=lambda: None)
    loop = Loop(
        Engine(State(), Settings()),
        cast(Any, SimpleNamespace(log=log)),
        lambda stamp, event, state: ("agent.opened", bytes(size), None),
        cast(Any, effects),
    )
    opened = [
        loop.submit(c.OpenAgent(f"a{number}", surface=Surface.TAU, digest="", label=""))
        for number in range(100)
    ]
    await asyncio.gather(*opened)
    revisions = [record.revision for record in loop.tail]
    assert revisions == list(range(101 - kept, 101))
    assert loop.committed_revision == 100
