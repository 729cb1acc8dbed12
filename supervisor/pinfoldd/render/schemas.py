"""The tools as a model is told of them: names, descriptions, JSON Schemas, and for which
surface (docs/contract.md). `rpc.tool_arguments` checks what comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pinfoldd.core.values import Surface

ToolKind = Literal["read", "execute", "other"]
"""The Agent Client Protocol's kind, for a front's cards."""

Schema = dict[str, Any]

_ALL = frozenset(Surface)
_TAU = frozenset({Surface.TAU})
_TASKS = frozenset({Surface.TASKS})


@dataclass(frozen=True)
class Tool:
    """`parameters` is a JSON Schema of an object that allows nothing else."""

    name: str
    description: str
    parameters: Schema
    kind: ToolKind
    surfaces: frozenset[Surface]

    def parameters_json(self) -> str:
        return json.dumps(self.parameters, ensure_ascii=False)


@dataclass(frozen=True)
class Options:
    """What a description or schema depends on. The numbers are those of the settings."""

    foreground_seconds: float = 2.0
    min_minutes: int = 5
    max_minutes: int = 1_440
    task_wait_ms: int = 30_000
    max_task_wait_ms: int = 600_000
    background: bool = True  # False: `shell` may not be started in the background
    roles: tuple[str, ...] = ()  # that `agent_start` knows; empty: any


def tools(
    surface: Surface | None = None,
    options: Options | None = None,
    hidden: Iterable[str] = (),
) -> list[Tool]:
    """The tools of a surface, of both families for None, without the hidden ones."""
    options = options or Options()
    left_out = frozenset(hidden)
    made = [
        _shell(surface, options),
        _wait(options),
        _cancel(),
        _task_output(options),
        _task_list(),
        _task_kill(),
        _agent_start(surface, options),
        _agent_watch(),
        _message(),
        _status(),
    ]
    return [
        tool
        for tool in made
        if (surface is None or surface in tool.surfaces) and tool.name not in left_out
    ]


def _object(properties: dict[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    return schema


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def _shell(surface: Surface | None, options: Options) -> Tool:
    may_background = options.background and surface is not Surface.NONE
    properties: dict[str, Schema] = {
        "command": _text("The command, a script of any length.", minLength=1),
        "timeout": {
            "type": "integer",
            "minimum": 0,
            "description": "Seconds of running time after which it is ended. Left out: none.",
        },
        "cwd": _text("Where it runs: absolute, or relative to your directory.", minLength=1),
        "env": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Added to the environment.",
        },
    }
    if may_background:
        properties["background"] = _flag("Start it in the background at once.")
    properties["exclusive"] = _flag("Let no other call of yours run at the same time.")
    description = (
        "Run a shell command. Every line of its output comes back as `out <line>` or "
        "`err <line>`; a non-zero exit status is a result, not an error. Standard input is "
        "empty."
    )
    if surface is Surface.NONE:
        description += " It answers when the command has ended."
    else:
        description += (
            f" A command that runs for longer than {options.foreground_seconds:g} seconds goes on "
            "in the background: the answer then names it, and you are told when it has ended."
        )
    return Tool("shell", description, _object(properties, ("command",)), "execute", _ALL)


def _wait(options: Options) -> Tool:
    properties: dict[str, Schema] = {
        "tool_call_id": _text("Wait for this call.", minLength=1),
        "tool_call_ids": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": 64,
            "uniqueItems": True,
            "description": "Wait until all of these calls have ended.",
        },
        "timeout_minutes": {
            "type": "integer",
            "minimum": 1,
            "description": (
                "Wait for new input instead, for so many minutes (kept between "
                f"{options.min_minutes} and {options.max_minutes})."
            ),
        },
    }
    description = (
        "Collect the result of background tool calls; each result can be collected once. Give "
        "at most one argument. With tool_call_id: the result of that call. With "
        "tool_call_ids: all of their results, when the last has ended. Without arguments: the "
        "oldest result that was not collected, or else the next one. With timeout_minutes: "
        "wait for new input; nothing is collected. New input interrupts a wait without loss; "
        "wait again afterwards. You are told when a background call completes, so there is no "
        "need to wait before that."
    )
    return Tool("wait", description, _object(properties), "other", _TAU)


def _cancel() -> Tool:
    properties = {"tool_call_id": _text("The call to end.", minLength=1)}
    description = (
        "Ask for the end of one of your running tool calls, by its tool_call_id. The answer "
        "says that the request was accepted; the end comes later, and wait collects it with "
        "the output so far. No other call is touched."
    )
    return Tool("cancel", description, _object(properties, ("tool_call_id",)), "other", _TAU)


def _task_id() -> Schema:
    return _text("The id of the task, such as shell-1.", minLength=1)


def _task_output(options: Options) -> Tool:
    properties: dict[str, Schema] = {
        "task_id": _task_id(),
        "wait": _flag("Wait for the end of the task first. Default false."),
        "timeout_ms": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": (
                "With wait: milliseconds to wait at most, "
                f"{options.task_wait_ms} by default, {options.max_task_wait_ms} at most."
            ),
        },
    }
    description = (
        "Read the output of a background task. It does not block unless wait is true. A shell "
        "task gives what is new since your last read, an agent task its answer when it has "
        "ended. The last line is always `[status: ...]`. Running out of time leaves the task "
        "alive."
    )
    return Tool("task_output", description, _object(properties, ("task_id",)), "read", _TASKS)


def _task_list() -> Tool:
    description = (
        "List your background tasks in the order of their start: "
        "`<id> [<kind>] <status> — <label>`."
    )
    return Tool("task_list", description, _object({}), "read", _TASKS)


def _task_kill() -> Tool:
    properties = {"task_id": _task_id(), "reason": _text("Why; it is recorded.")}
    description = (
        "Ask for the end of a background task. It answers at once; task_output shows when it "
        "has ended."
    )
    return Tool("task_kill", description, _object(properties, ("task_id",)), "execute", _TASKS)


def _agent_start(surface: Surface | None, options: Options) -> Tool:
    role = _text("Which kind of agent; left out: the default.", minLength=1)
    if options.roles:
        role["enum"] = list(options.roles)
    properties: dict[str, Schema] = {
        "prompt": _text(
            "Its task. It knows nothing of this conversation: say all it needs.", minLength=1
        ),
        "role": role,
    }
    if surface is Surface.TASKS and options.background:
        # There it always is a task: no `mode`.
        description = (
            "Start a sub-agent with a clean context as a background task. It answers at once "
            "with the task's id; its first answer is the output of the task, and its end."
        )
        return Tool("agent_start", description, _object(properties, ("prompt",)), "other", _ALL)
    description = (
        "Start a sub-agent with a clean context. It answers at once with self_agent_id (you) "
        "and sub_agent_id. You then watch the sub-agent: its final answers come to you by "
        "themselves."
    )
    if options.background and surface is not Surface.NONE:
        properties["mode"] = _text(
            "watch (default): it lives on and you watch it. call: it is a background tool call "
            "of yours that ends with its first answer.",
            enum=["watch", "call"],
        )
    return Tool("agent_start", description, _object(properties, ("prompt",)), "other", _ALL)


def _agent_watch() -> Tool:
    properties = {
        "agent_id": _text("The other agent.", minLength=1),
        "enable": _flag("true: watch it. false: stop watching it."),
    }
    description = (
        "Watch another agent, or stop watching it. You get its final answers, the user prompts "
        "it receives, and when its turns and its status change."
    )
    return Tool(
        "agent_watch", description, _object(properties, ("agent_id", "enable")), "other", _ALL
    )


def _message() -> Tool:
    properties = {
        "recipient_id": _text("The agent to write to.", minLength=1),
        "message": _text("The text, as the recipient should read it.", minLength=1),
    }
    description = (
        "Send a message to another agent. Success means that it is stored and will be "
        "delivered, not that there will be a response."
    )
    return Tool(
        "message", description, _object(properties, ("recipient_id", "message")), "other", _ALL
    )


def _status() -> Tool:
    properties = {
        "state": _text(
            "waiting: nothing to do until something happens. blocked: help is needed.",
            enum=["working", "waiting", "blocked", "done"],
        ),
        "title": _text("One line of at most 160 bytes for people.", minLength=1, maxLength=160),
    }
    description = "Report what you are doing to whoever watches you."
    return Tool("status", description, _object(properties, ("state", "title")), "other", _ALL)
