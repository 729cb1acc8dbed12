"""One supervisor for each file of tests, and agents of its own for each test."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from agents.harness import ROLES, Actor, actor_of
from pinfold import Client
from support import Supervisor
from tasks.harness import Gate, configure

Open = Callable[..., Awaitable[Actor]]


@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest) -> str:
    """The settings of the file's supervisor: `SETTINGS` of the file before the roles."""
    return str(getattr(request.module, "SETTINGS", "")) + ROLES


@pytest.fixture(scope="module")
def shared(settings: str) -> Iterator[Supervisor]:
    """At the end nothing of it may be left."""
    supervisor = Supervisor()
    configure(supervisor, settings)
    supervisor.start()
    yield supervisor
    supervisor.stop()


@pytest.fixture
async def connected(shared: Supervisor) -> AsyncIterator[Client]:
    async with shared.client() as client:
        yield client


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


@pytest.fixture
def gates() -> Iterator[Callable[[], Gate]]:
    with tempfile.TemporaryDirectory(prefix="g-", dir="/tmp") as directory:
        yield lambda: Gate(Path(directory))


@pytest.fixture
def gate(gates: Callable[[], Gate]) -> Gate:
    return gates()
