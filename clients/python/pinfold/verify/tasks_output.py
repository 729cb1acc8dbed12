"""task_output: deltas, status lines, waiting reads, final output."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT, Actor
from pinfold.verify.expect import between, like
from pinfold.verify.phase import TASKS, Phase, phase

RUNNING = f"{texts.NO_NEW_OUTPUT}\n[status: running]"


async def read(me: Actor, task_id: str, **arguments: Any) -> tuple[str, str]:
    return (await me.call("task_output", task_id=task_id, **arguments)).said


async def _received(me: Actor, call_id: str, size: int) -> None:
    """The supervisor has so many bytes of the call's output."""
    got = 0
    async for chunk in me.agent.output(call_id, limit=size):
        got += len(chunk.data)
        if got >= size:
            return


@phase("tasks-stream", TASKS, "stream deltas and status lines", 4)
async def stream(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    gate = await p.gate("g")
    await me.shell(f"echo line one; cat {gate}; echo line two; exit 7", "x", background=True)
    await _received(me, "x", 9)
    first = await me.call("task_output", "r1", task_id="shell-1")
    p.check("what is new", expected=(RESULT, "line one\n[status: running]"), got=first.said)
    p.check("once", expected=(RESULT, RUNNING), got=await read(me, "shell-1"))
    observer = (await me.agent.read_output("shell-1")).decode()
    p.check("an observer reads by offset", expected="line one\n", got=observer)
    await p.open_gate("g")
    end = await me.ended("x")
    waiting = await me.call("task_output", "r2", task_id="shell-1", wait=True)
    p.check(
        "the rest, then the status with its detail",
        expected=(RESULT, "line two\n[status: completed, exit code: 7]"),
        got=waiting.said,
    )
    repeat = await me.call("task_output", "r2", task_id="shell-1", wait=True)
    p.check("the same read again gets the same", expected=waiting.said, got=repeat.said)
    p.check(
        "and moves nothing",
        expected=(RESULT, f"{texts.NO_NEW_OUTPUT}\n[status: completed, exit code: 7]"),
        got=await read(me, "shell-1"),
    )
    typed = [await me.agent.task_output("shell-1", read_id="t1") for _ in range(2)]
    p.check("typed, by a read id", expected=typed[0].text, got=typed[1].text)
    p.check("non-zero is completed", expected="tool.background_result", got=end.name)

    p.route("two streams")
    await me.shell("printf out; echo err >&2", "y", background=True)
    await me.ended("y")
    p.check(
        "standard error after a mark",
        expected=(RESULT, "out\n[stderr]\nerr\n[status: completed]"),
        got=await read(me, "shell-2"),
    )

    p.route("characters are never split")
    gate = await p.gate("h")
    await me.shell(f"printf '\\303'; cat {gate}; printf '\\251\\n'", "z", background=True)
    await _received(me, "z", 1)
    p.check("not the half of one", expected=(RESULT, RUNNING), got=await read(me, "shell-3"))
    await p.open_gate("h")
    await me.ended("z")
    p.check(
        "but the whole", expected=(RESULT, "é\n[status: completed]"), got=await read(me, "shell-3")
    )


@phase("tasks-status", TASKS, "status lines of all ends", 4)
async def status(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    ends: list[tuple[str, dict[str, Any], str]] = [
        ("true", {}, r"\[status: completed\]"),
        ("kill -TERM $$", {}, r"\[status: killed, signal: SIGTERM\]"),
        ("sleep 30", {"timeout": 1}, r"\[status: (killed|failed), timed out after 1 s\]"),
        ("pwd", {"cwd": "/no/such/directory"}, r"\[status: failed, .*no/such/directory.*\]"),
    ]
    for number, (command, arguments, line) in enumerate(ends, 1):
        name = f"c{number}"
        await me.shell(command, name, background=True, **arguments)
        await me.ended(name)
        p.check(
            f"{command} {arguments or ''}".strip(),
            expected=(RESULT, like(rf"\(no new output\)\n{line}")),
            got=await read(me, f"shell-{number}", wait=True),
        )


@phase("tasks-wait", TASKS, "waiting reads", 10)
async def waiting(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    gate = await p.gate("g")
    await me.shell(f"cat {gate}; echo done deal", "x", background=True)
    started = time.monotonic()
    short = await me.call("task_output", task_id="shell-1", wait=True, timeout_ms=300)
    p.check("running out of time is a success", expected=(RESULT, RUNNING), got=short.said)
    p.check("not before", expected=between(0.29, 12), got=time.monotonic() - started, kind="timing")
    call = await me.agent.get("x")
    p.check("and leaves the task alive", expected=False, got=call.HasField("ended_at"))

    p.route("invalid reads")
    wrong = "error: invalid wait timeout: expected a positive number of milliseconds, got"
    for value in ("0", "-5", "true", '"1"', "null"):
        answer = await me.raw(
            "task_output", f'{{"task_id": "shell-1", "wait": true, "timeout_ms": {value}}}'
        )
        p.check(f"timeout_ms {value}", expected=(ERROR, f"{wrong} {value}"), got=answer.said)
    answer = await me.raw("task_output", '{"task_id": ""}')
    p.check(
        "empty id",
        expected=(ERROR, 'error: invalid task_id: expected a non-empty string, got ""'),
        got=answer.said,
    )
    p.check(
        "unknown id",
        expected=(ERROR, "error: unknown task shell-99"),
        got=await read(me, "shell-99"),
    )

    await asyncio.gather(_default(p, me), _cap(p, me))
    p.route("waiting reads")
    settles = me.begin("task_output", task_id="shell-1", wait=True)
    await p.open_gate("g")
    await me.ended("x")
    p.check(
        "the end comes in the middle of it",
        expected=(RESULT, "done deal\n[status: completed]"),
        got=(await settles).said,
    )
    p.check(
        "a wait on what has ended answers at once",
        expected=(RESULT, f"{texts.NO_NEW_OUTPUT}\n[status: completed]"),
        got=await read(me, "shell-1", wait=True),
    )


async def _default(p: Phase, me: Actor) -> None:
    default = p.info.limits.task_wait_timeout.seconds
    if default > 10:
        p.note(f"the default wait of {default} s is as GetInfo tells it, not waited for")
        p.check(
            "a default wait within the cap",
            expected=True,
            got=0 < default <= p.info.limits.max_task_wait_timeout.seconds,
        )
        return
    started = time.monotonic()
    said = await read(me, "shell-1", wait=True)
    p.check(
        "without timeout_ms it is the default",
        expected=((RESULT, RUNNING), between(default, default + 10)),
        got=(said, time.monotonic() - started),
        kind="timing",
    )


async def _cap(p: Phase, me: Actor) -> None:
    cap = p.info.limits.max_task_wait_timeout.seconds
    if cap > 10:
        p.note(f"the cap of {cap} s is as GetInfo tells it, not waited for")
        p.check("there is a cap", expected=True, got=cap > 0)
        return
    started = time.monotonic()
    said = await read(me, "shell-1", wait=True, timeout_ms=600_000)
    p.check(
        "a longer wait is clamped to the cap",
        expected=((RESULT, RUNNING), between(cap, cap + 15)),
        got=(said, time.monotonic() - started),
        kind="timing",
    )


@phase("tasks-final", TASKS, "final output of agents", 4)
async def final(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    await me.call("agent_start", "a", prompt="await_message\nfinal the answer", role=p.role)
    sub = (await me.agent.get("a")).sub_agent_id
    await p.log.until(lambda e: bool(log.installed([e], sub)), "the sub-agent waits")
    p.check("nothing while it is live", expected=(RESULT, RUNNING), got=await read(me, "agent-1"))
    await me.message(sub, "go")
    await me.ended("a")
    said = [await read(me, "agent-1", wait=True) for _ in range(3)]
    p.check(
        "then the same text every time",
        expected=[(RESULT, "the answer\n[status: completed]")] * 3,
        got=said,
    )

    p.route("final output of a killed agent")
    await me.call("agent_start", "b", prompt="shell sleep 60\nawait_message", role=p.role)
    await me.call("task_kill", task_id="agent-2", reason="superseded")
    await me.ended("b")
    said = [await read(me, "agent-2") for _ in range(2)]
    p.check(
        "the status says it, every time",
        expected=[(RESULT, like(r"\(no new output\)\n\[status: killed, .*superseded.*\]"))] * 2,
        got=said,
    )
