"""Answers as JSON: messages by protobuf's own mapping, or objects of such."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pinfold.errors import PinfoldError


def object_of(answer: Any) -> Any:
    match answer:
        case None:
            return {}
        case Message():
            return MessageToDict(answer, preserving_proto_field_name=True)
        case dict():
            found = {key: object_of(value) for key, value in answer.items() if value is not None}
            return {key: value for key, value in found.items() if not _is_default(value)}
        case list():
            return [object_of(value) for value in answer]
        case _:
            return answer


def _is_default(value: Any) -> bool:
    """Left out, as protobuf's mapping leaves out default values. An empty message is not."""
    return value in ("", 0, False) or value == []


def error_of(error: PinfoldError) -> dict[str, Any]:
    found: dict[str, Any] = {"code": error.code.name, "message": error.message}
    if error.reason:
        found["reason"] = error.reason
    if error.metadata:
        found["metadata"] = error.metadata
    return found


def find(value: Any, path: str) -> Any:
    """The value at a dotted path; a number is a place in a list."""
    for key in filter(None, path.split(".")):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def pick(value: Any, paths: list[str]) -> Any:
    """Keeps the values at some paths; `*` goes through a list."""
    if isinstance(value, dict):
        kept = {}
        for key, inner in value.items():
            rest = _below(paths, key)
            if rest is None:
                kept[key] = inner
            elif rest:
                kept[key] = pick(inner, rest)
        return kept
    if isinstance(value, list):
        rest = _below(paths, "*")
        return value if rest is None else [pick(inner, rest) for inner in value]
    return value


def _below(paths: list[str], key: str) -> list[str] | None:
    """What is wanted below a key; None: all of it."""
    rest = []
    for path in paths:
        first, more, inner = path.partition(".")
        if first == key:
            if not more:
                return None
            rest.append(inner)
    return rest
