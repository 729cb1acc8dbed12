"""What a model is told of its tools agrees with what is accepted."""

from __future__ import annotations

import json

import pytest

from pinfoldd.core.values import Surface
from pinfoldd.render.guidance import TASKS, TAU, guidance
from pinfoldd.render.schemas import Options, tools
from pinfoldd.rpc import tool_arguments

NAMES = {
    Surface.TAU: {"shell", "wait", "cancel", "agent_start", "agent_watch", "message", "status"},
    Surface.TASKS: {
        "shell",
        "task_output",
        "task_list",
        "task_kill",
        "agent_start",
        "agent_watch",
        "message",
        "status",
    },
    Surface.NONE: {"shell", "agent_start", "agent_watch", "message", "status"},
}


@pytest.mark.parametrize("surface", Surface)
def test_tools_of_a_surface(surface: Surface) -> None:
    assert {tool.name for tool in tools(surface)} == NAMES[surface]


def test_both_surfaces_have_all_tools_once() -> None:
    assert sorted(tool.name for tool in tools()) == sorted(tool_arguments.TOOLS)


def test_a_filter_hides_tools_and_leaves_the_guidance() -> None:
    names = {tool.name for tool in tools(Surface.TASKS, hidden=["task_kill", "nonsense"])}
    assert names == NAMES[Surface.TASKS] - {"task_kill"}
    assert guidance(Surface.TASKS) == TASKS


def test_kinds() -> None:
    kinds = {tool.name: tool.kind for tool in tools()}
    assert {name for name, kind in kinds.items() if kind == "read"} == {"task_output", "task_list"}
    assert {name for name, kind in kinds.items() if kind == "execute"} == {"shell", "task_kill"}


def test_schemas_are_strict_and_name_what_is_parsed() -> None:
    for tool in tools():
        schema = json.loads(tool.parameters_json())
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema.get("required", [])) <= schema["properties"].keys()
        assert tuple(schema["properties"]) == tool_arguments._PARSERS[tool.name][1]
        assert all("description" in entry for entry in schema["properties"].values())
        assert tool.description.endswith(".")


def test_required_arguments_are_required() -> None:
    for tool in tools():
        for name in tool.parameters.get("required", []):
            with pytest.raises(tool_arguments.ArgumentError, match=name):
                tool_arguments.parse(tool.name, "{}")
            break
        else:
            tool_arguments.parse(tool.name, "{}")


def test_no_background_where_nothing_collects_it() -> None:
    for shown in (
        tools(Surface.NONE),
        tools(Surface.TAU, Options(background=False)),
    ):
        by_name = {tool.name: tool.parameters["properties"] for tool in shown}
        assert "background" not in by_name["shell"]
        assert "mode" not in by_name["agent_start"]
        assert "command" in by_name["shell"]


def test_numbers_of_the_settings_are_told() -> None:
    options = Options(min_minutes=2, max_minutes=99, task_wait_ms=123, max_task_wait_ms=456)
    text = json.dumps([tool.parameters for tool in tools(None, options)])
    assert "between 2 and 99" in text
    assert "123 by default, 456 at most" in text
    roles = next(t for t in tools(None, Options(roles=("a", "b"))) if t.name == "agent_start")
    assert roles.parameters["properties"]["role"]["enum"] == ["a", "b"]


def test_guidance() -> None:
    assert guidance(Surface.TASKS) == (
        "Track every background task id you start. You are notified in-session when a task "
        "finishes — do not busy-poll or sleep on one; keep working on independent steps and do "
        "not duplicate a running task's work. Before giving a final answer, collect every "
        "still-relevant task with task_output (set wait: true only when you are genuinely "
        "blocked on it), and task_kill tasks that stopped mattering."
    )
    assert guidance(None) == f"{TAU}\n\n{TASKS}"
    assert guidance(Surface.TAU) == TAU
    assert guidance(Surface.NONE) == ""
