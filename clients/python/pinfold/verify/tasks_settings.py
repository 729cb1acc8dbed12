"""Settings of the task tools, retention and restarts, on small supervisors of their own:
one cannot make another's forget or restart."""

from __future__ import annotations

import asyncio

from pinfold.client import Client
from pinfold.errors import PinfoldError, UnavailableError
from pinfold.verify import own, texts
from pinfold.verify.actor import ERROR, RESULT, Actor, shown
from pinfold.verify.expect import containing
from pinfold.verify.phase import TASKS, Phase, phase
from pinfold.verify.tasks_output import read


@phase("tasks-settings", TASKS, "settings are checked when they are read", 3)
async def settings(p: Phase) -> None:
    for name, text, words in (
        ("a default above the cap", "waitTimeoutMs = 100\nmaxWaitTimeoutMs = 50", ("100", "50")),
        ("an unknown delivery", 'completionDelivery = "loud"', ("completionDelivery",)),
        ("no wakes", "maxConsecutiveWakes = 0", ("maxConsecutiveWakes",)),
        ("half a wake", "maxConsecutiveWakes = 2.5", ("maxConsecutiveWakes",)),
    ):
        p.check(
            f"{name} does not load, and says why",
            expected=containing(*words),
            got=await _started(text),
        )


async def _started(text: str) -> str:
    try:
        async with own.started(f"[tasks]\n{text}\n"):
            return "it starts"
    except UnavailableError as error:
        return str(error)


@phase("tasks-expired", TASKS, "expired and unknown tasks, ids over a restart", 8)
async def expired(p: Phase) -> None:
    p.note("on a supervisor of its own that keeps two finished calls")
    async with own.started("[retention]\nfinished_calls = 2\n") as small:
        async with Client.connect(state=small.state, token="") as client:
            me = Actor(p, await client.open_agent("owner", surface="tasks"))
            await me.shell("echo kept", "unread", background=True)
            for n in range(4):
                await me.shell(f"echo {n}", f"c{n}", background=True)
                await read(me, f"shell-{n + 2}", wait=True)
        # What is over the bound is forgotten when a supervisor starts, and from time to time.
        await small.stop()
        await asyncio.to_thread(small.start)
        async with Client.connect(state=small.state, token="") as client:
            me = Actor(p, client.agent("owner"))
            said = await _until_expired(p, me, "shell-2")
            p.check(
                "expired is told from unknown",
                expected=(
                    ERROR,
                    "error: task shell-2 has expired: it ended, and its output is no longer kept",
                ),
                got=said,
            )
            p.check(
                "unknown stays unknown",
                expected=(ERROR, "error: unknown task shell-9"),
                got=await read(me, "shell-9"),
            )
            p.check(
                "what was not reported is not dropped",
                expected=(RESULT, "kept\n[status: completed]"),
                got=await read(me, "shell-1"),
            )
            answer = await me.shell("true", "next", background=True)
            p.check(
                "numbers go on after a restart",
                expected="started background task shell-6",
                got=answer.text,
            )
    p.check("nothing is left of it", expected=[], got=small.left, kind="leak")


async def _until_expired(p: Phase, me: Actor, task_id: str) -> tuple[str, str]:
    said = ("", "")
    for _ in range(int(p.patience * 10)):
        try:
            said = await read(me, task_id)
        except PinfoldError as error:
            return "status", str(error)
        if said[0] == ERROR:
            break
        await asyncio.sleep(0.1)
    return said


@phase("tasks-wakeup", TASKS, "notices that wake an idle owner, as an option", 3)
async def wakeup(p: Phase) -> None:
    p.note("on a supervisor of its own with completionDelivery = wakeup and one wake in a row")
    delivery = '[tasks]\ncompletionDelivery = "wakeup"\nmaxConsecutiveWakes = 1\n'
    async with (
        own.started(delivery) as small,
        Client.connect(state=small.state, token="") as client,
    ):
        me = Actor(p, await client.open_agent("owner", surface="tasks"))
        await me.shell("true", "a", background=True)
        notice = texts.task_notice("shell-1", "shell", "true", "completed")
        p.check("it is woken", expected=[notice], got=shown(await me.next_turn()))
        await me.end_turn()
        await me.shell("true", "b", background=True)
        await me.agent.ended("b")
        p.check("within the budget", expected=[], got=shown(await me.next_turn(0.4)))
        await me.user("go on")
        p.check("then passively", expected=2, got=len(await me.next_turn()))
        await me.end_turn()
        await me.shell("true", "c", background=True)
        p.check("input renews the budget", expected=1, got=len(await me.next_turn()))
    p.check("nothing is left of it", expected=[], got=small.left, kind="leak")
