from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fake import Fake

from pinfold import Client


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    server = Fake()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def fake_client(fake: Fake) -> AsyncIterator[Client]:
    async with Client.connect(f"unix:{fake.socket}", token="", patience=5.0) as client:
        yield client
