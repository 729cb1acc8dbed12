"""Hypothesis strategies for the core's events, derived from their fields."""

from __future__ import annotations

import os
import types
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from pinfoldd.core.events import AnyEvent

TEXT = st.one_of(st.text(max_size=12), st.binary(max_size=8).map(os.fsdecode))
"""Also with surrogates, as paths and environment values have them."""

_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=12),
    type(None): st.none(),
}


@cache
def of(type_: Any) -> st.SearchStrategy[Any]:
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of, arguments))
    if origin is list:
        return st.lists(of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=3)
    if issubclass(type_, Enum):
        return st.sampled_from(list(type_))
    return st.builds(type_, **{f.name: of(f.type) for f in msgspec.structs.fields(type_)})


EVENTS = st.one_of(*map(of, get_args(AnyEvent)))
