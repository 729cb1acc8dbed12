"""A model's arguments, checked exactly (docs/contract.md, wait, cancel, Agents, Task tools).

A JSON object comes in, a struct goes out; whatever is wrong is an `ArgumentError` whose
message the model reads. `true` is not an integer and neither is `1.0`; unknown and repeated
keys are errors, because a model that misspells an argument should hear of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from pinfoldd.core.values import ReportedState, WaitMode
from pinfoldd.render.headers import one_line

MAX_SET = 64
MAX_TITLE_BYTES = 160
MAX_SECONDS = 315_576_000_000
"""The longest time the wire can say (10,000 years); longer ones are as good as this."""

_MAX_DIGITS = 1_000  # an integer with more digits is as good as this:
_HUGE: int = 10**1_000
_SHOWN = 80  # characters of a wrong value in a message
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_LINE_BREAKING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class ArgumentError(Exception):
    """`message` says what is wrong, `details` are echoed with it."""

    def __init__(self, message: str, details: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}


class Bounds(Struct, frozen=True):
    """What `timeout_minutes` is silently kept within."""

    min_minutes: int = 5
    max_minutes: int = 1_440


class ShellArguments(Struct, frozen=True):
    command: str
    timeout: int | None = None  # seconds
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    background: bool = False
    exclusive: bool = False


class WaitArguments(Struct, frozen=True):
    mode: WaitMode
    call_ids: list[str] = field(default_factory=list)
    minutes: int | None = None  # within the bounds


class CancelArguments(Struct, frozen=True):
    call_id: str


class AgentStartArguments(Struct, frozen=True):
    prompt: str
    role: str = ""
    as_call: bool = False


class AgentWatchArguments(Struct, frozen=True):
    agent_id: str
    enable: bool


class MessageArguments(Struct, frozen=True):
    recipient_id: str
    message: str


class StatusArguments(Struct, frozen=True):
    state: ReportedState
    title: str


class TaskOutputArguments(Struct, frozen=True):
    task_id: str
    wait: bool = False
    timeout_ms: float | None = None


class TaskListArguments(Struct, frozen=True):
    pass


class TaskKillArguments(Struct, frozen=True):
    task_id: str
    reason: str = ""


ToolArguments = (
    ShellArguments
    | WaitArguments
    | CancelArguments
    | AgentStartArguments
    | AgentWatchArguments
    | MessageArguments
    | StatusArguments
    | TaskOutputArguments
    | TaskListArguments
    | TaskKillArguments
)


def parse(name: str, arguments_json: str, bounds: Bounds | None = None) -> ToolArguments:
    """Check the arguments of the tool `name`. Raises ArgumentError, and KeyError for a tool
    that there is not. An empty text is an empty object."""
    parser, known = _PARSERS[name]
    values = _load(arguments_json)
    for key in values:
        if key not in known:
            expected = ", ".join(f"`{one}`" for one in known) or "no arguments"
            shown = one_line(key, _SHOWN)
            raise ArgumentError(f"unknown argument: `{shown}`; expected {expected}")
    return parser(_Fields(values), bounds or Bounds())


# ------------------------------------------------------------ JSON


def _load(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_int=_integer)
        if _SURROGATE.search(text):
            # A lone one (`"\ud800"`) is no character: it can neither be stored nor sent.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ArgumentError(f"arguments are not valid JSON: {error}") from None
    except RecursionError:
        raise ArgumentError("arguments are not valid JSON: nested too deeply") from None
    except UnicodeEncodeError:
        raise ArgumentError("arguments are not valid JSON: unpaired surrogate") from None
    if not isinstance(value, dict):
        raise ArgumentError(f"arguments must be a JSON object, got {_json(value)}")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ArgumentError(f"argument `{one_line(key, _SHOWN)}` is given more than once")
        values[key] = value
    return values


def _integer(digits: str) -> int:
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return -_HUGE if digits.startswith("-") else _HUGE


def _json(value: Any) -> str:
    """A wrong value as the model wrote it, bounded."""
    return one_line(json.dumps(value, ensure_ascii=False), _SHOWN)


# ------------------------------------------------------------ fields


class _Fields:
    """The values of one object, by name."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        return self._values[name]

    def require(self, name: str) -> Any:
        if name not in self._values:
            raise ArgumentError(f"`{name}` is required")
        return self._values[name]

    def text(self, name: str) -> str:
        """A required string with something in it, as it is."""
        value = self.require(name)
        if not isinstance(value, str):
            raise ArgumentError(f"`{name}` must be a string")
        if not value.strip():
            raise ArgumentError(f"`{name}` must not be empty")
        return value

    def optional_text(self, name: str) -> str:
        return self.text(name) if name in self._values else ""

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self.require(name) if default is None else self._values.get(name, default)
        if not isinstance(value, bool):
            raise ArgumentError(f"`{name}` must be a boolean")
        return value

    def integer(self, name: str, least: int) -> int:
        value = self.require(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(f"`{name}` must be an integer")
        if value < least:
            raise ArgumentError(f"`{name}` must be at least {least}")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.require(name)
        if not isinstance(value, str) or value not in choices:
            listed = ", ".join(f"`{one}`" for one in choices)
            raise ArgumentError(f"`{name}` must be one of {listed}")
        return value


# ------------------------------------------------------------ tools


def _shell(fields: _Fields, _: Bounds) -> ShellArguments:
    timeout = fields.integer("timeout", 0) if "timeout" in fields else None
    return ShellArguments(
        command=fields.text("command"),
        timeout=None if timeout is None else min(timeout, MAX_SECONDS),
        cwd=fields.optional_text("cwd"),
        env=_environment(fields),
        background=fields.flag("background", default=False),
        exclusive=fields.flag("exclusive", default=False),
    )


def _environment(fields: _Fields) -> dict[str, str]:
    if "env" not in fields:
        return {}
    env = fields.get("env")
    if not isinstance(env, dict):
        raise ArgumentError("`env` must be an object of strings")
    for name, value in env.items():
        if not isinstance(value, str):
            raise ArgumentError(f"`env`: `{one_line(name, _SHOWN)}` must be a string")
    return env


def _wait(fields: _Fields, bounds: Bounds) -> WaitArguments:
    exact, every, minutes = (
        name in fields for name in ("tool_call_id", "tool_call_ids", "timeout_minutes")
    )
    if exact + every + minutes > 1:
        names = (
            "`tool_call_id`, `tool_call_ids` and `timeout_minutes`"
            if every
            else "`tool_call_id` and `timeout_minutes`"
        )
        raise ArgumentError(f"{names} are mutually exclusive")
    if exact:
        return WaitArguments(WaitMode.EXACT, [fields.text("tool_call_id").strip()])
    if every:
        return WaitArguments(WaitMode.EXACT_ALL, _call_ids(fields.get("tool_call_ids")))
    if minutes:
        wanted = fields.integer("timeout_minutes", 1)
        kept = min(max(wanted, bounds.min_minutes), bounds.max_minutes)
        return WaitArguments(WaitMode.ACTIVATING_INPUT, minutes=kept)
    return WaitArguments(WaitMode.ANY_BACKGROUND)


def _call_ids(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ArgumentError("`tool_call_ids` must be an array of strings")
    if not value:
        raise ArgumentError("`tool_call_ids` must not be empty")
    if len(value) > MAX_SET:
        raise ArgumentError(f"`tool_call_ids` must have at most {MAX_SET} entries")
    for i, entry in enumerate(value):
        if not isinstance(entry, str):
            raise ArgumentError(f"`tool_call_ids[{i}]` must be a string")
        if not entry.strip():
            raise ArgumentError(f"`tool_call_ids[{i}]` must not be empty")
    ids = [entry.strip() for entry in value]
    if len(set(ids)) < len(ids):
        raise ArgumentError("`tool_call_ids` must be distinct")
    return ids


def _cancel(fields: _Fields, _: Bounds) -> CancelArguments:
    return CancelArguments(fields.text("tool_call_id").strip())


def _agent_start(fields: _Fields, _: Bounds) -> AgentStartArguments:
    return AgentStartArguments(
        prompt=fields.text("prompt"),
        role=fields.optional_text("role").strip(),
        as_call="mode" in fields and fields.choice("mode", ("watch", "call")) == "call",
    )


def _agent_watch(fields: _Fields, _: Bounds) -> AgentWatchArguments:
    return AgentWatchArguments(fields.text("agent_id").strip(), fields.flag("enable"))


def _message(fields: _Fields, _: Bounds) -> MessageArguments:
    recipient = fields.text("recipient_id").strip()
    try:
        return MessageArguments(recipient, fields.text("message"))
    except ArgumentError as error:
        raise ArgumentError(error.message, {"recipient_id": recipient}) from None


def _status(fields: _Fields, _: Bounds) -> StatusArguments:
    state = ReportedState(fields.choice("state", tuple(ReportedState)))
    title = fields.text("title").strip()
    if _LINE_BREAKING.search(title):
        raise ArgumentError("`title` must be one line")
    if len(title.encode()) > MAX_TITLE_BYTES:
        raise ArgumentError(f"`title` must be at most {MAX_TITLE_BYTES} bytes")
    return StatusArguments(state, title)


def _task_id(fields: _Fields) -> str:
    value = fields.get("task_id") if "task_id" in fields else None
    if not isinstance(value, str) or not value.strip():
        got = _json(value) if "task_id" in fields else "nothing"
        raise ArgumentError(f"invalid task_id: expected a non-empty string, got {got}")
    return value.strip()


def _task_output(fields: _Fields, _: Bounds) -> TaskOutputArguments:
    return TaskOutputArguments(
        task_id=_task_id(fields),
        wait=fields.flag("wait", default=False),
        timeout_ms=_milliseconds(fields.get("timeout_ms")) if "timeout_ms" in fields else None,
    )


def _milliseconds(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value > 0 or (isinstance(value, float) and math.isinf(value)):
        raise ArgumentError(
            f"invalid wait timeout: expected a positive number of milliseconds, got {_json(value)}"
        )
    return float(min(value, MAX_SECONDS * 1_000))


def _task_list(_: _Fields, __: Bounds) -> TaskListArguments:
    return TaskListArguments()


def _task_kill(fields: _Fields, _: Bounds) -> TaskKillArguments:
    task_id = _task_id(fields)
    reason = fields.get("reason") if "reason" in fields else ""
    if not isinstance(reason, str):
        raise ArgumentError("`reason` must be a string")
    return TaskKillArguments(task_id, reason.strip())


_PARSERS: dict[str, tuple[Callable[[_Fields, Bounds], ToolArguments], tuple[str, ...]]] = {
    "shell": (_shell, ("command", "timeout", "cwd", "env", "background", "exclusive")),
    "wait": (_wait, ("tool_call_id", "tool_call_ids", "timeout_minutes")),
    "cancel": (_cancel, ("tool_call_id",)),
    "agent_start": (_agent_start, ("prompt", "role", "mode")),
    "agent_watch": (_agent_watch, ("agent_id", "enable")),
    "message": (_message, ("recipient_id", "message")),
    "status": (_status, ("state", "title")),
    "task_output": (_task_output, ("task_id", "wait", "timeout_ms")),
    "task_list": (_task_list, ()),
    "task_kill": (_task_kill, ("task_id", "reason")),
}

TOOLS = tuple(_PARSERS)
"""The names of all tools."""
