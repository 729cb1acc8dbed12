"""One supervisor for each file of tests, and owners of tasks on it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from pinfold import Client
from support import Supervisor
from tasks.harness import Gate, Owner, configure, owner_of

Open = Callable[..., Awaitable[Owner]]


@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest) -> str:
    """The settings file of the file's supervisor; a file of tests may define `SETTINGS`."""
    return str(getattr(request.module, "SETTINGS", ""))


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


@pytest.fixture
def gates() -> Iterator[Callable[[], Gate]]:
    # A short path: it is a part of labels.
    with tempfile.TemporaryDirectory(prefix="g-", dir="/tmp") as directory:
        yield lambda: Gate(Path(directory))


@pytest.fixture
def gate(gates: Callable[[], Gate]) -> Gate:
    return gates()
