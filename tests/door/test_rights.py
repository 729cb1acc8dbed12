"""Two agents with each other's tokens: nothing visible, nothing touched, over all RPCs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from door.rpcs import METHODS, call
from pinfold import Agent, Client
from support import Supervisor

_REFUSALS = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED}
# They answer an agent, about itself and what is below it.
_FILTERED = {
    "pinfold.v1.AgentService.ListAgents",
    "pinfold.v1.CallService.WaitStream",
    "pinfold.v1.SupervisorService.GetInfo",
    "pinfold.v1.WatchService.Watch",
}


class Two:
    """A (who asks) and B (whose things are named), and the ways to them."""

    def __init__(self, client: Client, channel: grpc.aio.Channel, a: Agent, b: Agent) -> None:
        self.client, self.channel, self.a, self.b = client, channel, a, b

    async def everything_of_b(self) -> tuple[object, ...]:
        agent = await self.b.info()
        calls = [await self.b.get(item.call_id) for item in await self.b.list()]
        events = [event.name async for event in _events(self.channel, self.b.agent_id)]
        return agent, calls, events


async def _events(channel: grpc.aio.Channel, agent_id: str) -> AsyncIterator[Message]:
    watch = next(m for m in METHODS if m.name == "Watch")
    request = GetMessageClass(watch.input_type)(
        start_revision=1, stop_at_end=True, filter={"agent_ids": [agent_id]}
    )
    for response in (await call(channel, watch, request, timeout=10)).responses:
        for event in response.events:  # type: ignore[attr-defined]
            yield event


@pytest.fixture
async def two(supervisor: Supervisor, client: Client) -> AsyncIterator[Two]:
    a = await client.open_agent("alpha-one")
    b = await client.open_agent("beta-two")
    await b.run("echo secret-of-beta", call_id="beta-done")
    await b.start("sleep 300", call_id="beta-runs", background=True)
    while not (await b.get("beta-runs")).pid:
        await asyncio.sleep(0.01)
    await b.send_prompt("words for beta")
    async with grpc.aio.insecure_channel(supervisor.address) as channel:
        yield Two(client, channel, a, b)
    await a.stop()
    await b.stop(grace=0)


def _naming(method: MethodDescriptor, agent_id: str) -> Message:
    """A request that is complete, and about things of `agent_id`."""
    request = GetMessageClass(method.input_type)()
    _fill(request, agent_id, method.name)
    return request


def _fill(message: Message, agent_id: str, method: str) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated or field.type == FieldDescriptor.TYPE_ENUM:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.name in ("exact", "wait", "status", "filter"):
                _fill(getattr(message, field.name), agent_id, method)
        elif field.name == "agent_id":
            message.agent_id = agent_id  # type: ignore[attr-defined]
        elif field.type == FieldDescriptor.TYPE_STRING:
            value = {
                "call_id": "" if method in ("RunShell", "StartAgent") else "beta-runs",
                "task_id": "shell-2",
                "name": "task_list",
                "arguments_json": "{}",
                "recipient_id": agent_id,
                "watched_agent_id": agent_id,
                "parent_id": agent_id,
                "page_token": "",
                "turn_id": "t-1",
                "token_id": "0",
            }.get(field.name, "x")
            setattr(message, field.name, value)
        elif field.type == FieldDescriptor.TYPE_BYTES and field.name in ("script", "data"):
            setattr(message, field.name, b"true")
    names = {field.name for field in message.DESCRIPTOR.fields}
    if "agent_ids" in names:
        message.agent_ids.append(agent_id)  # type: ignore[attr-defined]
        message.ClearField("call_id")


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
async def test_anothers_token_sees_and_touches_nothing(two: Two, method: MethodDescriptor) -> None:
    before = await two.everything_of_b()
    outcome = await call(two.channel, method, _naming(method, "beta-two"), token=two.a.token)
    for response in outcome.responses:
        shown = response.SerializeToString()
        for word in (b"secret-of-beta", b"beta-runs", b"beta-done", b"words for beta"):
            assert word not in shown, outcome
    if method.full_name in _FILTERED:
        assert outcome.code in {*_REFUSALS, grpc.StatusCode.OK}, outcome
    else:
        assert outcome.code in _REFUSALS, outcome
        assert outcome.reason in ("AGENT_UNKNOWN", "PERMISSION_DENIED")
    assert await two.everything_of_b() == before


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
async def test_a_token_that_is_none_is_refused_everywhere(
    two: Two, method: MethodDescriptor
) -> None:
    for token in ("nonsense", "pf.0.0", "pfw.alpha-one.0", two.a.token + "0"):
        outcome = await call(two.channel, method, _naming(method, "alpha-one"), token=token)
        assert outcome.code is grpc.StatusCode.UNAUTHENTICATED, outcome
        assert outcome.reason == "UNAUTHENTICATED"


async def test_another_is_answered_like_one_that_never_was(two: Two) -> None:
    get = next(m for m in METHODS if m.name == "GetAgent")
    texts = []
    for agent_id in ("beta-two", "gamma-ghost"):
        outcome = await call(two.channel, get, _naming(get, agent_id), token=two.a.token)
        texts.append((outcome.code, outcome.reason, outcome.message.replace(agent_id, "*")))
    assert texts[0] == texts[1]


async def test_an_agent_reaches_what_is_below_it(two: Two) -> None:
    started = await two.a.start_agent("await_message\nfinal done")
    get = next(m for m in METHODS if m.name == "GetAgent")
    outcome = await call(two.channel, get, _naming(get, started.sub_agent_id), token=two.a.token)
    assert outcome.code is grpc.StatusCode.OK


async def test_a_list_shows_an_agent_only_its_own(two: Two) -> None:
    listing = next(m for m in METHODS if m.name == "ListAgents")
    request = GetMessageClass(listing.input_type)()
    outcome = await call(two.channel, listing, request, token=two.a.token)
    (response,) = outcome.responses
    assert [agent.agent_id for agent in response.agents] == ["alpha-one"]  # type: ignore[attr-defined]


async def test_a_watch_shows_an_agent_only_its_own(two: Two) -> None:
    watch = next(m for m in METHODS if m.name == "Watch")
    for start in (0, 1):
        request = GetMessageClass(watch.input_type)(start_revision=start, stop_at_end=True)
        outcome = await call(two.channel, watch, request, token=two.a.token)
        assert outcome.code is grpc.StatusCode.OK
        assert b"beta" not in b"".join(r.SerializeToString() for r in outcome.responses)


async def test_tokens_are_made_listed_and_revoked(two: Two) -> None:
    made = await two.client.create_token(agent_id="alpha-one", label="for a test")
    token, token_id = made.token, made.token_id
    info = next(m for m in METHODS if m.name == "GetAgent")
    request = _naming(info, "alpha-one")
    assert (await call(two.channel, info, request, token=token)).code is grpc.StatusCode.OK
    assert token_id in {item.token_id for item in await two.client.list_tokens()}
    await two.client.revoke_token(token_id)
    outcome = await call(two.channel, info, request, token=token)
    assert outcome.code is grpc.StatusCode.UNAUTHENTICATED
