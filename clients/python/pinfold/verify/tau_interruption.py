"""Activating input and waits: exact headers, no id, no payload, and nothing is lost."""

from __future__ import annotations

from pinfold.v1 import call_service_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import MESSAGE, RESULT, Actor, Answer, shown
from pinfold.verify.expect import like, without
from pinfold.verify.phase import TAU, Phase, phase

NONCE = "the-nonce-7f3a"


def _check_text(p: Phase, answer: Answer, mode: str, *ids: str) -> None:
    p.check("it is a success", expected=RESULT, got=answer.kind)
    p.check(
        "exactly these headers, then optional prose",
        expected=texts.interrupted(mode),
        got=answer.text.partition("\n\n")[0],
    )
    p.check(
        "neither an id nor the input",
        expected=without(NONCE, "\r", *(f"`{i}`" for i in ids), *ids),
        got=answer.text,
    )
    p.check(
        "and as fields",
        expected=(call_service_pb2.WAIT_OUTCOME_INTERRUPTED, []),
        got=(answer.message.wait.outcome, list(answer.message.wait.results)),
    )


@phase("interruption", TAU, "interruption of an exact wait", 4)
async def interruption(p: Phase) -> None:
    me = await p.agent()
    await me.gated("call-target")
    waiting = await me.parked("wait", "w", tool_call_id="call-target")
    sent = await me.message(me.id, NONCE)
    answer = await waiting
    _check_text(p, answer, "exact", "call-target", sent.id)
    call = await me.agent.get("call-target")
    p.check("the call runs on", expected=False, got=call.HasField("ended_at"))

    p.route("input before a retry of the wait")
    again = await me.wait("call-target")
    p.check(
        "input that is queued interrupts at once",
        expected="interrupted",
        got=again.headers.get("wait_outcome"),
    )
    events = await p.log.read()
    p.check("without an installed wait", expected=[], got=log.installed(events, me.id, again.id))
    prompts = await me.take()
    p.check(
        "the message is delivered",
        expected=[texts.message_prompt(me.id, NONCE)],
        got=shown(prompts),
        kind="missed prompt",
    )

    p.route("retry after an interruption")
    await me.open("call-target")
    await me.noticed("call-target")
    retried = await me.wait("call-target")
    p.check("delivers", expected=(RESULT, texts.out("done")), got=retried.said)
    p.check(
        "once",
        expected=("error", texts.consumed("call-target")),
        got=(await me.wait("call-target")).said,
        confirms="once",
    )

    p.route("event log of an interruption")
    events = await p.log.read()
    message = log.queued(events, me.id, MESSAGE)[0]
    settled = log.settled(events, me.id, "w")[0]
    created = log.delivered(events, me.id, message.prompt_queued.prompt.prompt_id)
    p.check(
        "message, then the wait's result, then the prompt",
        expected=True,
        kind="order",
        got=message.revision < settled.revision < (created[0].revision if created else 0),
    )
    p.check("one decision", expected=message.decision_revision, got=settled.decision_revision)
    p.check(
        "nothing consumed",
        expected=("interrupted", []),
        got=(settled.wait_settled.outcome, list(settled.wait_settled.consumed_call_ids)),
    )


@phase("interruption-modes", TAU, "interruption of bare and set waits", 3)
async def modes(p: Phase) -> None:
    me = await p.agent()
    await me.gated("call-a")
    await me.gated("call-b")

    p.route("interruption of a bare wait")
    waiting = await me.parked("wait", "w1")
    await me.user(NONCE)
    _check_text(p, await waiting, "any_background", "call-a", "call-b")
    await me.take()

    p.route("interruption of a set")
    waiting = await me.parked("wait", "w2", tool_call_ids=["call-a", "call-b"])
    await me.user(NONCE)
    _check_text(p, await waiting, "exact_all", "call-a", "call-b")
    await me.take()

    p.route("one activation for all waits")
    exact = await me.parked("wait", "w3", tool_call_id="call-a")
    bare = await me.parked("wait", "w4")
    inputs = await me.parked("wait", "w5", timeout_minutes=5)
    await me.message(me.id, NONCE)
    said = [
        (await exact).headers.get("wait_mode"),
        (await bare).headers.get("wait_mode"),
        (await inputs).text,
    ]
    p.check(
        "settles each in its way",
        expected=["exact", "any_background", texts.INPUT_AVAILABLE],
        got=said,
    )
    prompts = await me.take()
    p.check(
        "and is delivered once",
        expected=[texts.message_prompt(me.id, NONCE)],
        got=shown(prompts),
        kind="duplicate prompt",
    )

    p.route("what does not interrupt")
    waiting = await me.parked("wait", "w6", tool_call_id="call-a")
    await me.agent.send_prompt("for later", passive=True)
    await me.shell("true")
    other = await p.agent()
    await other.user("for somebody else")
    p.check(
        "passive input, a foreground sibling, another agent's input",
        expected=[],
        got=log.settled(await p.log.read(), me.id, "w6"),
    )
    await me.open("call-a")
    p.check(
        "the wait gets its result", expected=(RESULT, texts.out("done")), got=(await waiting).said
    )
    await me.open("call-b")
    await me.wait("call-b")


@phase("interruption-notices", TAU, "interruption by another call's prompt", 3)
async def by_notice(p: Phase) -> None:
    me = await p.agent()
    await me.gated("x", "ex")
    await me.gated("y", "why")
    waiting = await me.parked("wait", "w", tool_call_id="x")
    await me.open("y")
    answer = await waiting
    _check_text(p, answer, "exact", "Tool call")
    p.check(
        "the other is still there",
        expected=(RESULT, texts.out("why")),
        got=(await me.wait("y")).said,
    )

    p.route("a ready result and queued input")
    await me.open("x")
    await me.noticed("x")
    await me.finished("z", "zed")
    await me.noticed("z")
    p.check(
        "its own prompt does not interrupt, a ready result goes first",
        expected=(RESULT, texts.out("ex")),
        got=(await me.wait("x")).said,
    )
    p.check(
        "the other prompt stays",
        expected=[texts.notice("z")],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    p.check("with its result", expected=(RESULT, texts.out("zed")), got=(await me.wait("z")).said)
    await _own_notice(p, me)


async def _own_notice(p: Phase, me: Actor) -> None:
    p.route("a wait's own call ends")
    await me.gated("v")
    waiting = await me.parked("wait", "w2", tool_call_id="v")
    await me.open("v")
    answer = await waiting
    p.check(
        "it is its result, no interruption", expected=(RESULT, texts.out("done")), got=answer.said
    )
    p.check("text in plain lines", expected=like(r"[^\r]*"), got=answer.text)
