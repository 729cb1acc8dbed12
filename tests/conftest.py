"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

# Tests start processes while gRPC is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from pinfold import Client
from support import Supervisor

# What is ignored here stays ignored in all that is started, by intent: under nohup, too.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)


@pytest.fixture
def make_supervisor() -> Iterator[Callable[..., Supervisor]]:
    """Makes supervisors that aren't started yet; ends them and counts what is left."""
    made: list[Supervisor] = []

    def make(*arguments: str, env: dict[str, str] | None = None) -> Supervisor:
        supervisor = Supervisor(arguments, env)
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in made:
        supervisor.stop()


@pytest.fixture
def supervisor(make_supervisor: Callable[..., Supervisor]) -> Supervisor:
    """A running supervisor on a fresh state directory. After the test it is stopped, and no
    process of it may be left."""
    started = make_supervisor()
    started.start()
    return started


@pytest.fixture
async def client(supervisor: Supervisor) -> AsyncIterator[Client]:
    async with supervisor.client() as connected:
        yield connected
