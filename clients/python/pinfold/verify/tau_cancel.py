"""`cancel`: targets, shells that run, shells that never started, siblings."""

from __future__ import annotations

import asyncio

from pinfold.v1 import call_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import CANCELLED, ERROR, RESULT
from pinfold.verify.expect import between, starting, without
from pinfold.verify.phase import TAU, Phase, phase


@phase("cancel-targets", TAU, "invalid targets", 3)
async def targets(p: Phase) -> None:
    me = await p.agent()

    p.route("empty id")
    for arguments in ('{"tool_call_id": ""}', '{"tool_call_id": "  "}'):
        p.check(
            arguments,
            expected=(ERROR, "error: `tool_call_id` must not be empty"),
            got=(await me.raw("cancel", arguments)).said,
        )
    for arguments, text in (
        ("{}", "`tool_call_id` is required"),
        ('{"tool_call_id": 7}', "`tool_call_id` must be a string"),
    ):
        p.check(
            arguments,
            expected=(ERROR, f"error: {text}"),
            got=(await me.raw("cancel", arguments)).said,
        )

    p.route("unknown id")
    p.check(
        "is said to be unknown, and echoed",
        expected=(ERROR, texts.unknown_target("nobody")),
        got=(await me.cancel("nobody")).said,
        confirms="done-or-unknown",
    )
    other = await p.agent()
    await other.gated("theirs")
    p.check(
        "another conversation's",
        expected=(ERROR, texts.unknown_target("theirs")),
        got=(await me.cancel("theirs")).said,
    )
    await other.cancel("theirs")
    await other.ended("theirs")
    p.check(
        "also when it is cancelled",
        expected=(ERROR, texts.unknown_target("theirs")),
        got=(await me.cancel("theirs")).said,
    )

    p.route("sub_agent_id")
    child = (await me.call("agent_start", prompt="await_message", role=p.role)).message
    sub = child.agent_start.sub_agent_id
    # Its parent watches it: the line that its turn has begun would end a wait below.
    await p.log.until(lambda e: bool(log.installed([e], sub)), "the sub-agent waits")
    p.check(
        "is no target", expected=(ERROR, texts.unknown_target(sub)), got=(await me.cancel(sub)).said
    )

    p.route("completed call")
    front = await me.shell("true")
    p.check(
        "that ended in the foreground",
        expected=(ERROR, texts.ALREADY_DONE),
        got=(await me.cancel(front.id)).said,
    )
    await me.finished("x")
    p.check(
        "that waits to be collected",
        expected=(ERROR, texts.ALREADY_DONE),
        got=(await me.cancel("x")).said,
        confirms="done-or-unknown",
    )
    await me.wait("x")
    p.check(
        "that was collected", expected=(ERROR, texts.ALREADY_DONE), got=(await me.cancel("x")).said
    )

    p.route("unsupported non-shell tool")
    await me.gated("held")
    waiting = await me.parked("wait", "w", tool_call_id="held")
    p.check(
        "a wait that is parked",
        expected=(ERROR, texts.NOT_CANCELLABLE),
        got=(await me.cancel("w")).said,
    )
    p.check("is not touched", expected=[], got=log.settled(await p.log.read(), me.id, "w"))
    await me.open("held")
    p.check("and gets its result", expected=(RESULT, texts.out("done")), got=(await waiting).said)
    events = await p.log.read()
    p.check(
        "refused cancels leave no trace",
        expected=0,
        got=len(log.named(events, "call.cancel_requested", agent=me.id)),
    )


