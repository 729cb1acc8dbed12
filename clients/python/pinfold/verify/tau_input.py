"""The activating-input form of `wait`.

A model gives minutes. Where the end of the time matters the typed RPC is used, whose limits
are as short as one likes; both go through the same decision.
"""

from __future__ import annotations

from pinfold.errors import StateError
from pinfold.v1 import agent_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT, Actor, shown
from pinfold.verify.expect import like
from pinfold.verify.phase import TAU, Phase, phase

SHORT = 0.05


@phase("input-wait", TAU, "activating-input wait", 3)
async def input_wait(p: Phase) -> None:
    me = await p.agent()
    bounds = (p.info.limits.min_input_wait_minutes, p.info.limits.max_input_wait_minutes)
    p.check("the bounds in force make sense", expected=True, got=0 < bounds[0] <= bounds[1])
    waiting = await me.parked("wait", "w", timeout_minutes=1)
    second = await me.call("wait", timeout_minutes=10**30)
    p.check(
        "a second one is refused", expected=(ERROR, texts.INPUT_WAIT_IN_PROGRESS), got=second.said
    )
    agent = await me.agent.info()
    p.check("it stays in the turn", expected=agent_pb2.AGENT_STATE_TURN, got=agent.state)
    await me.message(me.id, "hello")
    p.check("input ends it", expected=(RESULT, texts.INPUT_AVAILABLE), got=(await waiting).said)
    at_once = await me.call("wait", timeout_minutes=5)
    p.check(
        "input that is queued ends it at once",
        expected=(RESULT, texts.INPUT_AVAILABLE),
        got=at_once.said,
    )
    p.check(
        "and is not consumed by it",
        expected=[texts.message_prompt(me.id, "hello")],
        got=shown(await me.take()),
        kind="missed prompt",
    )

    p.route("activating-input wait and background results")
    await me.gated("x")
    waiting = await me.parked("wait", "w2", timeout_minutes=2**62)
    await me.open("x")
    p.check(
        "a completion ends it", expected=(RESULT, texts.INPUT_AVAILABLE), got=(await waiting).said
    )
    await me.take()
    p.check(
        "and stays collectable",
        expected="x",
        got=(await me.wait()).headers.get("original_tool_call_id"),
    )

    p.route("activating-input wait, no idle edge")
    events = await p.log.read()
    first = log.installed(events, me.id)[0].revision
    edges = [
        e.name
        for e in events
        if e.revision > first
        and e.agent_id == me.id
        and e.name.startswith(("agent.turn", "agent.status", "agent.stop"))
    ]
    p.check("no lifecycle event of its agent", expected=[], got=edges)

    p.route("activating-input wait of an agent that is gone")
    other = await p.agent()
    gone = await other.parked("wait", "w", timeout_minutes=5)
    await other.agent.stop(reason="verify")
    try:
        end = (await gone).kind
    except StateError as error:
        end = error.reason
    p.check("it ends with its agent", expected=True, got=end in ("cancelled", "AGENT_STOPPED"))


@phase("input-timeout", TAU, "activating-input wait, end of the time", 3)
async def input_timeout(p: Phase) -> None:
    p.note(f"the time limits here are typed ones of {SHORT} s: minutes would be the same rule")
    me = await p.agent()
    said = [await _timed_out(me) for _ in range(4)]
    p.check("the first two say no more than that", expected=[texts.TIMED_OUT] * 2, got=said[:2])
    p.check(
        "the third carries one line of advice",
        expected=like(r"timed_out: true\nadvice: [^\n]*status\(waiting\)[^\n]*"),
        got=said[2],
    )
    p.check("the fourth does not", expected=texts.TIMED_OUT, got=said[3])

    p.route("advice after progress")
    await me.shell("true")
    said = [await _timed_out(me) for _ in range(3)]
    p.check(
        "a tool call begins the count anew",
        expected=[False, False, True],
        got=["advice" in text for text in said],
    )
    await me.call("status", state="working", title="on it")
    said = [await _timed_out(me) for _ in range(3)]
    p.check(
        "so does a status report",
        expected=[False, False, True],
        got=["advice" in text for text in said],
    )
    await me.call("status", state="waiting", title="for news")
    said = [await _timed_out(me) for _ in range(4)]
    p.check("none while the status is waiting", expected=[texts.TIMED_OUT] * 4, got=said)

    p.route("activating-input wait after the end of the time")
    await me.user("late")
    p.check(
        "later input is there", expected=["late"], got=shown(await me.take()), kind="missed prompt"
    )

    p.route("typed time limits of other waits")
    await me.gated("x")
    for name, answer in (
        ("exact", await me.agent.wait_exact("x", SHORT)),
        ("bare", await me.agent.wait_any_background(SHORT)),
        ("set", await me.agent.wait_all(["x"], SHORT)),
        ("any", await me.agent.wait_any(["x"], SHORT)),
    ):
        p.check(
            f"{name}: an answer, nothing consumed",
            expected=(True, 0, texts.TIMED_OUT),
            got=(answer.timed_out, len(answer.results), answer.text),
        )
    await me.open("x")
    await me.noticed("x")
    p.check(
        "the prompt comes after all, once",
        expected=[texts.notice("x")],
        got=shown(await me.take()),
        kind="missed prompt",
    )
    p.check("and the result", expected=(RESULT, texts.out("done")), got=(await me.wait("x")).said)


async def _timed_out(me: Actor) -> str:
    return (await me.agent.wait_for_input(SHORT)).text
