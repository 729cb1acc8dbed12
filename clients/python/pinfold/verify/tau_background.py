"""Into the background: the placeholder, and the prompt when the call has completed."""

from __future__ import annotations

from pinfold.v1 import agent_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, NOTICE, PLACEHOLDER, RESULT, shown
from pinfold.verify.expect import between
from pinfold.verify.phase import TAU, Phase, phase


@phase("background", TAU, "background placeholder and completion prompt", 5)
async def background(p: Phase) -> None:
    me = await p.agent()
    answer = await me.shell("sleep 3.5; echo done", "x")
    p.check("placeholder kind", expected=PLACEHOLDER, got=answer.kind)
    p.check("placeholder text", expected=texts.placeholder("x"), got=answer.text)
    await me.end_turn("I go on when it is done")

    started = await me.happened("call.started", "x")
    moved = await me.happened("call.backgrounded", "x")
    after = moved.time.ToNanoseconds() / 1e9 - started.time.ToNanoseconds() / 1e9
    p.check(
        "after about 2 s of execution",
        expected=between(1.9, 12),
        got=round(after, 2),
        kind="timing",
    )
    if after > 3:
        p.note(f"the placeholder came after {after:.1f} s", "timing")

    p.route("completion prompt")
    prompts = await me.next_turn()
    p.check(
        "an idle agent is woken by it",
        expected=[texts.notice("x")],
        got=shown(prompts),
        kind="missed prompt",
    )
    kinds = [
        (prompt.kind, prompt.internal, prompt.activating, prompt.call_id) for prompt in prompts
    ]
    p.check(
        "it is typed, internal and activating",
        expected=[(NOTICE, True, True, "x")],
        got=kinds,
        confirms="hidden",
    )
    call = await me.agent.get("x")
    p.check("it consumes nothing", expected=False, got=call.consumed)

    p.route("wait after the completion prompt")
    waited = await me.wait("x")
    p.check("the result is still there", expected=(RESULT, texts.out("done")), got=waited.said)
    again = await me.wait("x")
    p.check("once", expected=(ERROR, texts.consumed("x")), got=again.said, confirms="once")
    p.check("nothing more comes", expected=[], got=shown(await me.take()), kind="duplicate prompt")

    p.route("event log of a background call")
    events = await p.log.read()
    p.check(
        "the order of its events",
        expected=[
            "call.queued",
            "call.starting",
            "call.started",
            "call.backgrounded",
            "tool.background_result",
            "prompt.queued",
        ],
        got=[
            e.name
            for e in events
            if (e.call_id == "x" or _is_notice(e))
            and e.name != "call.output"
            and not e.name.startswith("wait.")
        ],
        kind="order",
    )
    ends, prompts_of_it = log.terminals(events, me.id, "x"), log.notices(events, me.id, "x")
    p.check(
        "its end and its prompt are one decision",
        expected=[e.decision_revision for e in ends],
        got=[e.decision_revision for e in prompts_of_it],
    )
    p.check("one prompt", expected=1, got=len(log.notices(events, me.id)), kind="duplicate prompt")
    p.check(
        "a prompt that was delivered is not taken back",
        expected=0,
        got=len(log.named(events, "prompt.suppressed", agent=me.id)),
    )


def _is_notice(event: log.Event) -> bool:
    return (
        event.name == "prompt.queued"
        and event.prompt_queued.prompt.kind == agent_pb2.PROMPT_KIND_NOTICE
    )


@phase("background-at-once", TAU, "into the background at once", 2)
async def background_at_once(p: Phase) -> None:
    me = await p.agent()
    answer = await me.shell("echo at once", "x", background=True)
    p.check("placeholder", expected=(PLACEHOLDER, texts.placeholder("x")), got=answer.said)
    await me.noticed("x")
    p.check(
        "delivered during the turn, between tool rounds",
        expected=[texts.notice("x")],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    waited = await me.wait("x")
    p.check("and collected", expected=(RESULT, texts.out("at once")), got=waited.said)

    p.route("a tool call that is sent again")
    again = await me.shell("echo at once", "x", background=True)
    p.check("the same answer", expected=answer.said, got=again.said)
    events = await p.log.read()
    p.check("it ran once", expected=1, got=len(log.named(events, "call.starting", call="x")))
    same = await me.wait("x", id="w")
    repeat = await me.wait("x", id="w")
    p.check("a refusal is a refusal again", expected=same.said, got=repeat.said)

    p.route("background errors")
    await me.shell("pwd", "bad", background=True, cwd="/no/such/directory")
    await me.ended("bad")
    failed = await me.wait("bad")
    p.check("an error is collected as an error", expected=ERROR, got=failed.kind)
    p.check(
        "with its message and details",
        expected=True,
        got=failed.text.startswith("error: failed to start shell command: ")
        and "\ntermination_reason: start_error" in failed.text,
    )
    ends = [e.name for e in log.terminals(await p.log.read(), me.id, "bad")]
    p.check("one background error event", expected=["tool.background_error"], got=ends)
