"""`wait`: exact, bare and for a set; arguments and refusals."""

from __future__ import annotations

import asyncio

from pinfold.errors import StateError
from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT, Actor
from pinfold.verify.expect import in_any_order, like, starting
from pinfold.verify.phase import TAU, Phase, phase


@phase("wait-exact", TAU, "exact wait", 4)
async def wait_exact(p: Phase) -> None:
    me = await p.agent()
    await me.gated("x", "late")
    waiting = await me.parked("wait", "w", tool_call_id="  x  ")
    await me.open("x")
    p.check(
        "a wait on a running call gets its result, its id is trimmed",
        expected=(RESULT, texts.out("late")),
        got=(await waiting).said,
    )
    again = await me.wait("x")
    p.check("once", expected=(ERROR, texts.consumed("x")), got=again.said, confirms="once")
    repeat = await me.call("wait", "w", tool_call_id="  x  ")
    p.check(
        "the same wait sent again gets the same answer",
        expected=(RESULT, texts.out("late")),
        got=repeat.said,
    )
    p.check(
        "the result stays readable, consumed",
        expected=(True, "out late"),
        got=_read(await me.agent.get("x")),
    )

    p.route("wait on a call in the foreground")
    front = await me.shell("echo front", "front")
    p.require("it returned", expected=RESULT, got=front.kind)
    p.check(
        "it returned normally",
        expected=(ERROR, texts.returned_normally("front")),
        got=(await me.wait("front")).said,
    )
    p.check(
        "said once", expected=(ERROR, texts.consumed("front")), got=(await me.wait("front")).said
    )
    gate = await p.gate("live")
    live = me.begin("shell", "live", command=f"cat {gate}; echo live")
    await me.happened("call.started", "live")
    both = await me.parked("wait", "w-live", tool_call_id="live")
    await p.open_gate("live")
    answers = await asyncio.gather(live, both)
    if answers[0].kind == RESULT:
        p.check(
            "its caller and its waiter both get it",
            expected=[answers[0].said] * 2,
            got=[answer.said for answer in answers],
        )
    else:
        p.note("the foreground call went to the background on this machine", "timing")
        p.check("its waiter gets it", expected=(RESULT, texts.out("live")), got=answers[1].said)

    p.route("wait for unknown ids")
    p.check("absent", expected=(ERROR, texts.unknown("nobody")), got=(await me.wait("nobody")).said)
    p.check(
        "a wait is not waitable",
        expected=(ERROR, texts.unknown("w")),
        got=(await me.wait("w")).said,
    )
    other = await p.agent()
    await other.finished("theirs", "theirs")
    p.check(
        "another conversation's",
        expected=(ERROR, texts.unknown("theirs")),
        got=(await me.wait("theirs")).said,
    )
    p.check(
        "whose owner can still collect it",
        expected=(RESULT, texts.out("theirs")),
        got=(await other.wait("theirs")).said,
    )


def _read(call: object) -> tuple[bool, str]:
    result = getattr(call, "result")  # noqa: B009
    return bool(getattr(call, "consumed")), str(result.text).rpartition("\n")[2]  # noqa: B009


@phase("wait-arguments", TAU, "wait arguments", 2)
async def wait_arguments(p: Phase) -> None:
    me = await p.agent()
    exclusive = "`tool_call_id` and `timeout_minutes` are mutually exclusive"
    for arguments, text in (
        ('{"tool_call_id": 7}', "`tool_call_id` must be a string"),
        ('{"tool_call_id": true}', "`tool_call_id` must be a string"),
        ('{"tool_call_id": ""}', "`tool_call_id` must not be empty"),
        ('{"tool_call_id": "  "}', "`tool_call_id` must not be empty"),
        ('{"timeout_minutes": "1"}', "`timeout_minutes` must be an integer"),
        ('{"timeout_minutes": true}', "`timeout_minutes` must be an integer"),
        ('{"timeout_minutes": null}', "`timeout_minutes` must be an integer"),
        ('{"timeout_minutes": 1.5}', "`timeout_minutes` must be an integer"),
        ('{"timeout_minutes": 1.0}', "`timeout_minutes` must be an integer"),
        ('{"timeout_minutes": 0}', "`timeout_minutes` must be at least 1"),
        ('{"timeout_minutes": -1}', "`timeout_minutes` must be at least 1"),
        ('{"tool_call_id": "x", "timeout_minutes": 5}', exclusive),
    ):
        answer = await me.raw("wait", arguments)
        p.check(arguments, expected=(ERROR, f"error: {text}"), got=answer.said)
    many = ", ".join(f'"c{n}"' for n in range(65))
    for arguments in (
        '{"tool_call_ids": []}',
        f'{{"tool_call_ids": [{many}]}}',
        '{"tool_call_ids": ["x", "x"]}',
        '{"tool_call_ids": [7]}',
        '{"tool_call_ids": [" "]}',
        '{"tool_call_ids": "x"}',
        '{"tool_call_ids": ["x"], "tool_call_id": "x"}',
        '{"tool_call_id": "x", "tool_call_id": "x"}',
        '{"call": "x"}',
        "[]",
    ):
        answer = await me.raw("wait", arguments)
        p.check(
            f"{arguments[:40]} is refused", expected=(ERROR, starting("error: ")), got=answer.said
        )
    events = await p.log.read()
    p.check("a refused wait leaves nothing behind", expected=[], got=log.installed(events, me.id))


