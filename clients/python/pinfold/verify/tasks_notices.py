"""Completion notices on the tasks surface: passive, to the owner, suppressed when reported."""

from __future__ import annotations

from pinfold.verify import log, texts
from pinfold.verify.actor import NOTICE, RESULT, USER, Actor, shown
from pinfold.verify.phase import TASKS, Phase, phase
from pinfold.verify.tasks_output import read


@phase("tasks-notices", TASKS, "passive completion notices", 3)
async def notices(p: Phase) -> None:
    me = await p.agent(surface="tasks")
    await me.end_turn()
    await me.shell("echo noted; exit 4", "x", background=True)
    await me.noticed("x")
    p.check("it wakes nobody", expected=[], got=shown(await me.next_turn(0.4)))
    await me.user("go on")
    text = texts.task_notice("shell-1", "shell", "echo noted; exit 4", "completed, exit code: 4")
    prompts = await me.next_turn()
    p.check(
        "it is context of the next request, exactly",
        expected=[(NOTICE, False, True, text), (USER, True, False, "go on")],
        got=[(q.kind, q.activating, q.internal, q.text) for q in prompts],
        kind="missed prompt",
    )
    p.check(
        "the output is still to be read",
        expected=(RESULT, "noted\n[status: completed, exit code: 4]"),
        got=await read(me, "shell-1"),
    )
    p.check(
        "one notice",
        expected=1,
        got=len(log.notices(await p.log.read(), me.id)),
        kind="duplicate prompt",
    )

    p.route("a passive notice and waits")
    waiting = await me.parked("wait", "w", timeout_minutes=5)
    await me.finished("y")
    await me.noticed("y")
    p.check("it interrupts none", expected=[], got=log.settled(await p.log.read(), me.id, "w"))
    await me.user("input")
    p.check("input does", expected=texts.INPUT_AVAILABLE, got=(await waiting).text)

    p.route("notices go to the exact owner")
    other = await p.agent(surface="tasks")
    await other.finished("z")
    await other.noticed("z")
    p.check(
        "to nobody else",
        expected=([], 1),
        got=(
            log.notices(await p.log.read(), me.id, "z"),
            len(log.notices(await p.log.read(), other.id, "z")),
        ),
        kind="leak",
    )


@phase("tasks-reported", TASKS, "notices of what was reported", 4)
async def reported(p: Phase) -> None:
    me = await p.agent(surface="tasks")

    p.route("a kill by its owner")
    await me.gated("a")
    await me.call("task_kill", task_id="shell-1")
    await _silent(p, me, "a")

    p.route("a waiting read")
    await me.gated("b")
    waiting = me.begin("task_output", task_id="shell-2", wait=True, timeout_ms=60_000)
    await me.call("task_list")
    await me.open("b")
    if (await waiting).text.endswith("[status: running]"):
        await read(me, "shell-2", wait=True)
    events = await p.log.read()
    pending = [
        e
        for e in log.notices(events, me.id, "b")
        if not log.named(events, "prompt.suppressed", agent=me.id)
    ]
    p.check("no notice is left of it", expected=[], got=pending, kind="duplicate prompt")

    p.route("a terminal read before delivery")
    await me.finished("c")
    prompt = (await me.noticed("c")).prompt_queued.prompt.prompt_id
    await read(me, "shell-3")
    taken_back = [
        e.prompt_suppressed.prompt_id
        for e in log.named(await p.log.read(), "prompt.suppressed", agent=me.id)
    ]
    p.check("takes the notice back", expected=True, got=prompt in taken_back)
    p.check(
        "nothing is delivered", expected=[], got=shown(await me.take()), kind="duplicate prompt"
    )

    p.route("a read of an end that was reported before")
    end = [e.call_ended.reported for e in log.terminals(await p.log.read(), me.id, "a")]
    p.check("the terminal event says that it was reported", expected=[True], got=end)

    p.route("a kill by somebody else")
    await me.gated("d")
    await p.client.agent(me.id).task_kill("shell-4", reason="operator")
    await me.ended("d")
    await me.noticed("d")
    prompts = await me.take()
    p.check("is news to the owner", expected=1, got=len(prompts), kind="missed prompt")


async def _silent(p: Phase, me: Actor, call_id: str) -> None:
    await me.ended(call_id)
    p.check(
        "makes no notice",
        expected=[],
        got=log.notices(await p.log.read(), me.id, call_id),
        kind="duplicate prompt",
    )
