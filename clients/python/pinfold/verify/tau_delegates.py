"""A message for a live delegate whose own turn is parked behind background work."""

from __future__ import annotations

from pinfold.verify import log, texts
from pinfold.verify.actor import MESSAGE, RESULT, WATCH_ANSWER, Actor
from pinfold.verify.expect import like
from pinfold.verify.log import Event
from pinfold.verify.phase import TAU, Phase, phase
from pinfold.verify.tau_agents import start

NONCE = "nonce-51c2"
COMMITTED = like(r"Message committed: \S+; recipient was live; response not guaranteed")


async def _child_event(p: Phase, name: str, sub: str, call: str) -> Event:
    return await p.log.until(
        lambda e: log.is_named(e, name, agent=sub, call=call), f"{name} of {call}"
    )


async def _created(p: Phase, sub: str) -> Event:
    """The prompt that hands the message to the delegate."""
    queued = log.queued(await p.log.read(), sub, MESSAGE)[0].prompt_queued.prompt.prompt_id
    return await p.log.until(
        lambda e: bool(log.delivered([e], sub, queued)), "the message is delivered to the delegate"
    )


@phase("parked-delegate", TAU, "delegate parked behind a background tool", 33)
async def parked(p: Phase) -> None:
    me = await p.agent()
    sub = await start(
        p,
        me,
        "on_message message parent GOT {body}\nshell sleep 30\nshell sleep 5\nfinal parked done",
        role=p.serial_role,
    )
    first, second = f"{sub}-call-1", f"{sub}-call-2"
    await _child_event(p, "call.backgrounded", sub, first)
    await _child_event(p, "call.queued", sub, second)
    sent = await me.message(sub, NONCE)
    p.check("committed", expected=(RESULT, COMMITTED), got=sent.said)
    ended = await _child_event(p, "tool.cancelled", sub, second)
    got = await me.queued(MESSAGE, "the delegate's report", body=f"GOT {NONCE}")
    created = await _created(p, sub)
    message = log.named(await p.log.read(), "agent.message_sent", agent=me.id)[0]
    p.check(
        "message, queued call ended, new prompt, report",
        expected=True,
        kind="order",
        got=message.revision < ended.revision < created.revision < got.revision,
    )
    events = await p.log.read()
    p.check(
        "the queued call was never started",
        expected=[],
        got=log.named(events, "call.starting", agent=sub, call=second),
    )
    p.check(
        "the report came before the sleep had ended",
        expected=[],
        got=log.terminals(events, sub, first),
        kind="timing",
    )
    await me.queued(WATCH_ANSWER, "the delegate's answer", body="parked done")

    p.route("agent_watch off")
    answer = await me.call("agent_watch", agent_id=sub, enable=False)
    p.check("its answer", expected=(RESULT, f"Stopped watching agent `{sub}`"), got=answer.said)
    off = (await p.log.read())[-1].revision
    end = await p.log.until(
        lambda e: e.name in log.TERMINALS and e.call_id == first,
        "the sleep ends",
        patience=30 + p.patience,
    )
    p.check("the sleep still finishes by itself", expected="tool.background_result", got=end.name)
    await p.log.until(
        lambda e: log.is_named(e, "agent.turn_ended", agent=sub) and e.revision > end.revision,
        "the delegate's later turn",
    )
    events = await p.log.read()
    p.check(
        "its completion stays with the delegate",
        expected=(1, 0),
        got=(len(log.notices(events, sub, first)), len(log.notices(events, me.id))),
        kind="leak",
    )
    later = [e for e in log.named(events, "prompt.queued", agent=me.id) if e.revision > off]
    p.check("no watch notification after the watch is off", expected=[], got=later, kind="leak")


@phase("busy-delegate", TAU, "message to a delegate whose call has started", 4)
async def busy(p: Phase) -> None:
    """Nothing that has started is preempted; the message waits for the round."""
    me = await p.agent()
    sub = await start(p, me, "on_message message parent GOT {body}\nshell sleep 1.5\nfinal done")
    call = f"{sub}-call-1"
    await _child_event(p, "call.started", sub, call)
    await me.message(sub, NONCE)
    got = await me.queued(MESSAGE, "the delegate's report", body=f"GOT {NONCE}")
    events = await p.log.read()
    ends = log.terminals(events, sub, call)
    p.check(
        "the call ends by itself, in the foreground",
        expected=["tool.result"],
        got=[e.name for e in ends],
    )
    p.check(
        "then comes the report",
        expected=True,
        kind="order",
        got=bool(ends) and ends[0].revision < got.revision,
    )


