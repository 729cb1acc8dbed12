"""The task tools as a model is told of them, their ids and their list."""

from __future__ import annotations

import json
from typing import Any

from pinfold.v1 import tool_service_pb2
from pinfold.verify import texts
from pinfold.verify.actor import ERROR, PLACEHOLDER, RESULT
from pinfold.verify.expect import like
from pinfold.verify.phase import TASKS, Phase, phase

READ = tool_service_pb2.TOOL_KIND_READ
EXECUTE = tool_service_pb2.TOOL_KIND_EXECUTE
TOOLS = ("task_output", "task_list", "task_kill")


@phase("tasks-tools", TASKS, "schemas and guidance", 2)
async def tools(p: Phase) -> None:
    listed = await p.client.list_tools("tasks")
    by_name = {tool.name: tool for tool in listed.tools}
    kinds = {name: by_name[name].kind for name in (*TOOLS, "shell") if name in by_name}
    p.check(
        "kinds for a front's cards",
        expected={"task_output": READ, "task_list": READ, "task_kill": EXECUTE, "shell": EXECUTE},
        got=kinds,
    )
    schemas: dict[str, Any] = {name: json.loads(t.parameters_json) for name, t in by_name.items()}
    arguments = {
        name: (sorted(schemas[name]["properties"]), schemas[name].get("required", []))
        for name in TOOLS
        if name in schemas
    }
    p.check(
        "their arguments",
        expected={
            "task_output": (["task_id", "timeout_ms", "wait"], ["task_id"]),
            "task_list": ([], []),
            "task_kill": (["reason", "task_id"], ["task_id"]),
        },
        got=arguments,
    )
    p.check(
        "each is an object that takes nothing else",
        expected=[("object", False)] * 3,
        got=[(schemas[n]["type"], schemas[n]["additionalProperties"]) for n in TOOLS],
    )
    p.check(
        "each has a description",
        expected=[True] * len(listed.tools),
        got=[bool(tool.description.strip()) for tool in listed.tools],
    )
    p.check("the guidance section", expected=texts.TASK_GUIDANCE, got=listed.guidance)

    p.route("surfaces")
    tau = await p.client.list_tools("tau")
    names = {tool.name for tool in tau.tools}
    p.check(
        "wait and cancel are the other surface's",
        expected=(True, False),
        got=({"wait", "cancel"} <= names, bool(names & set(TOOLS))),
    )
    p.check(
        "which has guidance of its own",
        expected=True,
        got=bool(tau.guidance) and tau.guidance != listed.guidance,
    )
    both = {tool.name for tool in (await p.client.list_tools("both")).tools}
    p.check("both together", expected=True, got={"wait", "cancel", *TOOLS} <= both)

    p.route("a filter of tools")
    me = await p.agent(surface="tasks", hidden_tools=["task_kill"])
    mine = await me.agent.list_tools()
    p.check(
        "hides the tool, not the guidance",
        expected=(False, texts.TASK_GUIDANCE),
        got=("task_kill" in {tool.name for tool in mine.tools}, mine.guidance),
    )
    answer = await me.call("task_kill", task_id="shell-1")
    p.check("a hidden tool cannot be called", expected=ERROR, got=answer.kind)


@phase("tasks-list", TASKS, "ids, acknowledgements and list", 4)
async def listing(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    empty = await me.call("task_list")
    p.check("no tasks", expected=(RESULT, texts.NO_TASKS), got=empty.said)
    gates = [await p.gate(f"g{n}") for n in (1, 2)]
    acknowledged = [
        (await me.shell(f"cat {gates[0]}", "a", background=True)).said,
        (await me.shell(f"cat {gates[1]}; exit 3", "b", background=True)).said,
        (await me.call("agent_start", "c", prompt="await_message", role=p.role)).said,
    ]
    p.check(
        "start acknowledgements, numbered by kind",
        expected=[
            (PLACEHOLDER, "started background task shell-1"),
            (PLACEHOLDER, "started background task shell-2"),
            (PLACEHOLDER, "started background subagent task agent-1"),
        ],
        got=acknowledged,
    )
    listed = await me.call("task_list")
    p.check(
        "a line for each, in start order",
        expected=(
            RESULT,
            "\n".join(
                [
                    f"shell-1 [shell] running — cat {gates[0]}",
                    f"shell-2 [shell] running — cat {gates[1]}; exit 3",
                    "agent-1 [agent] running — await_message",
                ]
            ),
        ),
        got=listed.said,
    )
    await p.open_gate("g2")
    await me.ended("b")
    await me.call("task_kill", task_id="shell-1")
    await me.ended("a")
    listed = await me.call("task_list")
    p.check(
        "with their status",
        expected=like(
            r"shell-1 \[shell\] killed — .*\nshell-2 \[shell\] completed — .*\n"
            r"agent-1 \[agent\] running — .*"
        ),
        got=listed.text,
    )

    p.route("ids in the background by time")
    slow = await me.shell("sleep 2.6", "d")
    p.check(
        "a slow call is acknowledged as a task too",
        expected=(PLACEHOLDER, "started background task shell-3"),
        got=slow.said,
    )

    p.route("labels")
    other = await p.agent(surface="tasks")
    await other.shell("printf 'a\nb \x1b[31m'" + " " * 300 + "; true", "x", background=True)
    text = (await other.call("task_list")).text
    p.check(
        "one escaped, bounded line", expected=like(r"shell-1 \[shell\] \w+ — .{1,100}"), got=text
    )
    p.check("no control characters", expected=[], got=[c for c in text if ord(c) < 32])
