"""Core structures as bytes and back: msgpack, positional, exact.

Text of the core may hold surrogates, which stand for bytes that are no UTF-8 (paths, values
of environment variables), and msgpack has no form for them. Such a structure is written as
JSON instead, whose escapes keep them. The first byte tells the two apart: a structure in
msgpack begins with an array or a map, and `[` or `{` would be a small integer there.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

import msgspec

from pinfoldd.core.events import AnyEvent, Event

T = TypeVar("T")

_JSON_STARTS = (ord("["), ord("{"))


class Codec(Generic[T]):
    """Encodes and decodes values of one type."""

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(type_)

    def encode(self, value: T) -> bytes:
        try:
            return self._encoder.encode(value)
        except UnicodeEncodeError:
            return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode("ascii")

    def decode(self, data: bytes | memoryview) -> T:
        """Raises `ValueError` for bytes that are not of this type."""
        try:
            if data and data[0] in _JSON_STARTS:
                value: T = msgspec.convert(json.loads(bytes(data)), self._type, str_keys=True)
                return value
            return self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error


_events: Codec[Event] = Codec(AnyEvent)

encode_event = _events.encode
"""The bytes of `Record.event`."""

decode_event = _events.decode
"""The event again. Raises `ValueError` for bytes that are no event this version knows."""
