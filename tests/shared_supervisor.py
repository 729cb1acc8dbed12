"""One supervisor for each file of tests, and what its tests wait with: for a `conftest` to import.

Which settings it has is the `settings` fixture of the conftest."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pinfold import Client
from support import Supervisor
from tasks.harness import Gate, configure

__all__ = ["connected", "gate", "gates", "shared"]


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
def gates() -> Iterator[Callable[[], Gate]]:
    # A short path: it is a part of labels.
    with tempfile.TemporaryDirectory(prefix="g-", dir="/tmp") as directory:
        yield lambda: Gate(Path(directory))


@pytest.fixture
def gate(gates: Callable[[], Gate]) -> Gate:
    return gates()