@phase("wait-bare", TAU, "bare wait", 4)
async def wait_bare(p: Phase) -> None:
    me = await p.agent()
    p.check(
        "nothing to wait for",
        expected=(ERROR, texts.NOTHING_TO_WAIT_FOR),
        got=(await me.wait()).said,
    )
    p.check(
        "a sibling in the foreground does not count",
        expected=texts.NOTHING_TO_WAIT_FOR,
        got=await _with_front(p, me),
    )

    p.route("bare wait takes the oldest completion")
    await me.gated("a", "first started")
    await me.gated("b", "first ended")
    await me.open("b")
    await me.open("a")
    taken = [(await me.wait()).said, (await me.wait()).said]
    p.check(
        "in the order of completion, each named",
        expected=[
            (RESULT, texts.out("first ended", "original_tool_call_id: b\nstatus: 0")),
            (RESULT, texts.out("first started", "original_tool_call_id: a\nstatus: 0")),
        ],
        got=taken,
    )
    p.check(
        "and nothing twice",
        expected=(ERROR, texts.NOTHING_TO_WAIT_FOR),
        got=(await me.wait()).said,
        confirms="once",
    )

    p.route("bare wait for the next completion")
    await me.gated("c", "next")
    waiting = await me.parked("wait", "w")
    await me.open("c")
    p.check(
        "it gets the next",
        expected=(RESULT, texts.out("next", "original_tool_call_id: c\nstatus: 0")),
        got=(await waiting).said,
    )

    p.route("bare wait and errors")
    await me.gated("d")
    waiting = await me.parked("wait", "w2")
    await me.cancel("d")
    answer = await waiting
    p.check(
        "a cancelled call, by name",
        expected=(ERROR, starting(f"{texts.CANCELED}\noriginal_tool_call_id: d\n")),
        got=answer.said,
    )
    await me.gated("e")
    exact = await me.parked("wait", "w3", tool_call_id="e")
    bare = await me.parked("wait", "w4")
    await me.cancel("e")
    p.check(
        "an exact wait goes before a bare one",
        expected=(ERROR, starting(texts.CANCELED)),
        got=(await exact).said,
    )
    p.check(
        "a bare wait that has nothing left does not hang",
        expected=(ERROR, texts.NOTHING_TO_WAIT_FOR),
        got=(await bare).said,
    )

    p.route("bare wait is conversation-scoped")
    other = await p.agent()
    await other.finished("theirs")
    p.check(
        "another conversation's completion is not taken",
        expected=(ERROR, texts.NOTHING_TO_WAIT_FOR),
        got=(await me.wait()).said,
    )
    p.check(
        "its owner takes it",
        expected="theirs",
        got=(await other.wait()).headers.get("original_tool_call_id"),
    )


async def _with_front(p: Phase, me: Actor) -> str:
    """What a bare wait says while a call runs in the foreground. The call may reach the
    background first on a slow machine; then once more."""
    for attempt in range(5):
        name = f"front-{attempt}"
        gate = await p.gate(name)
        front = me.begin("shell", name, command=f"cat {gate}")
        await me.happened("call.started", name)
        try:
            # A limit of no time at all, so that it can't hang where the rule is broken.
            text = (await me.agent.wait_any_background(0)).text
        except StateError as error:
            text = f"error: {error.message}"
        await p.open_gate(name)
        if (await front).kind == RESULT:
            return text
        await me.ended(name)
        await me.wait(name)
        p.note("the foreground call went to the background too soon to tell", "timing")
    return "no call that stayed in the foreground"


@phase("wait-set", TAU, "wait for a set", 4)
async def wait_set(p: Phase) -> None:
    me = await p.agent()
    await me.gated("a", "alpha")
    await me.gated("b", "beta")
    waiting = await me.parked("wait", "w", tool_call_ids=["b", "a"])
    single = await me.wait("a")
    p.check("a member is reserved", expected=(ERROR, texts.WAIT_IN_PROGRESS), got=single.said)
    await me.cancel("b")
    await me.ended("b")
    p.check(
        "a member's error does not end it",
        expected=[],
        got=log.settled(await p.log.read(), me.id, "w"),
    )
    await me.open("a")
    answer = await waiting
    p.check(
        "all together, in request order, errors nested",
        expected=(
            RESULT,
            like(
                r".*error: Tool call canceled\n.*original_tool_call_id: b\n.*"
                r"original_tool_call_id: a\n.*out alpha.*"
            ),
        ),
        got=answer.said,
    )
    members = [(r.call_id, r.error) for r in answer.message.wait.results]
    p.check("and as fields", expected=[("b", "Tool call canceled"), ("a", "")], got=members)
    events = await p.log.read()
    p.check(
        "no notice of a member",
        expected=[],
        got=log.notices(events, me.id),
        kind="duplicate prompt",
    )
    p.check(
        "each consumed once",
        expected=(1, 1),
        got=(log.consumers(events, me.id, "a"), log.consumers(events, me.id, "b")),
        confirms="once",
    )

    p.route("a set with a bad member")
    await me.finished("c", "gamma")
    await me.gated("held")
    for bad, text in (("nobody", texts.unknown("nobody")), ("a", texts.consumed("a"))):
        refused = await me.call("wait", tool_call_ids=["c", "held", bad])
        p.check(f"is refused as a whole ({bad})", expected=(ERROR, text), got=refused.said)
    p.check(
        "and changes nothing", expected=(RESULT, texts.out("gamma")), got=(await me.wait("c")).said
    )

    p.route("a set that is cancelled")
    await me.noticed("c")
    await me.take()
    waiting = await me.parked("wait", "w2", tool_call_ids=["held"])
    waiting.cancel()
    await me.wait_settled("w2")
    await me.open("held")
    await me.noticed("held")
    p.check(
        "its members are released",
        expected=(RESULT, texts.out("done")),
        got=(await me.wait("held")).said,
    )
    p.check(
        "its wait consumed nothing",
        expected=in_any_order(["cancelled"]),
        got=[e.wait_settled.outcome for e in log.settled(await p.log.read(), me.id, "w2")],
    )
