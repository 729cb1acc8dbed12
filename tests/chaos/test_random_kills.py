"""Kills at random points of a random load: whatever dies when, the log tells one true story."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable

import pytest

from chaos.wreck import Wreck, check_log, whole_log
from integration.harness import consumed
from pinfold.errors import StateError
from pinfold.v1 import call_pb2
from support import Supervisor

ROUNDS = 10

SCRIPTS = (
    "exit 3",
    "sleep 0.05; echo x",
    "seq 1 2000",
    "sleep 1000",
    "(setsid sleep 1000 &); sleep 0.1; echo left",
    "trap '' TERM; (setsid sleep 1000 &); sleep 1000",
)


class Load:
    """Clients that start, wait for and cancel calls, and bear what happens meanwhile."""

    def __init__(self, wreck: Wreck, chance: random.Random) -> None:
        self.wreck = wreck
        self.chance = chance
        self.calls: dict[str, str] = {}
        self.delivered: list[str] = []

    async def round(self, number: int) -> None:
        await asyncio.gather(*(self.one(f"r{number}c{n}") for n in range(8)))

    async def one(self, call_id: str) -> None:
        agent, chance = self.wreck.agent, self.chance
        script = self.calls[call_id] = chance.choice(SCRIPTS)
        await agent.run(script, call_id=call_id, background=True, grace=0.1)
        if "1000" in script and "left" not in script:
            await asyncio.sleep(chance.uniform(0, 0.1))
            with contextlib.suppress(StateError):
                await agent.cancel(call_id)
        if chance.random() < 0.7:
            await self.collect(call_id)

    async def collect(self, call_id: str) -> None:
        """As a client does that wants to be sure: the same wait id until there is an answer."""
        while True:
            wait_id = f"w-{call_id}-{self.chance.randrange(10**9)}"
            try:
                answer = await self.wreck.agent.wait_exact(call_id, wait_id=wait_id)
            except StateError as error:
                if error.reason != "WAIT_CANCELLED":
                    raise
                continue
            self.delivered += [result.call_id for result in answer.results]
            assert answer.results
            return


async def kill(wreck: Wreck, what: str, keeper: int) -> None:
    if what in ("keeper", "both"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGKILL)
    if what in ("daemon", "both"):
        await wreck.restart()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.timeout(120)
async def test_kills_at_random(make_supervisor: Callable[..., Supervisor], seed: int) -> None:
    chance = random.Random(seed)
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    # Passive notices: no wait is interrupted by them, so that every wait has one answer.
    async with Wreck.of(supervisor, surface="tasks", max_active_tasks=1000) as wreck:
        load = Load(wreck, chance)
        for number in range(ROUNDS):
            keeper = await wreck.keeper()
            work = asyncio.ensure_future(load.round(number))
            await asyncio.sleep(chance.uniform(0, 0.25))
            await kill(wreck, chance.choice(("daemon", "daemon", "keeper", "both")), keeper)
            await asyncio.wait_for(work, 60)
        rest = [call_id for call_id in load.calls if call_id not in load.delivered]
        for call_id in rest:
            await load.collect(call_id)
        assert sorted(load.delivered) == sorted(load.calls)
        log = await whole_log(wreck.client)
        check_log(log, list(load.calls))
        assert consumed(log) == dict.fromkeys(load.calls, 1)
        await check_results(load)
        await wreck.agent.stop(grace=0.1)
        await wreck.gone(0.5)


async def check_results(load: Load) -> None:
    """A call that was not lost, cancelled or in the way of a kill ended as its script says."""
    wanted = {"exit 3": 3, "sleep 0.05; echo x": 0, "seq 1 2000": 0}
    for call_id, script in load.calls.items():
        call = await load.wreck.agent.get(call_id)
        lost = call.state == call_pb2.CALL_STATE_LOST
        if script in wanted and not lost:
            assert call.state == call_pb2.CALL_STATE_SUCCEEDED, call
            assert call.result.process.exit_code == wanted[script]
        if script == "seq 1 2000" and not lost:
            assert call.output.size == 8893
            assert len(await load.wreck.output(call_id)) == 8893
