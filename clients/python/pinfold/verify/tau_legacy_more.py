"""The legacy form of agent_start, phases 5 to 7: isolation, duration, inner-tool leaks."""

from __future__ import annotations

import asyncio
import time

from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT, WATCH_ANSWER, shown
from pinfold.verify.expect import between
from pinfold.verify.phase import TAU, Phase, phase
from pinfold.verify.tau_agents import start
from pinfold.verify.tau_legacy import SLEEPS, canceled, delegate, sleeping


@phase("delegate-isolation", TAU, "sibling isolation", 4)
async def isolation(p: Phase) -> None:
    me = await p.agent()
    target, survivor = await asyncio.gather(
        delegate(p, me, "target", SLEEPS),
        delegate(p, me, "survivor", "shell sleep 1\nfinal FINAL cancel-survivor unaffected"),
    )
    await me.cancel("target")
    answers = await asyncio.gather(me.call("wait", tool_call_ids=["target", "survivor"]))
    results = {r.call_id: (r.error, r.answer) for r in answers[0].message.wait.results}
    p.check(
        "the target is cancelled, the survivor answers",
        expected={
            "target": ("Tool call canceled", ""),
            "survivor": ("", "FINAL cancel-survivor unaffected"),
        },
        got=results,
    )
    p.check(
        "no cross-talk between ids",
        expected={"target": target.sub, "survivor": survivor.sub},
        got={r.call_id: r.sub_agent_id for r in answers[0].message.wait.results},
    )

    p.route("sibling isolation with shells and watched agents")
    watched = await start(p, me, "await_message\nfinal still here")
    await me.gated("shell-sibling")
    await delegate(p, me, "other", SLEEPS)
    await me.cancel("other")
    await me.ended("other")
    await me.message(watched, "there?")
    await me.queued(WATCH_ANSWER, "the watched agent's answer", body="still here")
    await me.open("shell-sibling")
    p.check(
        "both are unaffected",
        expected=(RESULT, texts.out("done")),
        got=(await me.wait("shell-sibling")).said,
    )


@phase("delegate-duration", TAU, "slow delegate duration", 7)
async def duration(p: Phase) -> None:
    me = await p.agent()
    one = await delegate(p, me, "slow", SLEEPS)
    await asyncio.sleep(6)
    await me.cancel("slow")
    waited = await me.wait("slow")
    p.check("cancelled", expected=(ERROR, canceled(me, one)), got=waited.said)
    seconds = int(waited.headers.get("duration_seconds", "0"))
    p.check(
        "duration_seconds, in whole seconds",
        expected=between(6, 20),
        got=seconds,
        kind="timing",
        confirms="slow-duration",
    )


@phase("delegate-leak", TAU, "inner-tool leak", 15)
async def leak(p: Phase) -> None:
    me = await p.agent()
    one = await delegate(
        p,
        me,
        "d",
        "shell sleep 12\nwait 1\n"
        "final UNEXPECTED cancel-inner-tool-leak completed without cancellation",
    )
    inner = f"{one.sub}-call-1"
    await sleeping(p, one)
    begun = time.monotonic()
    worker = (await p.client.agent(one.sub).info()).worker_pid
    shell = (await p.client.agent(one.sub).get(inner)).pid
    await me.cancel("d")
    waited = await me.wait("d")
    p.check("cancelled", expected=(ERROR, canceled(me, one)), got=waited.said)
    alive = [await p.is_alive(str(pid)) for pid in (worker, shell)]
    p.check(
        "neither its worker nor its shell runs on", expected=[False, False], got=alive, kind="leak"
    )
    # The sleep had run for 2 s: watch until after it would have ended.
    while (left := begun + 11.5 - time.monotonic()) > 0:
        prompts = await me.agent.take_prompts()
        if prompts.prompts:
            break
        await asyncio.sleep(min(left, 0.5))
    events = await p.log.read()
    stray = [
        e.prompt_queued.prompt.text
        for e in log.named(events, "prompt.queued", agent=me.id)
        if "completed" in e.prompt_queued.prompt.text
        and e.prompt_queued.prompt.text != texts.notice("d")
    ]
    p.check("no stray completion prompt", expected=[], got=stray, kind="leak", confirms="no-leak")
    p.check("nothing else either", expected=[], got=shown(await me.take()), kind="leak")
    p.check(
        "the inner call ended once, with its delegate",
        expected=["tool.background_error"],
        got=[e.name for e in log.terminals(events, one.sub, inner)],
        kind="leak",
    )
    p.check(
        "it is unknown to the parent",
        expected=(ERROR, texts.unknown(inner)),
        got=(await me.wait(inner)).said,
    )
    p.check(
        "a bare wait finds nothing",
        expected=(ERROR, texts.NOTHING_TO_WAIT_FOR),
        got=(await me.wait()).said,
        kind="leak",
        confirms="no-leak",
    )
    agent = await me.agent.info()
    p.check("no prompt is pending", expected=0, got=agent.pending_prompts, kind="leak")


@phase("agent-stop", TAU, "a stopped agent and what is below it", 5)
async def stop(p: Phase) -> None:
    me = await p.agent()
    await me.gated("mine")
    sub = await start(
        p, me, f"shell sleep 60\nagent {p.role}\n  shell sleep 60\n  await_message\nawait_message"
    )
    started = await p.log.until(
        lambda e: e.name == "agent.started" and e.agent_opened.parent_id == sub, "its own sub-agent"
    )
    deep = started.agent_id
    await p.log.until(lambda e: log.is_named(e, "call.backgrounded", agent=deep), "its call")
    pids = [c.pid for c in await p.client.list_calls(agent_id=deep)]
    pids += [c.pid for c in await p.client.list_calls(agent_id=sub)]
    stopped = await p.client.agent(sub).stop(reason="verify", grace=1.0)
    p.check(
        "one receipt for all of it",
        expected=(2, 2, []),
        got=(stopped.ended_calls, stopped.stopped_agents, list(stopped.receipt.surviving_pids)),
        kind="leak",
    )
    alive = [pid for pid in pids if await p.is_alive(str(pid))]
    p.check("nothing of it runs on", expected=[], got=alive, kind="leak")
    p.check(
        "nothing of it comes to its parent",
        expected=[],
        got=log.notices(await p.log.read(), me.id),
        kind="leak",
    )
    await me.open("mine")
    await me.take()
    p.check(
        "nothing above it is touched",
        expected=(RESULT, texts.out("done")),
        got=(await me.wait("mine")).said,
    )
