"""Turns: delivery, and a user who cancels one."""

from __future__ import annotations

from pinfold.verify import log, texts
from pinfold.verify.actor import CANCELLED, ERROR, NOTICE, RESULT, USER, shown
from pinfold.verify.expect import starting
from pinfold.verify.phase import TAU, Phase, phase


@phase("turns", TAU, "turns and delivery", 3)
async def turns(p: Phase) -> None:
    me = await p.agent(turn=False)
    p.check("no turn without input", expected=[], got=await me.next_turn(0.2))
    await me.user("one")
    await me.user("two")
    p.check(
        "a turn begins with all that is pending",
        expected=["one", "two"],
        got=shown(await me.next_turn()),
    )

    p.route("a driver that is replaced")
    successor = await p.client.agent(me.id).next_turn(p.patience)
    p.check(
        "gets what was not acknowledged, in the same turn",
        expected=(me.turn_id, True, ["one", "two"]),
        got=None
        if successor is None
        else (successor.turn_id, successor.resumed, shown(successor.prompts)),
    )
    await me.user("three")
    p.check(
        "what arrives meanwhile comes once",
        expected=["three"],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    p.check("and not again", expected=[], got=shown(await me.take()), kind="duplicate prompt")

    p.route("a passive prompt")
    await me.end_turn()
    await me.agent.send_prompt("rides along", passive=True)
    p.check("begins no turn", expected=[], got=shown(await me.next_turn(0.3)))
    await me.user("four")
    p.check(
        "comes with the next that does",
        expected=["rides along", "four"],
        got=shown(await me.next_turn()),
    )


@phase("user-cancel", TAU, "a user cancels the turn", 4)
async def user_cancel(p: Phase) -> None:
    me = await p.agent()
    await me.gated("back")
    gate = await p.gate("front")
    front = me.begin("shell", "front", command=f"cat {gate}")
    await me.happened("call.started", "front")
    other = await p.agent()
    await other.gated("elsewhere")
    await me.agent.cancel_turn(reason="enough")
    answer = await front
    p.check(
        "a call in the foreground is cancelled",
        expected=(CANCELLED, starting(texts.CANCELED)),
        got=answer.said,
    )
    await me.ended("back")
    events = await p.log.read()
    p.check(
        "each has its kind of end",
        expected=(["tool.background_error"], ["tool.cancelled"]),
        got=tuple([e.name for e in log.terminals(events, me.id, c)] for c in ("back", "front")),
    )
    p.check("no turn starts because of it", expected=[], got=shown(await me.next_turn(0.3)))
    await me.user("go on")
    prompts = await me.next_turn()
    p.check(
        "the next one has the passive notice, then the user's text",
        expected=[(NOTICE, False, texts.notice("back")), (USER, True, "go on")],
        got=[(q.kind, q.activating, q.text) for q in prompts],
        kind="missed prompt",
    )
    p.check(
        "its result is there, once",
        expected=[(ERROR, starting(texts.CANCELED)), (ERROR, texts.consumed("back"))],
        got=[(await me.wait("back")).said, (await me.wait("back")).said],
    )
    await other.open("elsewhere")
    p.check(
        "other agents go on",
        expected=(RESULT, texts.out("done")),
        got=(await other.wait("elsewhere")).said,
    )
