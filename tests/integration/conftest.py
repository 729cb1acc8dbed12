"""One supervisor for each file of tests, and an agent of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from integration.harness import Shells, shells_of
from support import Supervisor


@pytest.fixture(scope="module")
def shared() -> Iterator[Supervisor]:
    """A supervisor for all tests of a file. At the end nothing of it may be left."""
    supervisor = Supervisor()
    supervisor.start()
    yield supervisor
    supervisor.stop()


@pytest.fixture
async def shells(shared: Supervisor) -> AsyncIterator[Shells]:
    async with shared.client() as client, shells_of(shared, client) as opened:
        yield opened
