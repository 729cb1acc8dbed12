"""The legacy form of agent_start (mode "call"), phases 1 to 3: a delegate that is a
background call, cancellable by its tool_call_id."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pinfold.v1 import agent_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, MESSAGE, PLACEHOLDER, RESULT, Actor, Answer, shown
from pinfold.verify.expect import in_any_order, like
from pinfold.verify.phase import TAU, Phase, phase

SLEEPS = "shell sleep 60\nwait 1\nfinal UNEXPECTED completed without cancellation"


@dataclass(frozen=True, slots=True)
class Delegate:
    """`id` is the tool_call_id, which `cancel` wants; `sub` the sub-agent."""

    id: str
    sub: str
    answer: Answer


async def delegate(p: Phase, me: Actor, id: str, script: str) -> Delegate:
    answer = await me.call("agent_start", id, prompt=script, role=p.role, mode="call")
    sub = answer.message.agent_start.sub_agent_id
    p.require(f"{id} is a background call", expected=PLACEHOLDER, got=answer.kind)
    return Delegate(id, sub, answer)


def canceled(me: Actor, one: Delegate, first: str = "", duration: str = r"\d+") -> like:
    """The text of a cancelled delegate; `first` is a header that a bare wait adds."""
    return like(
        rf"error: Tool call canceled\n{first}self_agent_id: {me.id}\nsub_agent_id: {one.sub}"
        rf"(\nduration_seconds: {duration})?"
    )


async def sleeping(p: Phase, one: Delegate) -> None:
    """The delegate's own shell is in the background."""
    await p.log.until(
        lambda e: log.is_named(e, "call.backgrounded", agent=one.sub), "its inner call"
    )


@phase("delegate-happy-path", TAU, "running delegate", 5)
async def happy_path(p: Phase) -> None:
    me = await p.agent()
    one = await delegate(
        p,
        me,
        "d",
        "await_message\n"
        "message {body:parent_id} READY cancel-ready-probe: entering long sleep\n"
        "shell sleep 60\nwait 1\n"
        "final UNEXPECTED cancel-ready-probe completed without cancellation",
    )
    p.check(
        "the placeholder",
        expected=texts.agent_placeholder("d", me.id, one.sub),
        got=one.answer.text,
        confirms="placeholder-target",
    )
    p.check(
        "self_agent_id",
        expected=me.id,
        got=one.answer.headers.get("self_agent_id"),
        confirms="agent-ids",
    )
    await me.message(one.sub, f"BOOTSTRAP parent_id={me.id}")
    ready = await me.queued(MESSAGE, "READY", body="READY")
    p.check(
        "READY, exactly",
        expected="READY cancel-ready-probe: entering long sleep",
        got=ready.prompt_queued.prompt.body,
    )
    await me.take()
    await sleeping(p, one)
    p.check(
        "cancel says exactly that",
        expected=(RESULT, texts.CANCEL_REQUESTED),
        got=(await me.cancel("d")).said,
        confirms="cancel-text",
    )
    waited = await me.wait("d")
    p.check("the cancelled end", expected=(ERROR, canceled(me, one)), got=waited.said)
    p.check(
        "collected once",
        expected=(ERROR, texts.consumed("d")),
        got=(await me.wait("d")).said,
        confirms="once",
    )
    p.check(
        "cancelled once", expected=(ERROR, texts.ALREADY_CANCELED), got=(await me.cancel("d")).said
    )
    p.check(
        "the delegate is stopped",
        expected=agent_pb2.AGENT_STATE_STOPPED,
        got=(await p.client.agent(one.sub).info()).state,
        kind="leak",
    )

    p.route("event log of a cancelled delegate")
    events = await p.log.read()
    p.check(
        "its background error",
        expected=[("tool.background_error", "Tool call canceled")],
        got=[(e.name, e.call_ended.result.error) for e in log.terminals(events, me.id, "d")],
    )
    p.check(
        "harness.notice",
        expected=[texts.CANCEL_NOTICE],
        got=[e.notice.text for e in log.named(events, "harness.notice", agent=me.id)],
    )
    inner = [e.name for e in log.terminals(events, one.sub, f"{one.sub}-call-1")]
    p.check(
        "its inner call ended with it", expected=["tool.background_error"], got=inner, kind="leak"
    )


@phase("delegate-wait", TAU, "no-arg wait and wait suppression", 4)
async def no_arg_wait(p: Phase) -> None:
    me = await p.agent()
    p.route("no-arg wait")
    one = await delegate(p, me, "second", SLEEPS)
    await me.cancel("second")
    waited = await me.wait()
    p.check(
        "collects the cancelled delegate, by name",
        expected=(ERROR, canceled(me, one, "original_tool_call_id: second\n")),
        got=waited.said,
    )

    p.route("wait suppression")
    one = await delegate(p, me, "third", SLEEPS)
    cancelled, waited = await asyncio.gather(me.cancel("third"), me.wait("third"))
    p.check(
        "cancel and wait in parallel",
        expected=[(RESULT, texts.CANCEL_REQUESTED), (ERROR, canceled(me, one))],
        got=[cancelled.said, waited.said],
    )
    await me.ended("third")
    p.check(
        "no completion prompt is delivered",
        expected=[],
        got=[t for t in shown(await me.take()) if "completed" in t],
        kind="duplicate prompt",
    )
    one = await delegate(p, me, "fourth", SLEEPS)
    waiting = await me.parked("wait", "w", tool_call_id="fourth")
    await me.cancel("fourth")
    await waiting
    p.check(
        "none is queued when the wait was there first",
        expected=[],
        got=log.notices(await p.log.read(), me.id, "fourth"),
        kind="duplicate prompt",
    )


@phase("delegate-targets", TAU, "completed delegate", 3)
async def targets(p: Phase) -> None:
    me = await p.agent()
    await delegate(p, me, "done", "final FINAL cancel-completed-probe normal completion")
    await me.noticed("done")
    p.check(
        "the completion prompt arrives",
        expected=[texts.notice("done")],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    p.check(
        "it is done",
        expected=(ERROR, texts.ALREADY_DONE),
        got=(await me.cancel("done")).said,
        confirms="done-or-unknown",
    )
    p.check(
        "its answer is still available",
        expected=(RESULT, "FINAL cancel-completed-probe normal completion"),
        got=(await me.wait("done")).said,
    )
    p.check(
        "once",
        expected=(ERROR, texts.consumed("done")),
        got=(await me.wait("done")).said,
        confirms="once",
    )

    p.route("sub_agent_id of a delegate")
    one = await delegate(p, me, "live", SLEEPS)
    p.check(
        "is no target",
        expected=(ERROR, texts.unknown_target(one.sub)),
        got=(await me.cancel(one.sub)).said,
        confirms="placeholder-target",
    )

    p.route("duplicate cancel of a delegate")
    pair = await asyncio.gather(me.cancel("live"), me.cancel("live"))
    p.check(
        "one success, one error",
        expected=in_any_order([(RESULT, texts.CANCEL_REQUESTED), (ERROR, texts.ALREADY_CANCELED)]),
        got=[answer.said for answer in pair],
    )
    p.check("cancelled", expected=(ERROR, canceled(me, one)), got=(await me.wait("live")).said)
