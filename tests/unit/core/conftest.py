"""One world for each story."""

from __future__ import annotations

import pytest

from .world import World


@pytest.fixture
def w() -> World:
    return World()
