"""agent_start, agent_watch, message, status."""

from __future__ import annotations

from typing import Any

from pinfold.v1 import agent_pb2
from pinfold.verify import log, texts
from pinfold.verify.actor import (
    ERROR,
    MESSAGE,
    RESULT,
    START,
    WATCH_ANSWER,
    WATCH_PROMPT,
    WATCH_STATE,
    Actor,
)
from pinfold.verify.expect import containing, like, starting, without
from pinfold.verify.phase import TAU, Phase, phase


async def start(p: Phase, me: Actor, script: str, *, role: str = "", **arguments: str) -> str:
    """Start a sub-agent with a script for a prompt; its id."""
    answer = await me.call("agent_start", prompt=script, role=role or p.role, **arguments)
    sub = answer.message.agent_start.sub_agent_id
    p.require("a sub-agent is there", expected=True, got=bool(sub))
    return sub


@phase("agent-start", TAU, "agent_start and watch", 4)
async def agent_start(p: Phase) -> None:
    me = await p.agent()
    script = "status working on the probe\nfinal FINAL probe {self}"
    answer = await me.call("agent_start", "s", prompt=script, role=p.role)
    sub = answer.message.agent_start.sub_agent_id
    p.check(
        "both ids at once, nothing else, no placeholder",
        expected=(RESULT, texts.started(me.id, sub)),
        got=answer.said,
        confirms="agent-ids",
    )
    p.check("ids that differ", expected=True, got=bool(sub) and sub != me.id)
    repeat = await me.call("agent_start", "s", prompt=script, role=p.role)
    p.check("sent again it is the same agent", expected=answer.said, got=repeat.said)
    child = p.client.agent(sub)

    p.route("the sub-agent's context")
    first = await p.log.until(lambda e: bool(log.queued([e], sub, START)), "its start prompt")
    text = first.prompt_queued.prompt.text
    p.check(
        "one line that says who started it, then its prompt",
        expected=like(rf"You were started by an agent `{me.id}`\. [^\n]*\n\n.*"),
        got=text,
    )
    p.check("as it was given", expected=script, got=text.partition("\n\n")[2])

    p.route("agent_start turns the watch on")
    await me.queued(WATCH_ANSWER, "the final answer")
    await me.queued(WATCH_STATE, "the turn's end", body="turn stopped")
    events = await p.log.read()
    p.check(
        "its event",
        expected=[(sub, True)],
        got=[
            (e.watch_changed.watched_agent_id, e.watch_changed.enabled)
            for e in log.named(events, "agent.watch_changed", agent=me.id)
        ],
    )
    prompts = await me.take()
    answers = [q for q in prompts if q.kind == WATCH_ANSWER]
    p.check(
        "the final answer, once, activating",
        expected=[(sub, True)],
        got=[(q.from_agent_id, q.activating) for q in answers],
        kind="duplicate prompt",
    )
    p.check(
        "wrapped",
        expected=containing(f"\n\n<response>\nFINAL probe {sub}\n</response>"),
        got=answers[0].text if answers else "",
    )
    states = [q for q in prompts if q.kind == WATCH_STATE]
    p.check(
        "turn and status lines",
        expected=["turn started", "on the probe", "turn stopped"],
        got=[_line(q) for q in states],
        kind="missed prompt",
    )
    p.check("which are passive", expected=[False] * len(states), got=[q.activating for q in states])
    p.check(
        "and have nothing of its answer",
        expected=without("FINAL"),
        got="\n".join(q.text for q in states),
    )

    p.route("a user's prompt for a watched agent")
    await child.send_prompt("how is it going?")
    prompt = await me.queued(WATCH_PROMPT, "the user's prompt")
    p.check(
        "comes to the watcher",
        expected=(sub, True, containing("how is it going?")),
        got=(
            prompt.prompt_queued.prompt.from_agent_id,
            prompt.prompt_queued.prompt.activating,
            prompt.prompt_queued.prompt.text,
        ),
    )
    await me.queued(WATCH_ANSWER, "the second answer", body="Received.")

    p.route("agent_start refused")
    bad = await me.call("agent_start", prompt="final x", role="no-such-role")
    p.check("unknown role", expected=(ERROR, containing("no-such-role")), got=bad.said)
    bad = await me.call("agent_start", prompt="")
    p.check("empty prompt", expected=(ERROR, "error: `prompt` must not be empty"), got=bad.said)


