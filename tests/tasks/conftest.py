"""One supervisor for each file of tests, and owners of tasks on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pinfold import Client
from shared_supervisor import connected, gate, gates, shared
from support import Supervisor
from tasks.harness import Owner, owner_of

__all__ = ["connected", "gate", "gates", "shared"]

Open = Callable[..., Awaitable[Owner]]


@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest) -> str:
    """The settings file of the file's supervisor; a file of tests may define `SETTINGS`."""
    return str(getattr(request.module, "SETTINGS", ""))


@pytest.fixture
async def open_owner(shared: Supervisor, connected: Client) -> AsyncIterator[Open]:
    """Opens more agents."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**options: object) -> Owner:
            return await stack.enter_async_context(owner_of(shared, connected, **options))

        yield make


@pytest.fixture
async def owner(open_owner: Open) -> Owner:
    return await open_owner()


@pytest.fixture(params=["typed", "tool"])
def via(request: pytest.FixtureRequest) -> str:
    """Through the typed service, and as a model."""
    return str(request.param)
