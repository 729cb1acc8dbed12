"""When a completion prompt is not shown: before the end, while it is pending; and when it is."""

from __future__ import annotations

from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT, Actor, shown
from pinfold.verify.phase import TAU, Phase, phase


@phase("suppression", TAU, "wait suppression", 4)
async def suppression(p: Phase) -> None:
    me = await p.agent()

    p.route("suppression: a wait before the end")
    await me.gated("x")
    waiting = await me.parked("wait", "w", tool_call_id="x")
    await me.open("x")
    p.check("the wait gets it", expected=(RESULT, texts.out("done")), got=(await waiting).said)
    events = await p.log.read()
    p.check(
        "no prompt is ever queued",
        expected=[],
        got=log.notices(events, me.id, "x"),
        kind="duplicate prompt",
    )
    p.check(
        "the end is recorded all the same",
        expected=["tool.background_result"],
        got=[e.name for e in log.terminals(events, me.id, "x")],
    )

    p.route("suppression: a pending prompt")
    await me.finished("y")
    prompt = (await me.noticed("y")).prompt_queued.prompt.prompt_id
    waited = await me.wait("y")
    p.check("the wait gets it", expected=(RESULT, texts.out("done")), got=waited.said)
    events = await p.log.read()
    taken_back = [
        e.prompt_suppressed.prompt_id for e in log.named(events, "prompt.suppressed", agent=me.id)
    ]
    p.check("the prompt is taken back", expected=[prompt], got=taken_back)
    p.check(
        "the model never sees it", expected=[], got=shown(await me.take()), kind="duplicate prompt"
    )
    await me.end_turn()
    p.check(
        "nor is it woken by it",
        expected=[],
        got=shown(await me.next_turn(0.3)),
        kind="duplicate prompt",
    )

    p.route("suppression: already delivered")
    await me.finished("z")
    p.check(
        "the prompt is delivered",
        expected=[texts.notice("z")],
        got=shown(await me.next_turn()),
        kind="missed prompt",
    )
    p.check(
        "a later wait works", expected=(RESULT, texts.out("done")), got=(await me.wait("z")).said
    )
    p.check(
        "once",
        expected=(ERROR, texts.consumed("z")),
        got=(await me.wait("z")).said,
        confirms="once",
    )
    events = await p.log.read()
    p.check(
        "and takes nothing back",
        expected=1,
        got=len(log.named(events, "prompt.suppressed", agent=me.id)),
    )

    p.route("suppression: a bare wait")
    await me.gated("v")
    waiting = await me.parked("wait", "w2")
    await me.open("v")
    await waiting
    p.check(
        "no prompt is ever queued",
        expected=[],
        got=log.notices(await p.log.read(), me.id, "v"),
        kind="duplicate prompt",
    )


@phase("restored-notices", TAU, "completion prompts that come back", 4)
async def restored(p: Phase) -> None:
    me = await p.agent()

    p.route("a wait that is interrupted")
    await me.gated("x")
    waiting = await me.parked("wait", "w", tool_call_id="x")
    await me.user("something else")
    p.check(
        "is interrupted", expected="interrupted", got=(await waiting).headers.get("wait_outcome")
    )
    await me.take()
    await me.open("x")
    await me.noticed("x")
    p.check(
        "the prompt comes when the call ends, once",
        expected=[texts.notice("x")],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    p.check(
        "the retry delivers", expected=(RESULT, texts.out("done")), got=(await me.wait("x")).said
    )

    p.route("a wait whose client is gone")
    await me.gated("y")
    waiting = await me.parked("wait", "w2", tool_call_id="y")
    waiting.cancel()
    gone = await me.wait_settled("w2")
    p.check(
        "consumes nothing",
        expected=("cancelled", []),
        got=(gone.wait_settled.outcome, list(gone.wait_settled.consumed_call_ids)),
    )
    await me.open("y")
    await me.noticed("y")
    p.check(
        "and the prompt comes, once",
        expected=[texts.notice("y")],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    p.check(
        "the result is still there",
        expected=(RESULT, texts.out("done")),
        got=(await me.wait("y")).said,
    )

    for name, end in (("w4", "interrupted"), ("w5", "cancelled")):
        await _ended_while_covered(p, me, name, end)

    p.route("a prompt that was delivered")
    await me.finished("z")
    await me.noticed("z")
    await me.take()
    await me.gated("held")
    waiting = await me.parked("wait", "w3", tool_call_ids=["z", "held"])
    waiting.cancel()
    await me.wait_settled("w3")
    p.check(
        "is not repeated",
        expected=1,
        got=len(log.notices(await p.log.read(), me.id, "z")),
        kind="duplicate prompt",
    )
    await me.cancel("held")


async def _ended_while_covered(p: Phase, me: Actor, wait_id: str, end: str) -> None:
    """A member of a set ends, silently; then the wait ends without the result."""
    p.route(f"a call that ended while it was covered, wait {end}")
    member, held = f"member-{end}", f"held-{end}"
    await me.gated(member)
    await me.gated(held)
    waiting = await me.parked("wait", wait_id, tool_call_ids=[member, held])
    await me.open(member)
    silent = log.notices(await p.log.read(), me.id, member)
    p.check("no prompt while it is covered", expected=[], got=silent, kind="duplicate prompt")
    if end == "interrupted":
        await me.user("something else")
        await waiting
    else:
        waiting.cancel()
    await me.wait_settled(wait_id)
    await me.noticed(member)
    prompts = [t for t in shown(await me.take()) if t != "something else"]
    p.check(
        "then it comes, once",
        expected=[texts.notice(member)],
        got=prompts,
        kind="missed prompt",
    )
    p.check(
        "with its result", expected=(RESULT, texts.out("done")), got=(await me.wait(member)).said
    )
    await me.cancel(held)
    await me.wait(held)