@phase("waiting-delegate", TAU, "delegate blocked in a wait", 16)
async def waiting(p: Phase) -> None:
    me = await p.agent()
    sub = await start(
        p,
        me,
        "on_message message parent GOT {body}\nshell sleep 12\nwait 1\n"
        "message parent WAIT {wait}\nfinal waiting done",
    )
    p.note("sleep 12 in place of 30: it only has to outlast the interruption")
    call = f"{sub}-call-1"
    await p.log.until(lambda e: bool(log.installed([e], sub)), "the delegate's wait")
    sent = await me.message(sub, NONCE)
    p.check("committed", expected=(RESULT, COMMITTED), got=sent.said)
    got = await me.queued(MESSAGE, "the delegate's report", body=f"GOT {NONCE}")
    told = await me.queued(MESSAGE, "the delegate's wait result", body="WAIT ")
    text = told.prompt_queued.prompt.body.removeprefix("WAIT ")
    p.check(
        "its wait returned exactly these headers",
        expected=texts.interrupted("exact"),
        got=text.partition("\n\n")[0],
    )
    created = await _created(p, sub)
    events = await p.log.read()
    message = log.named(events, "agent.message_sent", agent=me.id)[0]
    settled = log.named(events, "wait.settled", agent=sub)[0]
    p.check(
        "message, the wait's result, the prompt, the report",
        expected=True,
        kind="order",
        got=message.revision < settled.revision < created.revision < got.revision,
    )
    p.check("nothing consumed", expected=[], got=list(settled.wait_settled.consumed_call_ids))
    p.check(
        "before the original call had ended",
        expected=[],
        got=log.terminals(events, sub, call),
        kind="timing",
    )
    await me.queued(WATCH_ANSWER, "the delegate's answer", body="waiting done")
    await _afterwards(p, me, sub, call)


async def _afterwards(p: Phase, me: Actor, sub: str, call: str) -> None:
    """The watch is persistent: the original call's end makes a later turn, and its answer is
    no duplicate."""
    p.route("watch notification of a later turn")
    await p.log.until(
        lambda e: e.name in log.TERMINALS and e.call_id == call,
        "the original call ends",
        patience=12 + p.patience,
    )
    await me.queued(WATCH_ANSWER, "the later answer", body="Received.")
    events = await p.log.read()
    p.check(
        "the delegate is told of its own call",
        expected=1,
        got=len(log.notices(events, sub, call)),
        kind="missed prompt",
    )
    answers = log.queued(events, me.id, WATCH_ANSWER)
    p.check("one answer for each turn", expected=2, got=len(answers), kind="duplicate prompt")
    p.check(
        "and no completion for its parent", expected=[], got=log.notices(events, me.id), kind="leak"
    )


@phase("waiting-input-delegate", TAU, "delegate that waits for input", 3)
async def waiting_input(p: Phase) -> None:
    me = await p.agent()
    sub = await start(p, me, "await_message\nfinal it came")
    installed = await p.log.until(lambda e: bool(log.installed([e], sub)), "its input wait")
    before = len([e for e in await p.log.read() if _is_edge(e, me, sub)])
    await me.message(sub, NONCE)
    settled = await p.log.until(
        lambda e: log.is_named(e, "wait.settled", agent=sub), "its wait ends"
    )
    p.check("as input", expected="input_available", got=settled.wait_settled.outcome)
    await me.queued(WATCH_ANSWER, "its answer", body="it came")
    between = [
        e
        for e in await p.log.read()
        if _is_edge(e, me, sub) and installed.revision < e.revision <= settled.revision
    ]
    p.check("a wait is no idle edge for its watcher", expected=[], got=between)
    p.check("its turn began once", expected=1, got=before)


def _is_edge(event: Event, me: Actor, sub: str) -> bool:
    return (
        event.name == "prompt.queued"
        and event.agent_id == me.id
        and event.prompt_queued.prompt.from_agent_id == sub
        and "turn started" in event.prompt_queued.prompt.text
    )
