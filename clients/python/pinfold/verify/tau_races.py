"""Parallel waits and cancels: each result is consumed at most once."""

from __future__ import annotations

import asyncio
import contextlib

from pinfold.verify import log, texts
from pinfold.verify.actor import ERROR, RESULT, Pending
from pinfold.verify.expect import in_any_order
from pinfold.verify.phase import TAU, Phase, phase

MANY = 6


@phase("races", TAU, "consumption races", 4)
async def races(p: Phase) -> None:
    me = await p.agent()

    p.route("parallel exact waits, call completed")
    await me.finished("x")
    answers = await asyncio.gather(*(me.wait("x") for _ in range(MANY)))
    p.check(
        "one gets the result, the rest an error",
        expected=in_any_order(
            [(RESULT, texts.out("done"))] + [(ERROR, texts.consumed("x"))] * (MANY - 1)
        ),
        got=[answer.said for answer in answers],
        confirms="once",
    )

    p.route("parallel exact waits, call running")
    await me.gated("y")
    waits = [me.begin("wait", f"y{n}", tool_call_id="y") for n in range(MANY)]
    await _all_but_one(p, waits)
    p.check(
        "one is installed, the rest refused",
        expected=[(ERROR, texts.WAIT_IN_PROGRESS)] * (MANY - 1),
        got=[w.task.result().said for w in waits if w.done()],
    )
    await me.open("y")
    answers = await asyncio.gather(*waits)
    p.check("one delivery", expected=1, got=sum(a.kind == RESULT for a in answers), confirms="once")

    p.route("parallel bare waits, two completed")
    await me.finished("a", "alpha")
    await me.finished("b", "beta")
    pair = await asyncio.gather(me.wait(id="p1"), me.wait(id="p2"))
    p.check(
        "each takes one",
        expected=in_any_order(["a", "b"]),
        got=[answer.headers.get("original_tool_call_id") for answer in pair],
    )
    events = await p.log.read()
    order = [
        c
        for e in log.named(events, "wait.settled", agent=me.id)
        if e.wait_settled.wait_id in ("p1", "p2")
        for c in e.wait_settled.consumed_call_ids
    ]
    p.check("in completion order", expected=["a", "b"], got=order, kind="order")
    p.check(
        "none is installed",
        expected=[],
        got=[
            e.wait_installed.wait_id
            for e in log.installed(events, me.id)
            if e.wait_installed.wait_id in ("p1", "p2")
        ],
    )
    p.check(
        "both prompts are taken back", expected=[], got=await me.take(), kind="duplicate prompt"
    )

    p.route("parallel bare waits, one running")
    await me.gated("z")
    first, second = me.begin("wait", "b1"), me.begin("wait", "b2")
    await _all_but_one(p, [first, second])
    p.check(
        "one is installed, one refused",
        expected=[(ERROR, texts.BARE_WAIT_IN_PROGRESS)],
        got=[w.task.result().said for w in (first, second) if w.done()],
    )
    await me.open("z")
    answers = [await first, await second]
    p.check("one delivery", expected=1, got=sum(a.kind == RESULT for a in answers), confirms="once")

    p.route("parallel exact and bare waits")
    await me.gated("v")
    exact = await me.parked("wait", "e", tool_call_id="v")
    bare = await me.parked("wait", "f")
    await me.open("v")
    p.check(
        "the exact one gets it",
        expected=[(RESULT, texts.out("done")), (ERROR, texts.NOTHING_TO_WAIT_FOR)],
        got=[(await exact).said, (await bare).said],
    )
    events = await p.log.read()
    counts = {call: log.consumers(events, me.id, call) for call in ("x", "y", "a", "b", "z", "v")}
    p.check("over all", expected=dict.fromkeys(counts, 1), got=counts, confirms="once")


async def _all_but_one(p: Phase, calls: list[Pending]) -> None:
    """Until only one is under way, or patience ends."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(p.patience):
            while len(left := [call.task for call in calls if not call.done()]) > 1:
                await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)


@phase("duplicate-cancel", TAU, "duplicate cancel", 3)
async def duplicate_cancel(p: Phase) -> None:
    me = await p.agent()
    await me.gated("x")
    answers = await asyncio.gather(*(me.cancel("x") for _ in range(MANY)))
    p.check(
        "of parallel cancels one succeeds",
        expected=in_any_order(
            [(RESULT, texts.CANCEL_REQUESTED)] + [(ERROR, texts.ALREADY_CANCELED)] * (MANY - 1)
        ),
        got=[answer.said for answer in answers],
        confirms="cancel-text",
    )
    await me.ended("x")
    p.check(
        "also after its end",
        expected=(ERROR, texts.ALREADY_CANCELED),
        got=(await me.cancel("x")).said,
    )
    await me.wait("x")
    p.check(
        "and after it was collected",
        expected=(ERROR, texts.ALREADY_CANCELED),
        got=(await me.cancel("x")).said,
    )
    events = await p.log.read()
    p.check(
        "one request",
        expected=(1, 1),
        got=(
            len(log.named(events, "call.cancel_requested", call="x")),
            len(log.named(events, "harness.notice", call="x")),
        ),
    )
    p.check(
        "one terminal event",
        expected=["tool.background_error"],
        got=[e.name for e in log.terminals(events, me.id, "x")],
    )

    p.route("a cancel that is sent again")
    await me.gated("y")
    first = await me.call("cancel", "c", tool_call_id="y")
    again = await me.call("cancel", "c", tool_call_id="y")
    p.check(
        "gets the same answer",
        expected=[(RESULT, texts.CANCEL_REQUESTED)] * 2,
        got=[first.said, again.said],
    )
