"""Messages as plain JSON values: names as in the proto files, times in seconds, short enums."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp


def to_plain(message: Message) -> Any:
    """Set fields only. Enums lose their prefix and are in lower case; bytes become text."""
    if isinstance(message, Duration):
        return round(message.seconds + message.nanos / 1e9, 6)
    if isinstance(message, Timestamp):
        return message.ToJsonString()
    plain: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.is_repeated:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                plain[field.name] = {str(key): _plain(field, value[key]) for key in value}
            else:
                plain[field.name] = [_plain(field, item) for item in value]
        else:
            plain[field.name] = _plain(field, value)
    return plain


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return to_plain(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if field.enum_type is not None:
        return enum_name(field.enum_type, value)
    return value


def enum_name(enum_type: Any, value: int) -> str:
    """CALL_STATE_TIMED_OUT of CallState is "timed_out"."""
    known = enum_type.values_by_number.get(value)
    if known is None:
        return str(value)
    prefix = enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(known.name.removeprefix(prefix).lower())


def to_json(value: Message | dict[str, Any]) -> str:
    plain = to_plain(value) if isinstance(value, Message) else value
    return json.dumps(plain, ensure_ascii=False)
