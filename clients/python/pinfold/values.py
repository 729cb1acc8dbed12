"""Conversions between Python values and protobuf's."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration

Bytes = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def new_id(prefix: str) -> str:
    """A fresh id, so that a request can be sent again."""
    return f"{prefix}_{secrets.token_hex(6)}"


def duration(seconds: float | None) -> Duration | None:
    """Seconds as a Duration; `None` stays absent."""
    if seconds is None:
        return None
    nanos = round(seconds * 1e9)
    sign = -1 if nanos < 0 else 1
    whole, rest = divmod(abs(nanos), 1_000_000_000)
    return Duration(seconds=sign * whole, nanos=sign * rest)


def seconds(value: Duration) -> float:
    return value.seconds + value.nanos / 1e9


def to_bytes(value: Bytes | None) -> bytes:
    """Paths and other operating system strings, as the bytes that they are."""
    return b"" if value is None else os.fsencode(value)


def to_env(env: Mapping[str, str | bytes] | None) -> dict[str, bytes]:
    return {name: os.fsencode(value) for name, value in (env or {}).items()}