@phase("cancel-shell", TAU, "shell cancellation", 8)
async def cancel_shell(p: Phase) -> None:
    me = await p.agent()
    answer = await me.shell("echo pid $$; sleep 20 & sleep 20; echo not cancelled", "x")
    p.require("it is in the background", expected=texts.placeholder("x"), got=answer.text)
    # It must have run for more than 5 s when it ends.
    await asyncio.sleep(3.6)
    cancelled = await me.cancel("x")
    p.check(
        "success says exactly that, and does not go to the background",
        expected=(RESULT, texts.CANCEL_REQUESTED),
        got=cancelled.said,
        confirms="cancel-text",
    )
    waited = await me.wait("x")
    p.check("a cancelled end, not a normal one", expected=ERROR, got=waited.kind)
    p.check("its first line", expected=starting(f"{texts.CANCELED}\n"), got=waited.text)
    p.check(
        "nothing of a normal completion",
        expected=without("status: 0", "not cancelled"),
        got=waited.text,
    )
    seconds = int(waited.headers.get("duration_seconds", "0"))
    p.check(
        "duration_seconds",
        expected=between(6, 19),
        got=seconds,
        kind="timing",
        confirms="slow-duration",
    )
    result = waited.message.wait.results[0] if waited.message.wait.results else None
    output = (await me.agent.read_output("x")).decode()
    p.check(
        "the output so far is kept",
        expected=True,
        got=output.startswith("pid ") and f"out {output.strip()}" in waited.text,
    )
    if result is not None:
        receipt = result.receipt
        p.check(
            "the kill receipt: ended, no survivors, a proof",
            expected=(True, [], True),
            got=(receipt.ended >= 2, list(receipt.survivors), bool(receipt.proof)),
            kind="leak",
        )
    pid = output.split()[1]
    p.check("its process is gone", expected=False, got=await p.is_alive(pid), kind="leak")
    p.check(
        "collected once",
        expected=(ERROR, texts.consumed("x")),
        got=(await me.wait("x")).said,
        confirms="once",
    )
    p.check(
        "cancelled once", expected=(ERROR, texts.ALREADY_CANCELED), got=(await me.cancel("x")).said
    )

    p.route("event log of a cancel")
    events = await p.log.read()
    notes = [e.notice.text for e in log.named(events, "harness.notice", call="x")]
    p.check("harness.notice", expected=[texts.CANCEL_NOTICE], got=notes)
    order = [
        e.name
        for e in events
        if e.call_id == "x"
        and e.name in ("call.cancel_requested", "harness.notice", *log.TERMINALS)
    ]
    p.check(
        "request, notice, then the end",
        expected=["call.cancel_requested", "harness.notice", "tool.background_error"],
        got=order,
        kind="order",
    )
    ends = [e.call_ended.result.error for e in log.terminals(events, me.id, "x")]
    p.check("the background error says so", expected=["Tool call canceled"], got=ends)


@phase("cancel-queued", TAU, "cancel before the start", 3)
async def cancel_queued(p: Phase) -> None:
    me = await p.agent(max_running_calls=1)
    marker = f"{await p.scratch()}/ran"
    await me.gated("held")
    behind = me.begin("shell", "behind", command=f"touch {marker}; sleep 20")
    await me.happened("call.queued", "behind")
    p.check(
        "a queued call can be cancelled",
        expected=(RESULT, texts.CANCEL_REQUESTED),
        got=(await me.cancel("behind")).said,
    )
    answer = await behind
    p.check(
        "its caller gets one cancelled answer",
        expected=(CANCELLED, f"{texts.CANCELED}\ntermination_reason: cancelled"),
        got=answer.said,
    )
    await me.open("held")
    p.check("the next one still starts", expected=RESULT, got=(await me.shell("true")).kind)
    p.check("nothing was started", expected=False, got=await p.exists(marker))
    events = await p.log.read()
    names = [e.name for e in events if e.call_id == "behind" and e.agent_id == me.id]
    p.check(
        "one terminal, no start",
        expected=["call.queued", "call.cancel_requested", "harness.notice", "tool.cancelled"],
        got=names,
    )


@phase("cancel-isolation", TAU, "cancel touches no sibling", 4)
async def isolation(p: Phase) -> None:
    me = await p.agent()
    await me.gated("target")
    await me.gated("sibling", "unaffected")
    await me.cancel("target")
    await me.ended("target")
    call = await me.agent.get("sibling")
    p.check("the sibling runs on", expected=call_pb2.CALL_STATE_RUNNING, got=call.state)
    await me.open("sibling")
    p.check(
        "the sibling ends normally",
        expected=(RESULT, texts.out("unaffected")),
        got=(await me.wait("sibling")).said,
    )
    p.check(
        "the target is cancelled",
        expected=(ERROR, starting(texts.CANCELED)),
        got=(await me.wait("target")).said,
    )

    p.route("cancel and the end of the process")
    await me.finished("done")
    p.check(
        "what has ended by itself stays so",
        expected=(ERROR, texts.ALREADY_DONE),
        got=(await me.cancel("done")).said,
    )
    p.check(
        "with its own result",
        expected=(RESULT, texts.out("done")),
        got=(await me.wait("done")).said,
    )
    await me.background(
        "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done", "polite"
    )
    async for chunk in me.agent.output("polite", limit=5):
        if chunk.data:
            break
    await me.cancel("polite")
    waited = await me.wait("polite")
    p.check(
        "a program that answers TERM with exit 0 was cancelled all the same",
        expected=(ERROR, starting(texts.CANCELED)),
        got=waited.said,
    )
    p.check("and shows no status 0", expected=without("status: 0"), got=waited.text)
