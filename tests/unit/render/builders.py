"""Builders of calls and results, with only what a test is about."""

from __future__ import annotations

from typing import Any

from pinfoldd.core.model import Call
from pinfoldd.core.values import CallState, Cause, Exit, Extent, Result


def build_call(result: Result | None = None, **fields: Any) -> Call:
    values: dict[str, Any] = {
        "id": "X",
        "agent": "a-1",
        "tool": "shell",
        "kind": "shell",
        "number": 1,
        "label": "sleep 20",
        "digest": "",
        "exclusive": False,
        "budget": 2.0,
        "timeout": None,
        "grace": 2.0,
        "kill_leftovers": False,
        "queued_mono": 0.0,
        "queued_wall": 0.0,
        "state": CallState.RUNNING if result is None else result.state,
        "result": result,
    }
    return Call(**(values | fields))


def exited(code: int = 0, size: int = 0, lines: int = 0, **fields: Any) -> Result:
    return Result(
        CallState.SUCCEEDED,
        Cause.EXIT,
        exit=Exit(code=code),
        seconds=fields.pop("seconds", 0.1),
        output=Extent(size, lines),
        **fields,
    )
