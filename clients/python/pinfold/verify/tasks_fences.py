"""Whose tasks they are, how many there may be, and where there are none."""

from __future__ import annotations

from pinfold.v1 import agent_pb2, task_service_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, PLACEHOLDER, RESULT
from pinfold.verify.expect import starting
from pinfold.verify.phase import TASKS, Phase, phase
from pinfold.verify.tasks_output import read


@phase("tasks-fences", TASKS, "fences between owners", 3)
async def fences(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    other = await p.agent(surface="tasks")
    await other.gated("theirs", "private")
    unknown = (ERROR, "error: unknown task shell-1")
    p.check("another's task cannot be read", expected=unknown, got=await read(me, "shell-1"))
    p.check(
        "nor killed", expected=unknown, got=(await me.call("task_kill", task_id="shell-1")).said
    )
    p.check("nor listed", expected=texts.NO_TASKS, got=(await me.call("task_list")).text)
    await other.open("theirs")
    p.check(
        "its owner has it",
        expected=(RESULT, "private\n[status: completed]"),
        got=await read(other, "shell-1"),
    )
    seen = [
        (t.agent_id, t.task_id, t.status)
        for t in await p.client.list_tasks()
        if t.agent_id == other.id
    ]
    p.check(
        "an operator sees all",
        expected=[(other.id, "shell-1", task_service_pb2.TASK_STATUS_COMPLETED)],
        got=seen,
    )
    p.check(
        "and reads by offset, without moving the owner's cursor",
        expected=b"private\n",
        got=await p.client.agent(other.id).read_output("shell-1"),
    )

    p.route("task ids are each owner's own")
    await me.finished("mine", "mine")
    p.check(
        "the same number, another task",
        expected=(RESULT, "mine\n[status: completed]"),
        got=await read(me, "shell-1"),
    )


@phase("tasks-limit", TASKS, "limit of active tasks", 5)
async def limit(p: Phase) -> None:
    me = await p.agent(surface="tasks", max_active_tasks=1)
    marker = f"{await p.scratch()}/ran"
    ready = "trap '' TERM; echo up; while :; do sleep 0.2; done"
    await me.shell(ready, "a", background=True)
    async for _ in me.agent.output("a", limit=3):
        break
    refused = await me.shell(f"touch {marker}", "b", background=True)
    p.check("one more is refused", expected=ERROR, got=refused.kind)
    p.check(
        "with the way out",
        expected=True,
        got="limit" in refused.text
        and "task_output" in refused.text
        and "task_kill" in refused.text,
    )
    await me.call("task_kill", task_id="shell-1")
    still = await me.shell(f"touch {marker}", "c", background=True)
    p.check("also while the first is stopping", expected=ERROR, got=still.kind)
    await me.ended("a")
    p.check("nothing was started", expected=False, got=await p.exists(marker))
    after = await me.shell("true", "d", background=True)
    p.check(
        "then there is room, with the next number",
        expected=(PLACEHOLDER, "started background task shell-2"),
        got=after.said,
    )


@phase("tasks-none", TASKS, "no control surface", 4)
async def none(p: Phase) -> None:
    me = await p.agent(surface="none")
    marker = f"{await p.scratch()}/ran"
    refused = await me.shell(f"touch {marker}", background=True)
    p.check(
        "nothing may go to the background",
        expected=(ERROR, texts.NO_CONTROL_SURFACE),
        got=refused.said,
    )
    p.check("and was not started", expected=False, got=await p.exists(marker))
    slow = await me.shell("sleep 2.6; echo stayed")
    p.check(
        "a slow call stays in the foreground", expected=(RESULT, texts.out("stayed")), got=slow.said
    )
    refused = await me.call("agent_start", prompt="final x", role=p.role, mode="call")
    p.check("nor may an agent", expected=(ERROR, starting("error: ")), got=refused.said)
    tools = await me.agent.list_tools()
    p.check(
        "no guidance, no background argument",
        expected=("", [False]),
        got=(
            tools.guidance,
            [
                "background" in t.parameters_json.split('"description"')[0]
                or '"background"' in t.parameters_json
                for t in tools.tools
                if t.name == "shell"
            ],
        ),
    )


@phase("tasks-disposal", TASKS, "an owner that is stopped", 3)
async def disposal(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    await me.gated("live")
    await me.finished("ended")
    stopped = await me.agent.stop(reason="owner disposed", grace=1.0)
    p.check(
        "its live task is ended, and waited for",
        expected=(1, [], agent_pb2.AGENT_STATE_STOPPED),
        got=(
            stopped.ended_calls,
            list(stopped.receipt.surviving_pids),
            stopped.agent.state,
        ),
        kind="leak",
    )
    events = await p.log.read()
    p.check(
        "with the reason",
        expected=[("tool.background_error", "owner disposed")],
        got=[
            (e.name, e.call_ended.result.cancel_reason)
            for e in log.terminals(events, me.id, "live")
        ],
    )
    p.check(
        "and no notice",
        expected=[],
        got=log.notices(events, me.id, "live"),
        kind="duplicate prompt",
    )
