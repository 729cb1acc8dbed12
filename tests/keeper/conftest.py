"""Real keepers and real processes."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from keeper.harness import Harness

_marks = itertools.count(1)


@pytest.fixture
def mark() -> str:
    """A length for `sleep` that no other process of the machine sleeps for."""
    return f"1000.{os.getpid():07d}{next(_marks):05d}"


@pytest.fixture
def state() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="keeper-")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def shared() -> Iterator[Harness]:
    """A keeper for all tests of one file: what they leave behind is ended with it."""
    path = tempfile.mkdtemp(prefix="keeper-")
    harness = Harness(path)
    yield harness
    harness.close()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def keeper(shared: Harness) -> Harness:
    """The file's keeper, with nothing remembered of earlier tests."""
    shared.link.drain(0)
    shared.link.seen.clear()
    return shared


@pytest.fixture
def own(state: str) -> Iterator[Harness]:
    """A keeper for this test alone, to be killed or measured."""
    harness = Harness(state)
    yield harness
    harness.close()


@pytest.fixture
def make(state: str) -> Iterator[Callable[..., Harness]]:
    """Keepers with settings of the test's own."""
    made: list[Harness] = []

    def build(**settings: Any) -> Harness:
        made.append(Harness(state, **settings))
        return made[-1]

    yield build
    for harness in made:
        harness.close()
