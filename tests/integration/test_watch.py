"""Watch: every event once and in order, at each watcher's own pace."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from integration.harness import Event, Shells, error_info, memory
from pinfold.errors import OutOfRangeError
from pinfold.v1 import agent_pb2, call_pb2, watch_service_pb2
from support import Supervisor

Response = watch_service_pb2.WatchResponse


async def to_end(shells: Shells, start: int, **options: object) -> list[Event]:
    events = shells.client.events(start, stop_at_end=True, **options)
    return [event async for event in events]


async def test_revisions_increase_by_one(shells: Shells) -> None:
    for _ in range(5):
        await shells.run("true")
    events = await to_end(shells, 1)
    assert [event.revision for event in events] == list(range(1, len(events) + 1))
    assert (await shells.client.info()).revision >= len(events)


async def test_decisions_are_not_split(shells: Shells) -> None:
    await asyncio.gather(*(shells.run("echo x") for _ in range(100)))
    decided: dict[int, int] = {}
    number = 0
    async for response in shells.client.watch(1, stop_at_end=True):
        number += 1
        for event in response.events:
            assert decided.setdefault(event.decision_revision, number) == number
            assert event.decision_revision <= event.revision
        if response.events:
            assert response.events[0].decision_revision == response.events[0].revision


async def test_a_snapshot_and_what_follows(shells: Shells) -> None:
    live = await shells.start("sleep 1000", call_id="live", grace=0.1)
    await shells.until_event("call.started", call_id=live)
    done = await shells.start("exit 2", call_id="done")
    await shells.ended(done)
    await shells.run("true", call_id="returned")
    calls: dict[str, call_pb2.Call] = {}
    agents: dict[str, agent_pb2.Agent] = {}
    later: list[Event] = []
    bookmark = 0
    async for response in shells.client.watch(0, agents=[shells.id]):
        for call in response.snapshot.calls:
            calls[call.call_id] = call
        for agent in response.snapshot.agents:
            agents[agent.agent_id] = agent
        if response.HasField("bookmark"):
            bookmark = response.bookmark.revision
            await shells.cancel("live")
        later += response.events
        if any(event.HasField("call_ended") for event in response.events):
            break
    assert set(agents) == {shells.id}
    assert {name: call.state for name, call in calls.items()} == {
        "live": call_pb2.CALL_STATE_RUNNING,
        "done": call_pb2.CALL_STATE_SUCCEEDED,
    }
    assert all(event.revision > bookmark for event in later)
    assert later[0].name == "call.cancel_requested"


async def test_a_snapshot_for_a_filter(shells: Shells) -> None:
    for call in ("one", "two"):
        await shells.until_event(
            "call.started", call_id=await shells.start("sleep 1000", call_id=call)
        )

    async def shown(**wanted: Any) -> tuple[list[str], list[str]]:
        agents: list[str] = []
        calls: list[str] = []
        async for response in shells.client.watch(0, **wanted):
            agents += [agent.agent_id for agent in response.snapshot.agents]
            calls += [call.call_id for call in response.snapshot.calls]
            if response.HasField("bookmark"):
                break
        return agents, calls

    mine = {"agents": [shells.id]}
    assert await shown(**mine) == ([shells.id], ["one", "two"])
    assert await shown(**mine, names=["call.ended"]) == ([shells.id], ["one", "two"])
    assert await shown(**mine, call_id="two") == ([], ["two"])
    assert await shown(call_id="two") == ([], ["two"])


async def test_resuming_misses_nothing_and_repeats_nothing(shells: Shells) -> None:
    first = position = (await shells.client.info()).revision + 1

    async def work() -> None:
        await asyncio.gather(*(shells.run(f"echo {n}") for n in range(60)))
        await shells.agent.status("done", "all of it")

    working = asyncio.ensure_future(work())
    seen: list[int] = []
    name = ""
    while name != "agent.status_reported":
        async for event in shells.client.events(position):
            seen.append(event.revision)
            position, name = event.revision + 1, event.name
            if event.revision % 7 == 0 or name == "agent.status_reported":
                break
    await working
    assert seen == list(range(first, position))


async def test_filters(shells: Shells) -> None:
    await shells.run("true", call_id="A")
    await shells.run("exit 1", call_id="B")
    mine = await to_end(shells, 1, agents=[shells.id])
    assert {event.agent_id for event in mine} == {shells.id}
    names = [event.name for event in mine]
    assert [event.name for event in await to_end(shells, 1, agents=[shells.id], call_id="A")] == [
        "call.queued",
        "call.starting",
        "call.started",
        "tool.result",
    ]
    only = await to_end(shells, 1, agents=[shells.id], names=["tool.*", "agent.opened"])
    assert [event.name for event in only] == ["agent.opened", "tool.result", "tool.result"]
    exact = await to_end(shells, 1, agents=[shells.id], names=["call.star"])
    assert exact == []
    assert names[0] == "agent.opened"
    request = watch_service_pb2.WatchRequest(
        start_revision=1,
        filter=watch_service_pb2.EventFilter(agent_ids=["nobody"]),
        stop_at_end=True,
    )
    responses = [r async for r in shells.client.connection.watches.Watch(request)]
    assert all(not response.events for response in responses)


async def test_progress_while_nothing_happens(shells: Shells) -> None:
    start = (await shells.client.info()).revision + 1
    seen = 0
    async for response in shells.client.watch(start, agents=[shells.id], progress=0.1):
        assert not response.events
        assert response.progress.revision >= start - 1
        seen += 1
        if seen == 3:
            break


async def test_internal_prompts_are_hidden_by_their_type(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    """From memory and from the disk, with a filter and without one."""
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client:
        agent = await client.open_agent()
        await agent.send_prompt("for all to see")
        await agent.run("true", call_id="X", background=True)
        await agent.ended("X")
        end = (await client.info()).revision
        for _ in range(2):
            prompts = {"agents": [agent.agent_id], "names": ["prompt.queued"]}
            for show, wanted in itertools.product((False, True), ({}, prompts)):
                seen = client.events(1, **wanted, show_internal=show, stop_at_end=True)
                events = [event async for event in seen]
                assert wanted or [event.revision for event in events[:end]] == [*range(1, end + 1)]
                told = [e.prompt_queued.prompt for e in events if e.name == "prompt.queued"]
                texts = {prompt.kind: prompt.text for prompt in told}
                assert texts[agent_pb2.PROMPT_KIND_USER] == "for all to see"
                assert bool(texts[agent_pb2.PROMPT_KIND_NOTICE]) == show
                assert [prompt.internal for prompt in told] == [False, True]
            await asyncio.to_thread(supervisor.kill)
            supervisor.start()


async def test_a_revision_that_is_not_there_yet(shells: Shells) -> None:
    revision = (await shells.client.info()).revision
    with pytest.raises(OutOfRangeError) as caught:
        await to_end(shells, revision + 100)
    assert caught.value.reason == "REVISION_IN_FUTURE"


async def test_a_slow_watcher(shells: Shells) -> None:
    request = watch_service_pb2.WatchRequest(start_revision=1)
    slow = shells.client.connection.watches.Watch(request)
    first: Response = await slow.read()
    seen = [event.revision for event in first.events]
    info = await shells.client.info()
    was = memory(info.pid)
    for _ in range(12):
        await asyncio.gather(*(shells.run(f": {'x' * 900}") for _ in range(100)))
    assert memory(info.pid) - was < 64 << 20
    end = (await shells.client.info()).revision
    assert end > 4_800
    while seen[-1] < end:
        response = await slow.read()
        seen += [event.revision for event in response.events]
    assert seen == list(range(1, seen[-1] + 1))
    slow.cancel()


async def test_many_watchers_see_the_same(shells: Shells) -> None:
    start = (await shells.client.info()).revision + 1

    async def watcher() -> list[tuple[int, str]]:
        seen = []
        async for event in shells.client.events(start, agents=[shells.id]):
            seen.append((event.revision, event.name))
            if event.name == "agent.status_reported":
                return seen
        raise AssertionError

    watchers = [asyncio.ensure_future(watcher()) for _ in range(30)]
    for number in range(10):
        await shells.run(f"exit {number}")
    await shells.agent.status("done", "all of it")
    lists = await asyncio.gather(*watchers)
    assert all(seen == lists[0] for seen in lists)
    assert [r for r, _ in lists[0]] == sorted({r for r, _ in lists[0]})


async def test_old_events_are_forgotten_and_that_is_said(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor(env={"PINFOLD_RETENTION__EVENTS": "400"})
    supervisor.start()
    async with supervisor.client() as client:
        agent = await client.open_agent()
        slow = client.connection.watches.Watch(watch_service_pb2.WatchRequest(start_revision=1))
        await slow.read()
        for _ in itertools.count():
            await asyncio.gather(*(agent.run("true") for _ in range(50)))
            info = await client.info()
            if info.oldest_revision > 500:
                break
        assert info.revision - info.oldest_revision >= 399
        with pytest.raises(OutOfRangeError) as caught:
            async for _ in client.events(1):
                pass
        assert caught.value.reason == "REVISION_COMPACTED"
        oldest = int(caught.value.metadata["oldest_revision"])
        assert oldest >= info.oldest_revision
        events = client.events(oldest, stop_at_end=True)
        revisions = [event.revision async for event in events]
        assert revisions == list(range(oldest, revisions[-1] + 1))
        # One that fell behind is told as well, and never skips over the hole in silence.
        position, reason = 0, ""
        try:
            while position < info.revision:
                response = await slow.read()
                for event in response.events:
                    assert position in (0, event.revision - 1)
                    position = event.revision
        except grpc.aio.AioRpcError as error:
            reason = error_info(error).reason
        assert reason in ("", "REVISION_COMPACTED")
        slow.cancel()
    supervisor.kill()
    supervisor.start()
    async with supervisor.client() as client:
        again = await client.info()
        assert again.oldest_revision >= info.oldest_revision
        assert again.revision > info.revision
        assert (await client.agent(agent.agent_id).run("echo on")).text.endswith("out on")
