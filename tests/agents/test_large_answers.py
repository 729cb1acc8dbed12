"""Answers that are large: they arrive, or nothing is used up."""

from __future__ import annotations

import grpc
import pytest

from agents.harness import Actor, texts
from pinfold.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    watch_service_pb2,
    watch_service_pb2_grpc,
)

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20


async def test_many_large_prompts_for_a_client_with_default_settings(me: Actor) -> None:
    """gRPC takes 4 MiB in a message: an agent whose prompts were more would get none of them,
    and a watcher none of the events after one that is."""
    bodies = [letter * MIB for letter in "abcdefg"]
    for body in bodies[:-1]:
        await me.agent.send_prompt(body, passive=True)
    await me.agent.send_prompt(bodies[-1])
    found: list[str] = []
    async with grpc.aio.insecure_channel(me.supervisor.address) as channel:
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        begun = await agents.NextTurn(agent_service_pb2.NextTurnRequest(agent_id=me.id))
        prompts, delivery = begun.prompts, begun.delivery_id
        while prompts:
            found += texts(prompts)
            taken = await agents.TakePrompts(
                agent_service_pb2.TakePromptsRequest(
                    agent_id=me.id, acknowledge_delivery_id=delivery
                )
            )
            prompts, delivery = taken.prompts, taken.delivery_id
        assert found == bodies
        watch = watch_service_pb2_grpc.WatchServiceStub(channel).Watch(
            watch_service_pb2.WatchRequest(
                start_revision=1,
                filter=watch_service_pb2.EventFilter(agent_ids=[me.id]),
                stop_at_end=True,
            )
        )
        names = [event.name async for response in watch for event in response.events]
        assert names.count("prompt.queued") == len(bodies)
    await me.agent.end_turn(begun.turn_id, "done")


async def test_the_answers_of_many_agents_in_one_wait(me: Actor) -> None:
    """Together they are over every bound that this channel ever had (64 MiB)."""
    answer = "x" * (MIB - 100)
    started = [await me.agent.start_agent(f"final {answer}", mode="call") for _ in range(24)]
    waited = await me.agent.wait_all([one.call_id for one in started], timeout=60)
    assert [result.answer for result in waited.results] == [answer] * len(started)
