"""Scenarios as they are in their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


class Fault(Exception):
    """A scenario or a runner that is wrong in itself."""


@dataclass
class Step:
    number: int
    op: str
    args: Any
    background: str = ""
    client: str = ""
    save: dict[str, str] = field(default_factory=dict)
    # None: all of the answer; empty: nothing.
    record: list[str] | None = None


@dataclass
class Scenario:
    name: str
    profile: str
    steps: list[Step]
    # Every string that the steps have: what is not in it was generated.
    given: frozenset[str]


def load(file: Path) -> Scenario:
    parsed = yaml.safe_load(file.read_text(encoding="utf-8"))
    raw = parsed["steps"]
    return Scenario(
        name=file.stem,
        profile=parsed.get("profile", "default"),
        steps=[new_step(number, step) for number, step in enumerate(raw, 1)],
        given=frozenset(_strings(raw)),
    )


def new_step(number: int, raw: dict[str, Any]) -> Step:
    beside = {"async", "client", "save", "record", "error", "about"}
    operations = [key for key in raw if key not in beside]
    if len(operations) != 1:
        raise Fault(f"step {number}: not one operation but {operations}")
    op = operations[0]
    return Step(
        number=number,
        op=op,
        args=raw[op],
        background=raw.get("async", ""),
        client=raw.get("client", ""),
        save=raw.get("save", {}),
        record=raw.get("record"),
    )


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list():
            for inner in value:
                yield from _strings(inner)
