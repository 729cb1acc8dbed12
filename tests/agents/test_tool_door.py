"""The door that models come in by: what is listed, what each tool answers, and in which kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from agents.conftest import Open
from agents.harness import (
    CANCELLED,
    ERROR,
    MESSAGE,
    PLACEHOLDER,
    RESULT,
    Actor,
    Answer,
    placeholder,
)
from pinfold.errors import AlreadyExistsError, NotFoundError, StateError
from pinfold.v1 import agent_pb2, call_pb2, call_service_pb2, tool_service_pb2
from tasks.harness import Gate

pytestmark = pytest.mark.timeout(120)

AGENTS = {"agent_start", "agent_watch", "message", "status"}
NAMES = {
    "tau": {"shell", "wait", "cancel", *AGENTS},
    "tasks": {"shell", "task_output", "task_list", "task_kill", *AGENTS},
    "both": {"shell", "wait", "cancel", "task_output", "task_list", "task_kill", *AGENTS},
    "none": {"shell", *AGENTS},
}
ARGUMENTS = {
    "shell": ({"command", "timeout", "cwd", "env", "background", "exclusive"}, {"command"}),
    "wait": ({"tool_call_id", "tool_call_ids", "timeout_minutes"}, set()),
    "cancel": ({"tool_call_id"}, {"tool_call_id"}),
    "agent_start": ({"prompt", "role", "mode"}, {"prompt"}),
    "agent_watch": ({"agent_id", "enable"}, {"agent_id", "enable"}),
    "message": ({"recipient_id", "message"}, {"recipient_id", "message"}),
    "status": ({"state", "title"}, {"state", "title"}),
    "task_output": ({"task_id", "wait", "timeout_ms"}, {"task_id"}),
    "task_list": (set(), set()),
    "task_kill": ({"task_id", "reason"}, {"task_id"}),
}


def names(listed: tool_service_pb2.ListToolsResponse) -> set[str]:
    return {tool.name for tool in listed.tools}


def headers(text: str) -> dict[str, str]:
    head = text.partition("\n\n")[0]
    return dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)


# ---------------------------------------------------------------- what is listed


async def test_each_surface_has_its_tools(me: Actor, open_actor: Open) -> None:
    tau, tasks, both = [await me.client.list_tools(name) for name in ("tau", "tasks", "both")]
    assert (names(tau), names(tasks), names(both)) == (NAMES["tau"], NAMES["tasks"], NAMES["both"])
    assert both.guidance == f"{tau.guidance}\n\n{tasks.guidance}"
    assert "`" not in tau.guidance.split()[0]
    # Without a surface: the agent's own.
    assert await me.agent.list_tools() == await me.client.list_tools("tau", agent_id=me.id)
    for surface in ("tasks", "none"):
        agent = await open_actor(surface=surface)
        listed = await agent.agent.list_tools()
        assert names(listed) == NAMES[surface]
        assert bool(listed.guidance) == (surface == "tasks")


async def test_schemas_are_those_of_the_contract(me: Actor) -> None:
    for tool in (await me.client.list_tools("both")).tools:
        schema = json.loads(tool.parameters_json)
        properties, required = ARGUMENTS[tool.name]
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert set(schema["properties"]) == properties
        assert set(schema.get("required", ())) == required
        assert tool.description
    kinds = {tool.name: tool.kind for tool in (await me.client.list_tools("both")).tools}
    read, execute = tool_service_pb2.TOOL_KIND_READ, tool_service_pb2.TOOL_KIND_EXECUTE
    assert {name for name, kind in kinds.items() if kind == read} == {"task_output", "task_list"}
    assert {name for name, kind in kinds.items() if kind == execute} == {"shell", "task_kill"}


async def test_hidden_tools_are_neither_listed_nor_there(me: Actor, open_actor: Open) -> None:
    agent = await open_actor(hidden_tools=["cancel", "agent_start", "no such tool"])
    listed = await agent.agent.list_tools()
    assert names(listed) == NAMES["tau"] - {"cancel", "agent_start"}
    assert listed.guidance == (await me.agent.list_tools()).guidance
    for name in ("cancel", "agent_start", "no such tool", "", "Shell"):
        answer = await agent.raw(name, "not even JSON")
        assert (answer.kind, answer.reason) == (ERROR, "TOOL_UNKNOWN")
        assert answer.text == f"error: unknown tool: `{name}`; use one of the listed tools"
    # Only this agent's are hidden.
    assert (await me.tool("cancel", tool_call_id="x")).reason == "CANCEL_TARGET_UNKNOWN"


async def test_both_families_work_on_both_surfaces(open_actor: Open) -> None:
    for surface in ("tau", "tasks"):
        agent = await open_actor(surface=surface)
        await agent.tool("shell", "X", command="echo x", background=True)
        await agent.tool("shell", "Y", command="echo y", background=True)
        await agent.ended("X")
        await agent.ended("Y")
        assert await agent.said("wait", tool_call_id="X") == (RESULT, "status: 0\n\nout x")
        got = await agent.said("task_output", task_id="shell-2")
        assert got == (RESULT, "y\n[status: completed]")


# ---------------------------------------------------------------- kinds


class TestKinds:
    async def test_shell(self, me: Actor) -> None:
        answer = await me.tool("shell", "R", command="echo x; echo y >&2; exit 7")
        assert answer.kind == RESULT
        assert headers(answer.text) == {"termination_reason": "exit", "status": "7"}
        assert answer.result.text == answer.text
        assert answer.result.process.exit_code == 7
        assert answer.result.state == call_pb2.CALL_STATE_SUCCEEDED

        answer = await me.tool("shell", "E", command="true", cwd="/no/such/directory")
        assert (answer.kind, answer.result.text) == (ERROR, answer.text)
        assert answer.text.startswith("error: failed to start shell command: ")
        assert headers(answer.text)["termination_reason"] == "start_error"
        assert answer.result.cause == call_pb2.END_CAUSE_START_ERROR

        answer = await me.tool("shell", "B", command="sleep 1000000", background=True)
        assert (answer.kind, answer.text) == (PLACEHOLDER, placeholder("B"))
        assert (answer.call.call_id, answer.call.background) == ("B", True)

        running = asyncio.ensure_future(me.tool("shell", "C", command="sleep 1000000"))
        await me.happened("call.started", "C")
        assert (await me.tool("cancel", tool_call_id="C")).kind == RESULT
        answer = await running
        assert answer.kind == CANCELLED
        assert answer.text.startswith("error: Tool call canceled")
        assert answer.result.text == answer.text
        assert answer.result.state == call_pb2.CALL_STATE_CANCELLED

    async def test_wait(self, me: Actor, gate: Gate) -> None:
        turn = await me.begun()
        await me.finished("X")
        answer = await me.tool("wait", "w1")
        assert (answer.kind, answer.wait.text) == (RESULT, answer.text)
        assert headers(answer.text)["original_tool_call_id"] == "X"
        assert [result.call_id for result in answer.wait.results] == ["X"]
        assert answer.wait.outcome == call_service_pb2.WAIT_OUTCOME_RESULT

        await me.background("sleep 1000000", "Y")
        await me.agent.cancel("Y")
        answer = await me.tool("wait", "w2", tool_call_id="Y")
        assert (answer.kind, answer.wait.text) == (ERROR, answer.text)
        assert answer.text.startswith("error: Tool call canceled")
        assert [r.state for r in answer.wait.results] == [call_pb2.CALL_STATE_CANCELLED]

        answer = await me.tool("wait", "w3", tool_call_id="nothing")
        assert (answer.kind, answer.reason) == (ERROR, "CALL_UNKNOWN")
        assert answer.text == "error: unknown tool call: `nothing`"
        assert not answer.HasField("wait")

        await me.background(f"{gate}", "Z")
        waiting = await me.parked("w4", tool_call_id="Z")
        await me.agent.cancel_turn()
        answer = await waiting
        assert (answer.kind, answer.reason) == (CANCELLED, "WAIT_CANCELLED")
        assert answer.text == "error: the wait was cancelled; nothing was consumed"
        await me.agent.end_turn(turn.turn_id, "late")

    async def test_a_set_is_a_result_with_its_errors_inside(self, me: Actor) -> None:
        await me.finished("A")
        await me.background("sleep 1000000", "B")
        await me.agent.cancel("B")
        await me.ended("B")
        answer = await me.tool("wait", tool_call_ids=["B", "A"])
        assert (answer.kind, answer.wait.text) == (RESULT, answer.text)
        assert [result.call_id for result in answer.wait.results] == ["B", "A"]
        assert answer.text.startswith("results: 2\n\n<result>\nerror: Tool call canceled")

    async def test_cancel(self, me: Actor) -> None:
        await me.background("sleep 1000000", "X")
        answer = await me.tool("cancel", tool_call_id=" X ")
        assert (answer.kind, answer.text) == (RESULT, "Tool cancellation requested")
        assert answer.cancel.text == answer.text
        answer = await me.tool("cancel", tool_call_id="X")
        assert (answer.kind, answer.reason) == (ERROR, "CALL_ALREADY_CANCELED")
        assert answer.text == "error: Tool call already canceled"
        answer = await me.tool("cancel", tool_call_id="nothing")
        assert answer.text == "error: Unknown tool call id\ntool_call_id: nothing"

    async def test_agent_start(self, me: Actor) -> None:
        answer = await me.tool("agent_start", "S", prompt="do it", role="idle")
        facts = answer.agent_start
        assert answer.kind == RESULT
        assert headers(answer.text) == {
            "self_agent_id": me.id,
            "sub_agent_id": facts.sub_agent_id,
        }
        assert (facts.self_agent_id, facts.text) == (me.id, answer.text)

        answer = await me.tool("agent_start", "D", prompt="do it", role="idle", mode="call")
        facts = answer.agent_start
        assert answer.kind == PLACEHOLDER
        assert answer.text == (
            f"tau_internal: true\nself_agent_id: {me.id}\nsub_agent_id: {facts.sub_agent_id}"
            "\n\nTool call `D` is running in the background."
        )
        assert (facts.call_id, facts.task_id, facts.text) == ("D", "agent-1", answer.text)

        answer = await me.tool("agent_start", prompt="do it", role="nobody")
        assert (answer.kind, answer.reason) == (ERROR, "ROLE_UNKNOWN")
        assert answer.text == "error: unknown role: `nobody`; leave `role` out for the default"

    async def test_watch_message_and_status(self, me: Actor) -> None:
        kid = await me.child()
        answer = await me.tool("agent_watch", agent_id=kid.id, enable=False)
        assert (answer.kind, answer.agent_watch.text) == (RESULT, answer.text)
        answer = await me.tool("message", recipient_id=kid.id, message="hi")
        assert (answer.kind, answer.message.text) == (RESULT, answer.text)
        assert answer.message.message_id in answer.text
        answer = await me.tool("status", state="blocked", title="on you")
        assert (answer.kind, answer.text) == (RESULT, "Status accepted: blocked — on you")
        assert answer.status == agent_pb2.StatusReport(
            state=agent_pb2.REPORTED_STATE_BLOCKED, title="on you"
        )

    async def test_the_task_tools(self, me: Actor, gate: Gate) -> None:
        await me.background(f"echo x; {gate}", "X")
        await me.until_output("X")
        answer = await me.tool("task_output", task_id="shell-1")
        assert (answer.kind, answer.text) == (RESULT, "x\n[status: running]")
        assert (answer.task_output.text, answer.task_output.output) == (answer.text, "x\n")
        answer = await me.tool("task_list")
        assert (answer.kind, answer.task_list.text) == (RESULT, answer.text)
        (task,) = answer.task_list.tasks
        assert answer.text == f"shell-1 [shell] running — {task.label}"
        answer = await me.tool("task_kill", task_id="shell-1")
        assert (answer.kind, answer.text) == (RESULT, "requested cancellation of task shell-1")
        assert answer.task_kill.text == answer.text
        for name in ("task_output", "task_kill"):
            answer = await me.tool(name, task_id="shell-9")
            assert (answer.kind, answer.reason) == (ERROR, "TASK_UNKNOWN")
            assert answer.text == "error: unknown task shell-9"


# ---------------------------------------------------------------- arguments

WRONG: list[tuple[str, str, str]] = [
    ("shell", "{", "arguments are not valid JSON: *"),
    ("shell", "[]", "arguments must be a JSON object, got []"),
    ("shell", "null", "arguments must be a JSON object, got null"),
    ("shell", "", "`command` is required"),
    ("shell", '{"command": ""}', "`command` must not be empty"),
    ("shell", '{"command": 1}', "`command` must be a string"),
    ("shell", '{"command": "touch ran", "timeout": -1}', "`timeout` must be at least 0"),
    ("shell", '{"command": "touch ran", "timeout": "1"}', "`timeout` must be an integer"),
    ("shell", '{"command": "touch ran", "timeout": 1.0}', "`timeout` must be an integer"),
    ("shell", '{"command": "touch ran", "timeout": true}', "`timeout` must be an integer"),
    ("shell", '{"command": "touch ran", "timeout": null}', "`timeout` must be an integer"),
    ("shell", '{"command": "touch ran", "background": 1}', "`background` must be a boolean"),
    ("shell", '{"command": "touch ran", "env": {"A": 1}}', "`env`: `A` must be a string"),
    ("shell", '{"command": "touch ran", "cmd": 1}', "unknown argument: `cmd`; *"),
    ("shell", '{"command": "a", "command": "b"}', "argument `command` is given more than once"),
    ("wait", '{"tool_call_id": ""}', "`tool_call_id` must not be empty"),
    ("wait", '{"tool_call_id": "  "}', "`tool_call_id` must not be empty"),
    ("wait", '{"tool_call_id": true}', "`tool_call_id` must be a string"),
    ("wait", '{"tool_call_id": null}', "`tool_call_id` must be a string"),
    ("wait", '{"tool_call_ids": []}', "`tool_call_ids` must not be empty"),
    ("wait", '{"tool_call_ids": "X"}', "`tool_call_ids` must be an array of strings"),
    ("wait", '{"tool_call_ids": ["X", 1]}', "`tool_call_ids[1]` must be a string"),
    ("wait", '{"tool_call_ids": ["X", " "]}', "`tool_call_ids[1]` must not be empty"),
    ("wait", '{"tool_call_ids": ["X", " X"]}', "`tool_call_ids` must be distinct"),
    ("wait", json.dumps({"tool_call_ids": [str(n) for n in range(65)]}), "*at most 64 entries"),
    ("wait", '{"timeout_minutes": 0}', "`timeout_minutes` must be at least 1"),
    ("wait", '{"timeout_minutes": -1}', "`timeout_minutes` must be at least 1"),
    ("wait", '{"timeout_minutes": 1.5}', "`timeout_minutes` must be an integer"),
    ("wait", '{"timeout_minutes": 1.0}', "`timeout_minutes` must be an integer"),
    ("wait", '{"timeout_minutes": "1"}', "`timeout_minutes` must be an integer"),
    ("wait", '{"timeout_minutes": true}', "`timeout_minutes` must be an integer"),
    ("wait", '{"timeout_minutes": null}', "`timeout_minutes` must be an integer"),
    (
        "wait",
        '{"tool_call_id": "X", "timeout_minutes": 1}',
        "`tool_call_id` and `timeout_minutes` are mutually exclusive",
    ),
    (
        "wait",
        '{"tool_call_id": "X", "tool_call_ids": ["Y"]}',
        "`tool_call_id`, `tool_call_ids` and `timeout_minutes` are mutually exclusive",
    ),
    ("cancel", "{}", "`tool_call_id` is required"),
    ("cancel", '{"tool_call_id": ""}', "`tool_call_id` must not be empty"),
    ("cancel", '{"tool_call_id": " \\t"}', "`tool_call_id` must not be empty"),
    ("cancel", '{"tool_call_id": 1}', "`tool_call_id` must be a string"),
    ("agent_start", "{}", "`prompt` is required"),
    ("agent_start", '{"prompt": " "}', "`prompt` must not be empty"),
    ("agent_start", '{"prompt": "x", "mode": "calls"}', "`mode` must be one of `watch`, `call`"),
    ("agent_start", '{"prompt": "x", "role": 1}', "`role` must be a string"),
    ("task_output", "{}", "invalid task_id: expected a non-empty string, got nothing"),
    ("task_output", '{"task_id": ""}', 'invalid task_id: expected a non-empty string, got ""'),
    (
        "task_output",
        '{"task_id": "shell-1", "wait": true, "timeout_ms": 0}',
        "invalid wait timeout: expected a positive number of milliseconds, got 0",
    ),
    (
        "task_output",
        '{"task_id": "shell-1", "timeout_ms": true}',
        "invalid wait timeout: expected a positive number of milliseconds, got true",
    ),
    ("task_list", '{"all": true}', "unknown argument: `all`; expected no arguments"),
    ("task_kill", '{"task_id": "shell-1", "reason": 1}', "`reason` must be a string"),
]


@pytest.mark.parametrize(("name", "arguments", "text"), WRONG)
async def test_wrong_arguments(me: Actor, name: str, arguments: str, text: str) -> None:
    revision = await me.revision()
    answer = await me.raw(name, arguments)
    assert (answer.kind, answer.reason) == (ERROR, "INVALID_ARGUMENT")
    if text.startswith("*"):
        assert answer.text.endswith(text[1:])
    elif text.endswith("*"):
        assert answer.text.startswith(f"error: {text[:-1]}")
    else:
        assert answer.text == f"error: {text}"
    assert answer.WhichOneof("facts") is None
    # Nothing was done, and nothing is remembered: the id is free.
    assert await me.log(start=revision + 1) == []


async def test_a_wait_keeps_within_its_bounds_in_silence(me: Actor) -> None:
    turn = await me.begun()
    for n, minutes in enumerate((1, 5, 10**30)):
        waiting = await me.parked(f"w{n}", timeout_minutes=minutes)
        await me.agent.message(me.id, "hi")
        assert (await waiting).text == "input_available: true"
        await me.take()
    await me.agent.end_turn(turn.turn_id, "done")


# ---------------------------------------------------------------- repeats


def same(one: Answer, other: Answer) -> bool:
    return (one.kind, one.text, one.reason) == (other.kind, other.text, other.reason)


async def test_the_same_call_again_gets_the_same_answer(me: Actor) -> None:
    turn = await me.begun()
    await me.finished("X")
    await me.finished("Y")
    await me.background("sleep 1000000", "Z")
    kid = await me.child()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("shell", {"command": "date +%N"}),
        ("shell", {"command": "date +%N", "background": True}),
        ("wait", {"tool_call_id": "X"}),
        ("wait", {}),
        ("wait", {"tool_call_id": "X"}),
        ("cancel", {"tool_call_id": "Z"}),
        ("agent_start", {"prompt": "x", "role": "idle"}),
        ("agent_start", {"prompt": "x", "role": "idle", "mode": "call"}),
        ("agent_watch", {"agent_id": kid.id, "enable": False}),
        ("message", {"recipient_id": kid.id, "message": "once"}),
        ("status", {"state": "working", "title": "x"}),
        ("task_output", {"task_id": "shell-3"}),
        ("task_list", {}),
        ("task_kill", {"task_id": "shell-1"}),
    ]
    answers = [
        await me.tool(tool, f"again-{n}", **arguments) for n, (tool, arguments) in enumerate(calls)
    ]
    assert [n for n, answer in enumerate(answers) if answer.kind == ERROR] == [4]
    await me.ended("again-1")
    await me.ended("Z")
    revision = await me.revision()
    for n, (tool, arguments) in enumerate(calls):
        # Spelled in another way, as by a harness that has parsed it: it is the same call.
        spelled = json.dumps(dict(reversed(arguments.items())), indent=2).replace("X", "\\u0058")
        again = await me.agent.call_tool(tool, spelled, tool_call_id=f"again-{n}")
        if tool != "task_list":  # which tells how things stand
            assert same(again, answers[n]), (tool, again, answers[n])
        assert again.tool_call_id == f"again-{n}"
    new = {event.name for event in await me.log(start=revision + 1)}
    assert new <= {"call.output", "call.empty"}, new
    assert len(await kid.prompts(MESSAGE)) == 1
    await me.agent.end_turn(turn.turn_id, "done")


async def test_in_parallel_it_is_one_call(me: Actor, gate: Gate) -> None:
    answers = [
        asyncio.ensure_future(me.tool("shell", "X", command=f"echo started; {gate}"))
        for _ in range(4)
    ]
    await me.happened("call.started", "X")
    await me.until_output("X")
    waits = [asyncio.ensure_future(me.tool("wait", "w", tool_call_id="X")) for _ in range(4)]
    await me.installed("w")
    gate.open()
    done = await asyncio.gather(*answers)
    assert all(answer == done[0] for answer in done)
    collected = await asyncio.gather(*waits)
    assert all(answer == collected[0] for answer in collected)
    assert collected[0].text == "status: 0\n\nout started"
    assert len(await me.log(names=["call.starting"])) == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "other", "reason"),
    [
        ("shell", {"command": "true"}, {"command": "false"}, "CALL_ID_REUSED"),
        ("wait", {"tool_call_id": "X"}, {}, "WAIT_ID_REUSED"),
        (
            "agent_start",
            {"prompt": "a", "role": "idle"},
            {"prompt": "b", "role": "idle"},
            "CALL_ID_REUSED",
        ),
        (
            "status",
            {"state": "working", "title": "a"},
            {"state": "working", "title": "b"},
            "REQUEST_ID_REUSED",
        ),
    ],
)
async def test_an_id_with_other_arguments_is_refused(
    me: Actor, tool: str, arguments: dict[str, Any], other: dict[str, Any], reason: str
) -> None:
    await me.finished("X")
    await me.tool(tool, "id", **arguments)
    with pytest.raises(AlreadyExistsError) as caught:
        await me.tool(tool, "id", **other)
    assert caught.value.reason == reason
    with pytest.raises(AlreadyExistsError):
        await me.tool("shell", "id", command="echo another tool")


async def test_an_id_is_made_where_none_is_given(me: Actor) -> None:
    one, other = [await me.tool("shell", command="true") for _ in range(2)]
    assert one.tool_call_id
    assert one.tool_call_id != other.tool_call_id
    assert (await me.agent.get(one.tool_call_id)).call_id == one.tool_call_id


async def test_a_status_is_for_the_harness_only(
    me: Actor, gates: Callable[[], Gate], open_actor: Open
) -> None:
    with pytest.raises(NotFoundError) as unknown:
        await me.client.agent("nobody").call_tool("task_list")
    assert unknown.value.reason == "AGENT_UNKNOWN"
    gone = await me.child()
    await gone.agent.stop()
    with pytest.raises(StateError) as stopped:
        await gone.tool("task_list")
    assert stopped.value.reason == "AGENT_STOPPED"
    # Another's calls do not exist, and its owner has them still.
    other = await open_actor()
    await other.finished("mine")
    for tool in ("wait", "cancel"):
        answer = await me.tool(tool, tool_call_id="mine")
        assert answer.reason in ("CALL_UNKNOWN", "CANCEL_TARGET_UNKNOWN")
    assert (await other.tool("wait", tool_call_id="mine")).text == "status: 0\n\nout done"
