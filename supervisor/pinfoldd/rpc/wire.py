"""The core's events as the events of Watch, in bytes.

An event is converted once, after its decision and before it is committed, and stored as a part
of a response; a response is such parts, joined. What depends on who watches is stored twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pinfold.v1 import watch_service_pb2
from pinfoldd.core import events as e
from pinfoldd.core import model
from pinfoldd.core.values import Stamp
from pinfoldd.rpc.convert import text, timestamp
from pinfoldd.rpc.event_bodies import BODIES, At, PlainTexts, Texts
from pinfoldd.rpc.event_names import event_name

PLAIN = PlainTexts()
_PROMPT_QUEUED = "prompt.queued"
_EVENTS_TAG = b"\x0a"  # field 1 of WatchResponse, length-delimited


def event(
    stamp: Stamp, ev: e.Event, state: model.State, texts: Texts = PLAIN
) -> watch_service_pb2.Event:
    """An event with everything in it, also what internal prompts say.

    `state` is the state after the event's decision and before the next one: whether an end
    made a notice is read from it.
    """
    try:
        return _event(stamp, ev, state, texts)
    except UnicodeEncodeError:
        # An id that is no text. It can come from no client, but a stored event must be shown.
        return _event(stamp, _as_text(ev), state, texts)


def serialized(
    stamp: Stamp, ev: e.Event, state: model.State, texts: Texts = PLAIN
) -> tuple[str, bytes, bytes | None]:
    """What the log stores for watchers: the event's name, its part of a WatchResponse, and
    that for those who ask for internal prompts, if it is another."""
    message = event(stamp, ev, state, texts)
    part = _part(message)
    if message.name != _PROMPT_QUEUED or not message.prompt_queued.prompt.internal:
        return message.name, part, None
    hide_prompt(message)
    return message.name, _part(message), part


def _event(stamp: Stamp, event: Any, state: model.State, texts: Texts) -> watch_service_pb2.Event:
    fields: dict[str, Any] = {
        "revision": stamp.revision,
        "decision_revision": stamp.decision,
        "time": _time(stamp.wall),
        "name": event_name(event),
        "agent_id": event.agent,
        "call_id": getattr(event, "call", ""),
    }
    how = BODIES.get(type(event))
    if how is not None:
        field, make = how
        fields[field] = make(event, At(stamp, state, texts))
    return watch_service_pb2.Event(**fields)


@lru_cache(16)
def _time(wall: float) -> Timestamp:
    """All events of a decision have the same."""
    return timestamp(wall)


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


def hide_prompt(event: watch_service_pb2.Event) -> None:
    """Take away what only those see who ask for internal prompts."""
    prompt = event.prompt_queued.prompt
    prompt.ClearField("text")
    prompt.ClearField("body")


def _part(event: watch_service_pb2.Event) -> bytes:
    """A WatchResponse of this event alone. Those of several, joined, are that of them all."""
    data = event.SerializeToString()
    return b"".join((_EVENTS_TAG, _varint(len(data)), data))


def with_bytes(message: Message, field: int, data: bytes) -> bytes:
    """A message, serialized, with a large field of bytes that is not set in it.

    Setting and serializing such a field copies it several times: 350 µs for 256 KiB, against 8.
    """
    if not data:
        return message.SerializeToString()
    tag = _varint(field << 3 | 2)
    return b"".join((message.SerializeToString(), tag, _varint(len(data)), data))


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
