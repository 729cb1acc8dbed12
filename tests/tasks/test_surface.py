"""What a model is told of the task tools: schemas, kinds, guidance."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pinfold.v1 import tool_service_pb2
from tasks.conftest import Open
from tasks.harness import ERROR, PLACEHOLDER, RESULT, Owner

READ = tool_service_pb2.TOOL_KIND_READ
EXECUTE = tool_service_pb2.TOOL_KIND_EXECUTE

GUIDANCE = (
    "Track every background task id you start. You are notified in-session when a task finishes "
    "— do not busy-poll or sleep on one; keep working on independent steps and do not duplicate "
    "a running task's work. Before giving a final answer, collect every still-relevant task with "
    "task_output (set wait: true only when you are genuinely blocked on it), and task_kill tasks "
    "that stopped mattering."
)
TASK_TOOLS = {"task_output", "task_list", "task_kill"}


def schemas(listed: tool_service_pb2.ListToolsResponse) -> dict[str, Any]:
    return {tool.name: json.loads(tool.parameters_json) for tool in listed.tools}


async def test_schemas_and_guidance(owner: Owner) -> None:
    listed = await owner.client.list_tools("tasks")
    assert listed.guidance == GUIDANCE
    by_name = schemas(listed)
    assert set(by_name) >= TASK_TOOLS
    arguments = {n: (set(s["properties"]), s.get("required", [])) for n, s in by_name.items()}
    assert arguments["task_output"] == ({"task_id", "wait", "timeout_ms"}, ["task_id"])
    assert arguments["task_list"] == (set(), [])
    assert arguments["task_kill"] == ({"task_id", "reason"}, ["task_id"])
    types = {k: v["type"] for k, v in by_name["task_output"]["properties"].items()}
    assert types == {"task_id": "string", "wait": "boolean", "timeout_ms": "number"}
    for schema in by_name.values():
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert all(p.get("description") for p in schema["properties"].values())
    assert all(tool.description.strip() for tool in listed.tools)


async def test_kinds_for_a_fronts_cards(owner: Owner) -> None:
    listed = await owner.client.list_tools("tasks")
    kinds = {tool.name: tool.kind for tool in listed.tools}
    assert {name: kinds[name] for name in (*TASK_TOOLS, "shell")} == {
        "task_output": READ, "task_list": READ, "task_kill": EXECUTE, "shell": EXECUTE,
    }  # fmt: skip


async def test_what_the_schema_allows_is_accepted(owner: Owner) -> None:
    await owner.shell("echo x")
    await owner.finished("shell-1")
    for name, arguments in (
        ("task_output", '{"task_id": "shell-1"}'),
        ("task_output", '{"task_id": " shell-1 ", "wait": false}'),
        ("task_output", '{"task_id": "shell-1", "wait": true, "timeout_ms": 1.5}'),
        ("task_list", ""),
        ("task_list", "{}"),
        ("task_kill", '{"task_id": "shell-1"}'),
        ("task_kill", '{"task_id": "shell-1", "reason": "enough"}'),
    ):
        kind, text = await owner.raw(name, arguments)
        assert kind == RESULT, (name, arguments, text)


async def test_each_surface_has_its_own(owner: Owner, open_owner: Open) -> None:
    by_surface = {}
    for surface in ("tau", "tasks", "none"):
        agent = (await open_owner(surface=surface)).agent
        listed = await agent.list_tools()
        by_surface[surface] = listed
        names = {tool.name for tool in listed.tools}
        assert (names >= TASK_TOOLS) == (surface == "tasks")
        assert ({"wait", "cancel"} <= names) == (surface == "tau")
        assert ("background" in schemas(listed)["shell"]["properties"]) == (surface != "none")
        assert ("mode" in schemas(listed)["agent_start"]["properties"]) == (surface == "tau")
    assert by_surface["tasks"].guidance == GUIDANCE
    assert by_surface["none"].guidance == ""
    assert by_surface["tau"].guidance not in ("", GUIDANCE)
    both = await owner.client.list_tools("both")
    assert {tool.name for tool in both.tools} >= TASK_TOOLS | {"wait", "cancel"}
    assert GUIDANCE in both.guidance
    # On the tasks surface a sub-agent is a task, and its description says so.
    (start,) = [t for t in by_surface["tasks"].tools if t.name == "agent_start"]
    assert "background task" in start.description
    assert "watch" not in start.description


async def test_both_families_work_on_both_surfaces(open_owner: Open) -> None:
    for surface in ("tau", "tasks"):
        owner = await open_owner(surface=surface)
        await owner.shell("echo x", "x")
        await owner.shell("echo y", "y")
        waited = await owner.agent.call_tool("wait", {"tool_call_id": "x"})
        assert "out x" in waited.text
        assert await owner.read("shell-2", wait=True) == "y\n[status: completed]"
        assert (await owner.listed()).count("completed") == 2


async def test_a_filter_hides_tools_and_not_the_guidance(open_owner: Open) -> None:
    owner = await open_owner(hidden_tools=["task_kill", "task_list"])
    listed = await owner.agent.list_tools()
    names = {tool.name for tool in listed.tools}
    assert names & TASK_TOOLS == {"task_output"}
    assert listed.guidance == GUIDANCE
    assert (await owner.shell("echo x")).kind == PLACEHOLDER
    refused = await owner.tool("task_kill", task_id="shell-1")
    assert (refused.kind, refused.reason) == (ERROR, "TOOL_UNKNOWN")
    assert await owner.read("shell-1", wait=True) == "x\n[status: completed]"
    # It hides them from the model, not from its harness.
    assert (await owner.agent.task_list())[0].task_id == "shell-1"


async def test_where_there_is_no_surface_background_is_refused(open_owner: Open) -> None:
    owner = await open_owner(surface="none")
    properties = schemas(await owner.agent.list_tools())["shell"]["properties"]
    assert "background" not in properties
    forced = await owner.shell("echo x")
    assert forced.kind == ERROR
    works = await owner.tool("shell", command="echo x")
    assert works.kind == RESULT
    assert works.text.endswith("out x")


@pytest.mark.parametrize("name", ["task_outputs", "", "TASK_LIST"])
async def test_no_such_tool(owner: Owner, name: str) -> None:
    answer = await owner.tool(name)
    assert (answer.kind, answer.reason) == (ERROR, "TOOL_UNKNOWN")
