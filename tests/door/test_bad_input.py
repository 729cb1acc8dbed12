"""Whatever is in a request: a typed answer, never a fault of ours, and nothing has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from door.rpcs import METHODS, Outcome, call
from pinfold import Client
from support import Supervisor

_CODES = grpc.StatusCode
_ALLOWED = {
    _CODES.OK,
    _CODES.INVALID_ARGUMENT,
    _CODES.NOT_FOUND,
    _CODES.FAILED_PRECONDITION,
    _CODES.ALREADY_EXISTS,
    _CODES.RESOURCE_EXHAUSTED,
    _CODES.OUT_OF_RANGE,
    _CODES.ABORTED,
    _CODES.DEADLINE_EXCEEDED,  # ours: it parks, as it should
}
# What would end the supervisor under test, or an agent of it for good.
_NOT_HERE = {"Stop", "Drain", "StopAgent"}

_STRINGS = st.one_of(
    st.sampled_from(
        ["", " ", "fuzz", "fuzz ", "shell-1", "shell-999", "call-1", "agent_start", "shell", "wait",
         "é" * 90, "a\nb", "\u2028", "\x00", "{", "[]", '{"command":"true","timeout":-1}',
         '{"tool_call_id":true}', '{"a":1,"a":2}', "1" * 5000, "x" * 300_000, "-", "shell--1"]
    ),
    st.text(max_size=40),
)  # fmt: skip
_BYTES = st.sampled_from([b"", b"true", b" ", b"a\0b", b"\xff\xfe", b"/nonexistent", b"x" * 5000])
_INTS = st.sampled_from([0, 1, -1, 7, 100_000, 2**31 - 1, -(2**31)])
_WIDE = st.one_of(_INTS, st.sampled_from([2**62, 2**63 - 1, -(2**63)]))
_PICK: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: _STRINGS,
    FieldDescriptor.TYPE_BYTES: _BYTES,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT32: _INTS,
    FieldDescriptor.TYPE_INT64: _WIDE,
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 99]),
}


@st.composite
def requests(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0) -> Message:
    """A request of any content: fields left out, out of range, of odd bytes, unknown enums."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in draw(st.lists(st.sampled_from(["A", "", "=", "a\0b", "é"]), max_size=2)):
                getattr(message, field.name)[key] = draw(_BYTES)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth > 3:
                continue
            inner = draw(requests(field.message_type, depth + 1))
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(_PICK[field.type], max_size=3)))
        elif field.name == "agent_id":
            value = draw(st.one_of(st.just("fuzz"), _STRINGS))
            setattr(message, field.name, value)
        else:
            setattr(message, field.name, draw(_PICK[field.type]))
    return message


@pytest.fixture
async def channel(supervisor: Supervisor) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(
        supervisor.address, options=[("grpc.max_send_message_length", 64 << 20)]
    ) as opened:
        yield opened


async def _revision(client: Client) -> int:
    return (await client.info()).revision


async def _quiet(client: Client) -> int:
    """The revision once nothing of an earlier request is under way any more."""
    last = -1
    while (now := await _revision(client)) != last or (await client.info()).live_calls:
        last = now
        await asyncio.sleep(0.005)
    return last


@pytest.mark.parametrize(
    "method", [m for m in METHODS if m.name not in _NOT_HERE], ids=lambda method: method.full_name
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_request_gets_a_typed_answer(
    method: MethodDescriptor, data: st.DataObject, supervisor: Supervisor
) -> None:
    request = data.draw(requests(method.input_type))
    asyncio.run(_check(supervisor, method, request))


async def _check(supervisor: Supervisor, method: MethodDescriptor, request: Message) -> None:
    options = [("grpc.max_send_message_length", 64 << 20)]
    async with (
        supervisor.client() as client,
        grpc.aio.insecure_channel(supervisor.address, options=options) as channel,
    ):
        agent = await client.open_agent("fuzz")
        for item in await agent.list(live_only=True):
            await agent.cancel(item.call_id, grace=0)
        for child in await client.list_agents(live_only=True, parent_id="fuzz"):
            await client.agent(child.agent_id).stop(grace=0)
        before = await _quiet(client)
        outcome = await call(channel, method, request, timeout=0.25)
        assert outcome.code in _ALLOWED, (outcome, request)
        if outcome.code not in (_CODES.OK, _CODES.DEADLINE_EXCEEDED):
            assert outcome.reason, outcome
            assert outcome.message.isascii()
            if not _tells_once(outcome):
                assert await _revision(client) == before, (outcome, request)


def _tells_once(outcome: Outcome) -> bool:
    """The refusal that is remembered: a foreground result was asked for once."""
    return outcome.reason == "CALL_RETURNED_NORMALLY"


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("RunShell", lambda r: r.ClearField("script"), "script"),
        ("RunShell", lambda r: setattr(r, "script", b"a\0b"), "script"),
        ("RunShell", lambda r: setattr(r.timeout, "seconds", -1), "timeout"),
        ("RunShell", lambda r: setattr(r.limits, "memory_bytes", -1), "limits.memory_bytes"),
        ("RunShell", lambda r: setattr(r.limits, "output_bytes", 12), "limits.output_bytes"),
        ("RunShell", lambda r: r.env.update({"A=B": b"x"}), "env"),
        ("RunShell", lambda r: setattr(r, "cwd", b"a\0"), "cwd"),
        ("Wait", lambda r: None, "form"),
        ("Wait", lambda r: r.set.SetInParent(), "set.call_ids"),
        ("ReadOutput", lambda r: setattr(r, "offset", -1), "offset"),
        ("ListCalls", lambda r: setattr(r, "page_size", 1001), "page_size"),
        ("ListCalls", lambda r: setattr(r, "page_token", "x"), "page_token"),
        ("Watch", lambda r: setattr(r, "start_revision", -1), "start_revision"),
        ("SendMessage", lambda r: None, "message"),
        ("ReportStatus", lambda r: None, "status.state"),
        ("OpenAgent", lambda r: setattr(r, "agent_id", "a/b"), "agent_id"),
        ("OpenAgent", lambda r: setattr(r, "cwd", b"relative"), "cwd"),
    ],
)
async def test_a_field_that_is_wrong_is_named(
    client: Client,
    channel: grpc.aio.Channel,
    name: str,
    change: Callable[[Any], object],
    field: str,
) -> None:
    await client.open_agent("fuzz")
    method = next(m for m in METHODS if m.name == name)
    request: Any = GetMessageClass(method.input_type)()
    if "agent_id" in {f.name for f in method.input_type.fields}:
        request.agent_id = "fuzz"
    if name == "RunShell":
        request.script = b"true"
    if name == "ReadOutput":
        agent = client.agent("fuzz")
        await agent.run("true", call_id="for-output")
        request.call_id = "for-output"
    change(request)
    outcome = await call(channel, method, request)
    assert outcome.code is _CODES.INVALID_ARGUMENT, outcome
    assert outcome.reason == "INVALID_ARGUMENT"
    assert outcome.message.startswith((f"{field}: ", f"`{field}` ")), outcome
