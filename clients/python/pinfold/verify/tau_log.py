"""What people see: the log without the prompts that are for models only; its own rules."""

from __future__ import annotations

from pinfold.verify import log, texts
from pinfold.verify.actor import NOTICE, USER
from pinfold.verify.phase import TAU, Phase, phase


@phase("hidden-prompts", TAU, "UI hides completion prompts", 2)
async def hidden(p: Phase) -> None:
    me = await p.agent()
    await me.finished("x")
    await me.noticed("x")
    seen = log.named(await p.log.read(internal=False), "prompt.queued", agent=me.id)
    by_kind = {e.prompt_queued.prompt.kind: e.prompt_queued.prompt for e in seen}
    notice = by_kind.get(NOTICE)
    p.require("the prompt is on the log", expected=True, got=notice is not None)
    if notice is not None:
        p.check(
            "marked as internal by its type", expected=True, got=notice.internal, confirms="hidden"
        )
        p.check(
            "without its text, for people",
            expected=("", ""),
            got=(notice.text, notice.body),
            confirms="hidden",
        )
    user = by_kind.get(USER)
    p.check(
        "a user's own prompt is not hidden",
        expected=(False, f"verify {p.spec.name}"),
        got=None if user is None else (user.internal, user.text),
    )
    full = log.notices(await p.log.read(), me.id)
    p.check(
        "shown to who asks for it",
        expected=[texts.notice("x")],
        got=[e.prompt_queued.prompt.text for e in full],
    )


@phase("event-log", TAU, "event log", 3)
async def event_log(p: Phase) -> None:
    me = await p.agent()
    await me.finished("x")
    await me.wait("x", id="w")
    first = await p.log.read()
    revisions = [e.revision for e in first]
    p.check("revisions increase", expected=sorted(set(revisions)), got=revisions, kind="order")
    p.check(
        "a decision's events are together, its first names it",
        expected=True,
        got=all(e.decision_revision <= e.revision for e in first),
        kind="order",
    )
    middle = revisions[len(revisions) // 2]
    resumed = [e.revision async for e in p.client.events(middle, agents=[me.id], stop_at_end=True)]
    p.check(
        "resuming misses and repeats nothing",
        expected=[r for r in revisions if r >= middle],
        got=resumed,
    )
    p.check(
        "a consumed result is on it once",
        expected=1,
        got=log.consumers(first, me.id, "x"),
        confirms="once",
    )
    settled = log.settled(first, me.id, "w")
    p.check(
        "the wait's end names what it took",
        expected=[("any", "result", ["x"])],
        got=[
            ("any", e.wait_settled.outcome, list(e.wait_settled.consumed_call_ids)) for e in settled
        ],
    )

    p.route("snapshot")
    await me.gated("live")
    calls: set[str] = set()
    agents: set[str] = set()
    async for response in p.client.watch(0, agents=[me.id], stop_at_end=True):
        calls |= {call.call_id for call in response.snapshot.calls}
        agents |= {agent.agent_id for agent in response.snapshot.agents}
        if response.HasField("bookmark"):
            break
    p.check(
        "the live state, closed by a bookmark",
        expected=({me.id}, True),
        got=(agents, "live" in calls),
    )
    await me.cancel("live")
    await me.ended("live")
