"""What the fields of requests must be like. Checked at the door, before anything happens."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from google.protobuf import duration_pb2

from pinfoldd.rpc.errors import Invalid

MAX_ID_BYTES = 200
MAX_LABEL_BYTES = 1_000
MAX_SECONDS = 315_576_000_000.0
MAX_EXEC_BYTES = 6 << 20
"""What the kernel takes of arguments and environment together, however large the stack may be."""
PAGE_DEFAULT = 100
PAGE_MAX = 1_000

_AGENT_ID = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def new_id(prefix: str) -> str:
    """An id nobody can guess, for what a client did not name."""
    return f"{prefix}-{secrets.token_hex(8)}"


def client_id(value: str, field: str, prefix: str) -> str:
    """An id chosen by a client, or a new one if it is empty."""
    if not value:
        return new_id(prefix)
    if len(value.encode()) > MAX_ID_BYTES:
        raise Invalid(field, f"at most {MAX_ID_BYTES} bytes")
    if not value.isprintable() or value != value.strip():
        raise Invalid(field, "printable text without spaces at its ends")
    return value


def agent_id(value: str, field: str = "agent_id") -> str:
    """The id of an agent that is to be opened."""
    if not value:
        return new_id("agent")
    if len(value) > 100 or not _AGENT_ID.issuperset(value):
        raise Invalid(field, "1 to 100 letters, digits, '.', '_' or '-'")
    return value


def seconds(value: duration_pb2.Duration, field: str) -> float:
    """A time span that is not negative, in seconds."""
    total = value.seconds + value.nanos / 1e9
    if value.seconds < 0 or value.nanos < 0:
        raise Invalid(field, "must not be negative")
    if value.nanos > 999_999_999 or total > MAX_SECONDS:
        raise Invalid(field, "not a valid duration")
    return total


def count(value: int, field: str, most: int = 2**31 - 1) -> int:
    """A number from 0 to `most`; 0 stands for the default."""
    if value < 0:
        raise Invalid(field, "must not be negative")
    if value > most:
        raise Invalid(field, f"at most {most}")
    return value


def page(size: int, token: str) -> tuple[int, int]:
    """(how many, from which place on)."""
    count(size, "page_size", PAGE_MAX)
    start = 0
    if token:
        if not token.isascii() or not token.isdigit() or len(token) > 15:
            raise Invalid("page_token", "not a token of an earlier page")
        start = int(token)
    return size or PAGE_DEFAULT, start


def text(value: str, field: str, most: int, *, empty: bool = False) -> str:
    """Free text of at most `most` bytes."""
    if not value and not empty:
        raise Invalid(field, "must not be empty")
    if len(value) * 4 > most and len(value.encode()) > most:
        raise Invalid(field, f"at most {most} bytes")
    return value


def environment(env: dict[str, bytes], field: str, most: int) -> dict[str, bytes]:
    """Names and values that a process can be given."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or not name.isprintable():
            raise Invalid(field, f"not a name of a variable: {name[:80]!r}")
        if b"\0" in value:
            raise Invalid(field, f"the value of {name} has a NUL byte")
        if len(name) + len(value) > most:
            raise Invalid(field, f"the value of {name} is over {most} bytes")
    return env


def exec_size(field: str, argv: Sequence[bytes], *environments: Mapping[str, bytes | str]) -> None:
    """Whether a process can ever be given all of it; the kernel may refuse less, too."""
    size = sum(map(len, argv))
    for env in environments:
        size += sum(map(len, env)) + sum(map(len, env.values()))
    if size > MAX_EXEC_BYTES:
        raise Invalid(field, f"arguments and environment are over {MAX_EXEC_BYTES} bytes together")


def path(value: bytes, field: str) -> bytes:
    if b"\0" in value:
        raise Invalid(field, "a path has no NUL byte")
    if len(value) > 4095:
        raise Invalid(field, "a path has at most 4095 bytes")
    return value
