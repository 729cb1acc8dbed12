"""The client over a supervisor that is killed and started again."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pinfold import Client, Result
from support import Supervisor


async def kill_and_start(supervisor: Supervisor) -> None:
    await asyncio.to_thread(supervisor.kill)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(supervisor.start)


async def test_a_wait_gets_its_answer(supervisor: Supervisor, client: Client) -> None:
    agent = await client.open_agent("a")
    running = await agent.run("sleep 1.5; echo done; exit 4", background=True)
    waiting = asyncio.create_task(agent.wait_exact(running.call_id, timeout=30))
    await asyncio.sleep(0.3)
    await kill_and_start(supervisor)
    answer = await waiting
    assert answer.result is not None
    assert answer.result.exit_code == 4
    assert "out done" in answer.text


async def test_run_in_the_foreground(supervisor: Supervisor, client: Client) -> None:
    agent = await client.open_agent("a")
    running = asyncio.create_task(agent.run("sleep 1; echo done; exit 5", foreground_budget=60))
    await asyncio.sleep(0.4)
    await kill_and_start(supervisor)
    result = await running
    assert isinstance(result, Result)
    assert result.exit_code == 5
    calls = await agent.list()
    assert [call.call_id for call in calls] == [result.call_id]


async def test_output_is_whole(supervisor: Supervisor, client: Client) -> None:
    agent = await client.open_agent("a")
    script = "for i in $(seq 1 40); do seq $((i * 1000 - 999)) $((i * 1000)); sleep 0.05; done"
    call = await agent.start(script, foreground_budget=60)

    async def read() -> bytes:
        return b"".join([chunk.data async for chunk in agent.output(call.call_id)])

    reading = asyncio.create_task(read())
    for _ in range(2):
        await asyncio.sleep(0.4)
        await kill_and_start(supervisor)
    assert await reading == b"".join(b"%d\n" % number for number in range(1, 40001))
    assert (await agent.ended(call.call_id)).exit_code == 0


async def test_no_event_is_missed_or_repeated(supervisor: Supervisor, client: Client) -> None:
    agent = await client.open_agent("a")
    seen: list[int] = []
    ends: list[str] = []
    done = asyncio.Event()

    async def watch() -> None:
        async for event in client.events(1):
            seen.append(event.revision)
            if event.HasField("call_ended"):
                ends.append(event.call_id)
            if len(ends) == 6:
                done.set()

    watching = asyncio.create_task(watch())
    for number in range(3):
        await agent.run("true", call_id=f"before-{number}")
    await kill_and_start(supervisor)
    for number in range(3):
        await agent.run("true", call_id=f"after-{number}")
    await asyncio.wait_for(done.wait(), 10)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert len(set(ends)) == 6
    assert all(later > earlier for earlier, later in itertools.pairwise(seen))
    log = [event.revision async for event in client.events(1, stop_at_end=True)]
    assert log[: len(seen)] == seen
