"""Supervisors that are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from chaos.wreck import Wreck
from support import Supervisor


@pytest.fixture
async def wreck(make_supervisor: Callable[..., Supervisor]) -> AsyncIterator[Wreck]:
    """A running supervisor with a client that bears its deaths, and one agent."""
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    async with Wreck.of(supervisor) as made:
        yield made
