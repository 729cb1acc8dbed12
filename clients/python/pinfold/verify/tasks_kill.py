"""task_kill: at once, with a reason, and truthful afterwards."""

from __future__ import annotations

from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT
from pinfold.verify.expect import containing, like, starting
from pinfold.verify.phase import TASKS, Phase, phase
from pinfold.verify.tasks_output import read

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.2; done"


@phase("tasks-kill", TASKS, "kill with a reason", 5)
async def kill(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    await me.shell("echo before; exec sleep 60", "x", background=True)
    async for _ in me.agent.output("x", limit=7):
        break
    await me.gated("sibling", "unaffected")
    killed = await me.call("task_kill", task_id="shell-1", reason="superseded")
    p.check(
        "requested", expected=(RESULT, "requested cancellation of task shell-1"), got=killed.said
    )
    await me.ended("x")
    again = await me.call("task_kill", task_id="shell-1")
    p.check(
        "afterwards it had finished",
        expected=(
            RESULT,
            like(r"task shell-1 had already finished \[status: killed, signal: SIGTERM.*\]"),
        ),
        got=again.said,
    )
    said = await read(me, "shell-1", wait=True)
    p.check(
        "which has consumed nothing: the output so far, the signal, the reason",
        expected=(RESULT, like(r"before\n\[status: killed, signal: SIGTERM.*superseded.*\]")),
        got=said,
    )
    events = await p.log.read()
    p.check(
        "the reason is on the log",
        expected=["superseded"],
        got=[
            e.cancel_requested.reason for e in log.named(events, "call.cancel_requested", call="x")
        ],
    )
    p.check(
        "with the harness's notice",
        expected=[texts.CANCEL_NOTICE],
        got=[e.notice.text for e in log.named(events, "harness.notice", call="x")],
    )
    call = await me.agent.get("x")
    p.check(
        "nothing of it is left", expected=[], got=list(call.result.receipt.survivors), kind="leak"
    )
    await me.open("sibling")
    p.check(
        "no sibling is touched",
        expected=(RESULT, "unaffected\n[status: completed]"),
        got=await read(me, "shell-2"),
    )
    done = await me.call("task_kill", task_id="shell-2")
    p.check(
        "a task that has completed",
        expected=(RESULT, "task shell-2 had already finished [status: completed]"),
        got=done.said,
    )
    p.check(
        "unknown",
        expected=(ERROR, "error: unknown task shell-99"),
        got=(await me.call("task_kill", task_id="shell-99")).said,
    )
    p.check(
        "empty id",
        expected=(ERROR, starting("error: invalid task_id: expected")),
        got=(await me.raw("task_kill", '{"task_id": ""}')).said,
    )


@phase("tasks-stopping", TASKS, "kill of what does not want to end", 5)
async def stopping(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    await me.shell(STUBBORN, "x", background=True)
    async for _ in me.agent.output("x", limit=3):
        break
    await me.call("task_kill", task_id="shell-1")
    p.check(
        "meanwhile it is stopping",
        expected=containing("shell-1 [shell] stopping — "),
        got=(await me.call("task_list")).text,
    )
    p.check(
        "for a read too", expected=(RESULT, "up\n[status: stopping]"), got=await read(me, "shell-1")
    )
    end = await me.ended("x")
    p.check(
        "then it is killed",
        expected=(RESULT, like(r"\(no new output\)\n\[status: killed, signal: SIGKILL.*\]")),
        got=await read(me, "shell-1", wait=True),
    )
    signals = [s.signal for s in end.call_ended.result.receipt.signals if s.signal in (15, 9)]
    p.check(
        "TERM first, then KILL",
        expected=[15, 9],
        got=sorted(set(signals), key=signals.index),
        kind="order",
    )
