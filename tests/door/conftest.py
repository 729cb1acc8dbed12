"""One supervisor for each file: what is tested here is who may do what, not starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import Supervisor


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    started = Supervisor()
    started.start()
    yield started
    started.stop()
