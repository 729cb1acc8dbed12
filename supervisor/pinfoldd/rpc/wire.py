"""The core's events as the events of Watch, in bytes.

An event is converted once, after its decision and before it is committed, and stored as a part
of a response; a response is such parts, joined. What depends on who watches is stored twice.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message

from pinfold.v1 import agent_pb2, watch_service_pb2
from pinfoldd.core import events as e
from pinfoldd.core import model
from pinfoldd.core.values import Stamp
from pinfoldd.rpc.convert import text, timestamp
from pinfoldd.rpc.event_bodies import BODIES, At, PlainTexts, Texts
from pinfoldd.rpc.event_names import event_name

PLAIN = PlainTexts()
M = TypeVar("M", bound=Message)


def serialized(
    stamp: Stamp, event: e.Event, state: model.State, texts: Texts = PLAIN
) -> tuple[str, bytes, bytes | None]:
    """What the log stores for watchers: the event's name, its part of a WatchResponse, and
    that for those who ask for internal prompts, if it is another.

    `state` is the state after the event's decision and before the next one: whether an end
    made a notice is read from it.
    """
    try:
        return _serialized(stamp, event, state, texts)
    except UnicodeEncodeError:
        # An id that is no text. It can come from no client, but a stored event must be shown.
        return _serialized(stamp, _as_text(event), state, texts)


def _serialized(
    stamp: Stamp, event: e.Event, state: model.State, texts: Texts
) -> tuple[str, bytes, bytes | None]:
    name = event_name(event)
    shared = _shared(stamp.decision, stamp.wall, name, event.agent, getattr(event, "call", ""))
    head = b"".join((_REVISION, _varint(stamp.revision), shared))
    if type(event) not in _BODIES:
        return name, _field(_EVENTS, head), None
    tag, make = _BODIES[type(event)]
    body = make(event, At(stamp, state, texts))
    part = _part(head, tag, body)
    if not isinstance(body, watch_service_pb2.PromptQueued) or not body.prompt.internal:
        return name, part, None
    hide(body.prompt)
    return name, _part(head, tag, body), part


def hide(prompt: agent_pb2.Prompt) -> None:
    """Take away what only those see who ask for internal prompts."""
    prompt.ClearField("text")
    prompt.ClearField("body")


# ------------------------------------------------------------ parts

# A message is its fields in any order, so bytes of some fields, joined, are a message of them
# all. That saves a copy of each body, and all the rest of an event when a decision has many.


def _tag(field: int) -> bytes:
    """Before a field that has a length."""
    return _varint(field << 3 | 2)


def _field(tag: bytes, data: bytes) -> bytes:
    return b"".join((tag, _varint(len(data)), data))


def _part(head: bytes, tag: bytes, body: Message) -> bytes:
    """A WatchResponse of this event alone."""
    return _field(_EVENTS, head + _field(tag, body.SerializeToString()))


@lru_cache(64)
def _shared(decision: int, wall: float, name: str, agent: str, call: str) -> bytes:
    """All of an event but its revision and its body."""
    return watch_service_pb2.Event(
        decision_revision=decision,
        time=timestamp(wall),
        name=name,
        agent_id=agent,
        call_id=call,
    ).SerializeToString()


def _as_text(event: e.Event) -> e.Event:
    return msgspec.convert(_each_text(msgspec.to_builtins(event)), type(event))


def _each_text(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_each_text(v) for v in value]
    if isinstance(value, dict):
        return {_each_text(k): _each_text(v) for k, v in value.items()}
    return value


def with_bytes(message: Message, field: int, data: bytes) -> bytes:
    """A message, serialized, with a large field of bytes that is not set in it.

    Setting and serializing such a field copies it several times: 350 µs for 256 KiB, against 8.
    """
    if not data:
        return message.SerializeToString()
    return b"".join((message.SerializeToString(), _tag(field), _varint(len(data)), data))


def batch(ready: deque[M], size: int) -> list[M]:
    """Takes the next messages, as many as one response of about `size` bytes should hold."""
    taken: list[M] = []
    held = 0
    while ready and held < size:
        taken.append(ready.popleft())
        held += taken[-1].ByteSize()
    return taken


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [_encode_varint(value) for value in range(1 << 12)]


def _varint(value: int) -> bytes:
    return _SMALL[value] if value < len(_SMALL) else _encode_varint(value)


_EVENTS = _tag(watch_service_pb2.WatchResponse.EVENTS_FIELD_NUMBER)
_REVISION = _varint(watch_service_pb2.Event.REVISION_FIELD_NUMBER << 3)
_BODIES = {
    kind: (_tag(watch_service_pb2.Event.DESCRIPTOR.fields_by_name[field].number), make)
    for kind, (field, make) in BODIES.items()
}
