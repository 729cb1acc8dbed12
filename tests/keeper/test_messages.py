"""The link's frames: what goes in comes out, in whatever pieces it travels."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfoldd.keeper import messages as m

_TEXT = st.text(max_size=20) | st.binary(max_size=20).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: st.integers(-(2**63), 2**64),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=200),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return _message(hint)
    arguments = get_args(hint)
    if type(None) in arguments:
        return st.none() | _values(next(a for a in arguments if a is not type(None)))
    if getattr(hint, "__origin__", None) is list:
        return st.lists(_values(arguments[0]), max_size=3)
    assert getattr(hint, "__origin__", None) is dict
    return st.dictionaries(_values(arguments[0]), _values(arguments[1]), max_size=3)


def _message(cls: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls)
    return st.builds(cls, **{f.name: _values(hints[f.name]) for f in dataclasses.fields(cls)})


_ANY = st.one_of(*(_message(cls) for cls in get_args(m.Message)))


@given(st.lists(_ANY, max_size=4), st.data())
def test_round_trip_in_pieces(messages: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(m.encode, messages))
    decoder, found = m.Decoder(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += decoder.feed(stream[:size])
        stream = stream[size:]
    assert found == messages


def test_all_bytes_of_a_path_survive() -> None:
    raw = bytes(range(1, 256))
    order = m.Spawn(group=1, cwd=raw.decode("utf-8", "surrogateescape"))
    (found,) = m.Decoder().feed(m.encode(order))
    assert isinstance(found, m.Spawn)
    assert found.cwd.encode("utf-8", "surrogateescape") == raw


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\2\0\0\0\0[]",
        b"\0\0\0\5\0\0\0\0hello",
        b'\0\0\0\x0b\0\0\0\0["None",{}]',
        b'\0\0\0\x0b\0\0\0\0["Stop",{}]',
        b'\0\0\0\x13\0\0\0\0["Stop",{"grup":1}]',
        b'\0\0\0\x14\0\0\0\1["Stop",{"group":1}]x',
        b'\0\0\0\x0b\0\0\0\0["Stop",[]]',
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\4\0\0\0\0\xff\xff\xff\xff",
    ],
)
def test_what_is_no_frame(frame: bytes) -> None:
    with pytest.raises(m.LinkError):
        m.Decoder().feed(frame)


def test_too_large_a_body() -> None:
    with pytest.raises(m.LinkError, match="Spawn of"):
        m.encode(m.Spawn(group=1, body=bytes(m.MAX_FRAME)))


def test_the_format_has_its_number() -> None:
    """A daemon meets keepers that an earlier version started, and one that cannot read an order
    drops the link, again and again: whoever changes a message raises PROTOCOL, then this line."""
    parts = (m.TerminalSize, m.Signalled, m.Survivor, m.Receipt, m.GroupReport)
    lines = [
        f"{cls.__name__}.{f.name}: {f.type}"
        for cls in (*parts, *get_args(m.Message))
        for f in dataclasses.fields(cls)
    ]
    digest = hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=8).hexdigest()
    assert (m.PROTOCOL, digest) == (3, "6f8549d19d1611f3")