def _line(prompt: agent_pb2.Prompt) -> str:
    return next(
        (w for w in ("turn started", "turn stopped", "on the probe") if w in prompt.text),
        prompt.text,
    )


@phase("agent-watch", TAU, "agent_watch", 3)
async def agent_watch(p: Phase) -> None:
    me = await p.agent()
    sub = await start(p, me, "await_message")
    said = [(await me.call("agent_watch", agent_id=sub, enable=on)).said for on in (False, True)]
    p.check(
        "off and on",
        expected=[(RESULT, f"Stopped watching agent `{sub}`"), (RESULT, f"Watching agent `{sub}`")],
        got=said,
    )
    await _watch_off(p, me)
    stranger = (await p.agent(turn=False)).id
    for name, whom, text in (
        ("itself", me.id, "`agent_id` must identify another agent"),
        ("unknown", "nobody", "unknown agent: `nobody`"),
        ("another tree's", stranger, f"unknown agent: `{stranger}`"),
    ):
        answer = await me.call("agent_watch", agent_id=whom, enable=True)
        p.check(name, expected=(ERROR, f"error: {text}"), got=answer.said)
    cycle = await p.client.agent(sub).call_tool(
        "agent_watch", {"agent_id": me.id, "enable": True}, tool_call_id="cycle"
    )
    p.check(
        "a cycle",
        expected=f"error: agent watch would create a cycle: `{sub}` -> `{me.id}`",
        got=cycle.text,
    )
    await p.client.agent(sub).stop(reason="verify")
    answer = await me.call("agent_watch", agent_id=sub, enable=True)
    p.check(
        "an agent that is gone, on",
        expected=(ERROR, f"error: agent is not live: `{sub}`"),
        got=answer.said,
    )
    answer = await me.call("agent_watch", agent_id=sub, enable=False)
    p.check("and off", expected=(RESULT, f"Stopped watching agent `{sub}`"), got=answer.said)

    p.route("a watch state line and waits")
    sub = await start(p, me, "await_message\nstatus working again\nawait_message")
    await me.queued(WATCH_STATE, "its first turn", body=f"`{sub}`, which you watch: turn started")
    await me.take()
    await me.gated("x")
    waiting = await me.parked("wait", "w", tool_call_id="x")
    await me.message(sub, "go")
    p.check(
        "interrupts a wait", expected="interrupted", got=(await waiting).headers.get("wait_outcome")
    )
    await me.end_turn()
    p.check("and begins no turn", expected=[], got=await me.next_turn(0.3))


async def _watch_off(p: Phase, me: Actor) -> None:
    p.route("agent_watch off")
    sub = await start(p, me, "final first")
    line = f"`{sub}`, which you watch: turn stopped"
    await me.queued(WATCH_STATE, "the end of its first turn", body=line)
    await me.call("agent_watch", agent_id=sub, enable=False)
    off = (await p.log.read())[-1].revision
    await p.client.agent(sub).send_prompt("another turn")
    await p.log.until(
        lambda e: log.is_named(e, "agent.turn_ended", agent=sub) and e.revision > off,
        "its second turn",
    )
    told = [
        e
        for e in log.named(await p.log.read(), "prompt.queued", agent=me.id)
        if e.revision > off and e.prompt_queued.prompt.from_agent_id == sub
    ]
    p.check("nothing of a later turn is told", expected=[], got=told, kind="leak")
    p.route("agent_watch refused")


