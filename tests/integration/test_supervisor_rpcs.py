"""The supervisor itself: info, health, reflection, drain, stop, tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from integration.harness import Shells, shells_of
from pinfold import Client, Result
from pinfold.errors import (
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from support import MARKER, Supervisor, processes_with

Make = Callable[..., Supervisor]
SERVICES = [
    f"pinfold.v1.{name}Service" for name in ("Agent", "Call", "Supervisor", "Task", "Tool", "Watch")
]


async def test_info(shells: Shells) -> None:
    info = await shells.client.info()
    assert info.version
    assert info.pid == shells.supervisor.pid
    assert info.keeper_pid in processes_with(MARKER, shells.supervisor.marker)
    assert info.containment.startswith("subreaper")
    assert info.address == shells.supervisor.address
    assert info.limits.foreground_budget.seconds == 2
    assert not info.limits.HasField("default_timeout")
    assert (info.limits.min_input_wait_minutes, info.limits.max_input_wait_minutes) == (5, 1440)
    live = info.live_calls
    call_id = await shells.start("sleep 1000", grace=0.1)
    assert (await shells.client.info()).live_calls == live + 1
    await shells.cancel(call_id)
    await shells.ended(call_id)
    assert (await shells.client.info()).live_calls == live


async def test_health(shells: Shells) -> None:
    async with grpc.aio.insecure_channel(shells.supervisor.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", *SERVICES):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nope"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection(shells: Shells) -> None:
    async with grpc.aio.insecure_channel(shells.supervisor.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest
        stream = stub.ServerReflectionInfo(
            iter([ask(list_services=""), ask(file_containing_symbol="pinfold.v1.CallService")])
        )
        listed = (await stream.read()).list_services_response.service
        assert {service.name for service in listed} >= {*SERVICES, "grpc.health.v1.Health"}
        files = (await stream.read()).file_descriptor_response.file_descriptor_proto
        assert b"pinfold/v1/call_service.proto" in b"".join(files)
        stream.cancel()


async def test_drain(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client, shells_of(supervisor, client) as shells:
        await shells.start("sleep 0.6; echo on", call_id="X")
        async with grpc.aio.insecure_channel(supervisor.address) as channel:
            health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
            assert await client.drain() == 1
            assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            health.cancel()
        assert (await client.info()).draining
        with pytest.raises(UnavailableError) as caught:
            await shells.agent.run("true")
        assert caught.value.reason == "DRAINING"
        with pytest.raises(UnavailableError):
            await client.open_agent("another")
        # The same id again is no new call.
        placeholder = await shells.agent.run("sleep 0.6; echo on", call_id="X", background=True)
        assert "is running in the background" in placeholder.text
        assert (await shells.agent.wait_exact("X")).text.endswith("out on")


async def test_stop(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client:
        agent = await client.open_agent()
        await agent.run(
            "trap '' TERM; setsid sleep 1000 & echo up; sleep 1000", background=True, grace=0.3
        )
        await agent.run("(sleep 1000 &); exit 3")
        await agent.run("sleep 1000", background=True, call_id="W")
        parked = asyncio.ensure_future(agent.wait_exact("W", wait_id="w"))
        watch = asyncio.ensure_future(drained(client))
        answer = await client.stop(reason="enough")
        assert answer.ended_calls == 3
        assert answer.ended_processes >= 4
        assert list(answer.surviving_pids) == []
        assert (await parked).text.startswith("error: Tool call canceled\n")
        assert await watch
    assert supervisor.process is not None
    assert await asyncio.to_thread(supervisor.process.wait, 10) == 0
    assert supervisor.marked() == []
    # What was not collected is still there.
    supervisor.start()
    async with supervisor.client() as client:
        again = client.agent(agent.agent_id)
        answer = await again.wait_any_background()
        assert "error: Tool call canceled\n" in answer.text
        assert "cancel_reason: enough" in answer.text
        assert not (await client.info()).draining
        assert (await again.run("echo hi")).text.endswith("out hi")


async def drained(client: Client) -> bool:
    async for event in client.events(1, names=["supervisor.stopping"]):
        return event.supervisor_stopping.reason == "enough"
    return False


async def test_who_follows_a_call_has_its_result_when_the_supervisor_ends(
    make_supervisor: Make,
) -> None:
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    async with supervisor.client() as client, supervisor.client() as other:
        agent = await client.open_agent()
        call = await agent.start("echo begun; sleep 1000")
        chunks = agent.output(call.call_id)
        assert (await anext(chunks)).data == b"begun\n"

        async def follow() -> Result:
            async for _ in chunks:
                pass
            return await agent.ended(call.call_id)

        following = asyncio.ensure_future(follow())
        await other.stop(reason="enough")
        result = await asyncio.wait_for(following, 5)
        assert result.receipt is not None
        assert result.receipt.ended == 2


async def test_stop_and_keep_the_groups(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client:
        agent = await client.open_agent("a")
        await agent.run("echo one; sleep 1.2; echo two", background=True, call_id="X")
        instance = (await client.info()).instance_id
        answer = await client.stop(keep_groups=True)
        assert answer.ended_calls == 0
    assert supervisor.process is not None
    assert await asyncio.to_thread(supervisor.process.wait, 10) == 0
    assert len(supervisor.survivors()) >= 1
    supervisor.start()
    async with supervisor.client() as client:
        assert (await client.info()).instance_id != instance
        assert (await client.agent("a").wait_exact("X")).text == "status: 0\n\nout one\nout two"


async def test_an_agents_token(shells: Shells) -> None:
    made = await shells.client.create_token(agent_id=shells.id, label="for a worker")
    other = await shells.client.open_agent()
    await other.run("true", call_id="theirs")
    await shells.run("true", call_id="mine")
    async with Client.connect(shells.supervisor.address, token=made.token) as client:
        own = client.agent(shells.id)
        assert (await own.run("echo own")).text.endswith("out own")
        assert [agent.agent_id for agent in await client.list_agents()] == [shells.id]
        assert {call.agent_id for call in await client.list_calls()} == {shells.id}
        for attempt in (
            client.agent(other.agent_id).get("theirs"),
            client.agent(other.agent_id).run("true"),
            client.agent(other.agent_id).stop(),
        ):
            with pytest.raises(NotFoundError, match=f"^unknown agent: `{other.agent_id}`$"):
                await attempt
        with pytest.raises(NotFoundError):
            async for _ in client.events(1, agents=[other.agent_id], stop_at_end=True):
                pass
        seen = {event.agent_id async for event in client.events(1, stop_at_end=True)}
        assert seen == {shells.id}
        for attempt in (
            client.open_agent("x"),
            client.drain(),
            client.stop(),
            client.list_tokens(),
        ):
            with pytest.raises(PermissionDeniedError):
                await attempt
    listed = {token.token_id: token for token in await shells.client.list_tokens()}
    assert listed[made.token_id].label == "for a worker"
    assert made.token not in str(listed)
    await shells.client.revoke_token(made.token_id)
    async with Client.connect(shells.supervisor.address, token=made.token) as client:
        with pytest.raises(UnauthenticatedError):
            await client.agent(shells.id).info()
    await other.stop()
