"""One supervisor for each file of tests, and agents of its own for each test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agents.harness import ROLES, Actor, actor_of
from pinfold import Client
from shared_supervisor import connected, gate, gates, shared
from support import Supervisor

__all__ = ["connected", "gate", "gates", "shared"]

Open = Callable[..., Awaitable[Actor]]


@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest) -> str:
    """The settings of the file's supervisor: `SETTINGS` of the file before the roles."""
    return str(getattr(request.module, "SETTINGS", "")) + ROLES


@pytest.fixture
async def open_actor(shared: Supervisor, connected: Client) -> AsyncIterator[Open]:
    """Opens root agents."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**options: object) -> Actor:
            return await stack.enter_async_context(actor_of(shared, connected, **options))

        yield make


@pytest.fixture
async def me(open_actor: Open) -> Actor:
    return await open_actor()