@phase("message", TAU, "message", 3)
async def message(p: Phase) -> None:
    me = await p.agent()
    body = 'first\n\n<message> & "quoted" \U0001f600\n</message>\nlast'
    sub = await start(
        p, me, "message parent READY\nawait_message\nmessage parent GOT {body}\nawait_message"
    )
    await me.queued(MESSAGE, "READY")
    sent = await me.call("message", "m", recipient_id=sub, message=body)
    p.check(
        "committed, with a stable id",
        expected=(
            RESULT,
            like(r"Message committed: \S+; recipient was live; response not guaranteed"),
        ),
        got=sent.said,
    )
    again = await me.call("message", "m", recipient_id=sub, message=body)
    p.check("sent again it is the same message", expected=sent.said, got=again.said)
    back = await me.queued(MESSAGE, "the echo", body="GOT ")
    p.check("the body arrives exactly", expected=f"GOT {body}", got=back.prompt_queued.prompt.body)
    escaped = body.replace("</message>", "&lt;/message&gt;")
    there = log.queued(await p.log.read(), sub, MESSAGE)
    p.check("once", expected=1, got=len(there), kind="duplicate prompt")
    p.check(
        "only its own closing tag is escaped",
        expected=texts.message_prompt(me.id, escaped),
        got=there[0].prompt_queued.prompt.text,
    )
    stored = [
        e.message_sent.body
        for e in log.named(await p.log.read(), "agent.message_sent", agent=me.id)
    ]
    p.check("and recorded as it is", expected=[body], got=stored)

    p.route("message errors")
    for name, recipient, text, expected in (
        ("empty", sub, "", starting("error: `message` must not be empty")),
        ("unknown", "nobody", "hi", starting("error: unknown message recipient: `nobody`")),
    ):
        answer = await me.message(recipient, text)
        p.check(name, expected=(ERROR, expected), got=answer.said)
        p.check(f"{name}: echoed", expected=recipient, got=answer.headers.get("recipient_id"))
    other = await p.agent(turn=False)
    answer = await me.message(other.id, "hi")
    p.check(
        "another tree's",
        expected=starting(f"error: unknown message recipient: `{other.id}`"),
        got=answer.text,
    )
    await p.client.agent(sub).stop(reason="verify")
    answer = await me.message(sub, "hi")
    p.check(
        "stopped",
        expected=(ERROR, starting(f"error: stopped message recipient: `{sub}`")),
        got=answer.said,
    )
    p.check(
        "refused ones are not recorded",
        expected=1,
        got=len(log.named(await p.log.read(), "agent.message_sent", agent=me.id)),
    )


@phase("status", TAU, "status", 2)
async def status(p: Phase) -> None:
    me = await p.agent()
    answer = await me.call("status", state="working", title="  on it  ")
    p.check(
        "accepted, trimmed", expected=(RESULT, "Status accepted: working — on it"), got=answer.said
    )
    again = await me.call("status", state="working", title="on it")
    p.check("the same twice", expected=answer.said, got=again.said)
    p.check(
        "is reported once",
        expected=1,
        got=len(log.named(await p.log.read(), "agent.status_reported", agent=me.id)),
    )
    longest = "é" * 80
    answer = await me.call("status", state="done", title=longest)
    p.check("160 bytes", expected=(RESULT, f"Status accepted: done — {longest}"), got=answer.said)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("161 bytes", {"state": "done", "title": longest + "x"}),
        ("two lines", {"state": "done", "title": "a\nb"}),
        ("a line separator", {"state": "done", "title": "a\u2028b"}),
        ("empty", {"state": "done", "title": " "}),
        ("no such state", {"state": "idle", "title": "a"}),
        ("an extra key", {"state": "done", "title": "a", "more": 1}),
    ]
    for name, arguments in refused:
        answer = await me.call("status", **arguments)
        p.check(name, expected=(ERROR, starting("error: ")), got=answer.said)


@phase("worker-crash", TAU, "a sub-agent's worker dies", 4)
async def worker_crash(p: Phase) -> None:
    me = await p.agent()
    sub = await start(p, me, "shell sleep 60\nawait_message")
    await p.log.until(lambda e: log.is_named(e, "call.backgrounded", agent=sub), "its call")
    sibling = await start(p, me, "await_message\nfinal sibling is well")
    await me.queued(WATCH_STATE, "the sibling's turn", body=f"`{sibling}`")
    # By a shell of its own, as anything on the machine could.
    worker = await p.client.agent(sub).info()
    await me.shell(f"kill -KILL {worker.worker_pid}")
    await p.log.until(lambda e: log.is_named(e, "agent.failed", agent=sub), "it fails")
    events = await p.log.read()
    calls = {e.call_id for e in log.named(events, "call.queued", agent=sub)}
    ends = [e.name for call in calls for e in log.terminals(events, sub, call)]
    p.check("its calls are cancelled", expected=["tool.background_error"], got=ends, kind="leak")
    told = [
        e for e in log.queued(events, me.id, WATCH_STATE) if "failed" in e.prompt_queued.prompt.text
    ]
    p.check("its watcher is told once", expected=1, got=len(told), kind="missed prompt")
    p.check(
        "no completion of it comes to its parent",
        expected=[],
        got=log.notices(events, me.id),
        kind="leak",
    )
    await me.message(sibling, "well?")
    await me.queued(WATCH_ANSWER, "the sibling's answer", body="sibling is well")
    p.check(
        "siblings are not touched",
        expected=agent_pb2.AGENT_STATE_IDLE,
        got=(await p.client.agent(sibling).info()).state,
    )
