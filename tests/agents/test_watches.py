"""Watches: what a watcher is told, what of it wakes, and what only ends a wait."""

from __future__ import annotations

import pytest

from agents.conftest import Open
from agents.harness import (
    ERROR,
    RESULT,
    WATCH_ANSWER,
    WATCH_PROMPT,
    WATCH_STATE,
    Actor,
    interrupted,
    texts,
    watched,
)
from pinfold.v1 import agent_pb2
from tasks.harness import Gate

pytestmark = pytest.mark.timeout(120)


def state(agent_id: str, what: str) -> str:
    return watched(agent_id, f": {what}")


def answer_text(agent_id: str, body: str) -> str:
    return watched(agent_id, f", gave this answer\n\n<response>\n{body}\n</response>")


def prompt_text(agent_id: str, body: str) -> str:
    return watched(agent_id, f", received this prompt\n\n<prompt>\n{body}\n</prompt>")


async def test_the_starter_watches_and_gets_each_answer_once(me: Actor) -> None:
    started = await me.tool("agent_start", prompt="do it", role="idle")
    sub = started.agent_start.sub_agent_id
    assert (started.kind, started.text) == (RESULT, f"self_agent_id: {me.id}\nsub_agent_id: {sub}")
    assert list((await me.agent.info()).watching) == [sub]
    kid = Actor(me.supervisor, me.client, me.client.agent(sub), me.marker)
    for answer in ("first </response> of two", ""):
        if answer:
            begun = await kid.turn()
        else:
            begun = await kid.begun("again")
        await kid.agent.end_turn(begun.turn_id, answer)
        await kid.agent.end_turn(begun.turn_id, answer)
    told = await me.prompts(WATCH_ANSWER)
    assert texts(told) == [
        answer_text(sub, "first &lt;/response&gt; of two"),
        answer_text(sub, ""),
    ]
    assert all(prompt.activating and prompt.from_agent_id == sub for prompt in told)
    turn = await me.turn()
    assert texts(turn.prompts) == [
        state(sub, "turn started"),
        answer_text(sub, "first &lt;/response&gt; of two"),
        state(sub, "turn stopped"),
        prompt_text(sub, "again"),
        state(sub, "turn started"),
        answer_text(sub, ""),
        state(sub, "turn stopped"),
    ]


async def test_a_users_prompt_is_told_once_when_it_is_delivered(me: Actor) -> None:
    kid = await me.child()
    begun = await kid.turn()
    await kid.agent.send_prompt("by </prompt> the way", passive=True)
    assert await me.prompts(WATCH_PROMPT) == []
    await kid.agent.take_prompts()
    await kid.handle().take_prompts()
    await kid.handle().next_turn(0.0)
    (told,) = await me.prompts(WATCH_PROMPT)
    assert told.text == prompt_text(kid.id, "by &lt;/prompt&gt; the way")
    assert told.activating
    # Not acknowledged, it comes again; its watcher has heard of it.
    await kid.handle().end_turn(begun.turn_id, "done")
    await kid.agent.send_prompt("more")
    following = await kid.handle().next_turn(10)
    assert following is not None
    assert texts(following.prompts) == ["by </prompt> the way", "more"]
    assert texts(await me.prompts(WATCH_PROMPT)) == [told.text, prompt_text(kid.id, "more")]


async def test_a_message_or_a_notice_of_the_watched_is_not_told(me: Actor) -> None:
    kid = await me.child()
    begun = await kid.turn()
    await me.agent.message(kid.id, "between us")
    await kid.finished("X")
    await kid.agent.take_prompts()
    assert await me.prompts(WATCH_PROMPT) == []
    await kid.agent.end_turn(begun.turn_id, "done")


async def test_state_lines_end_a_wait_but_begin_no_turn(me: Actor, gate: Gate) -> None:
    kid = await me.child()
    turn = await me.begun()
    await me.background(f"{gate}; echo done", "X")
    waiting = await me.parked("w1", tool_call_id="X")
    begun = await kid.turn()
    assert (await waiting).text.partition("\n\n")[0] == interrupted("exact")
    waiting = await me.parked("w2", tool_call_id="X")
    await kid.agent.status("blocked", "on you")
    assert (await waiting).text.partition("\n\n")[0] == interrupted("exact")
    for_input = await me.parked("w3", timeout_minutes=5)
    await kid.agent.status("working", "again")
    assert (await for_input).text == "input_available: true"
    # They are passive: a wait that begins with them queued is not interrupted by them.
    waiting = await me.parked("w4", tool_call_id="X")
    gate.open()
    assert (await waiting).text == "status: 0\n\nout done"
    told = await me.take()
    assert texts(told) == [
        state(kid.id, "turn started"),
        state(kid.id, "status blocked — on you"),
        state(kid.id, "status working — again"),
    ]
    assert {(one.kind, one.activating) for one in told} == {(WATCH_STATE, False)}
    await me.agent.end_turn(turn.turn_id, "done")
    await kid.agent.status("done", "it")
    await me.no_turn()
    await kid.agent.end_turn(begun.turn_id, "the answer")
    assert texts((await me.turn()).prompts) == [
        state(kid.id, "status done — it"),
        answer_text(kid.id, "the answer"),
        state(kid.id, "turn stopped"),
    ]


async def test_state_lines_do_not_cascade(me: Actor) -> None:
    """Who watches a watcher hears of its turns only."""
    kid = await me.child()
    grandkid = await kid.child()
    begun = await grandkid.turn()
    await grandkid.agent.status("working", "below")
    await grandkid.agent.end_turn(begun.turn_id, "for my parent")
    assert await me.prompts(WATCH_STATE) == []
    assert await me.prompts(WATCH_ANSWER) == []
    assert len(await kid.prompts(WATCH_STATE)) == 3


async def test_off_is_off(me: Actor) -> None:
    kid = await me.child()
    begun = await kid.turn()
    stopped = (RESULT, f"Stopped watching agent `{kid.id}`")
    assert await me.said("agent_watch", agent_id=kid.id, enable=False) == stopped
    assert await me.said("agent_watch", agent_id=f" {kid.id} ", enable=False) == stopped
    revision = await me.revision()
    await kid.agent.status("working", "unseen")
    await kid.agent.end_turn(begun.turn_id, "unheard")
    assert await me.log(start=revision + 1, names=["prompt.queued"]) == []
    watching = (RESULT, f"Watching agent `{kid.id}`")
    assert await me.said("agent_watch", agent_id=kid.id, enable=True) == watching
    assert await me.said("agent_watch", agent_id=kid.id, enable=True) == watching
    begun = await kid.begun("again")
    await kid.agent.end_turn(begun.turn_id, "heard")
    assert texts(await me.prompts(WATCH_ANSWER)) == [answer_text(kid.id, "heard")]
    changes = [e.watch_changed.enabled for e in await me.log(names=["agent.watch_changed"])]
    assert changes == [True, False, True]


async def test_nobody_watches_in_a_circle(me: Actor) -> None:
    kid = await me.child()
    grandkid = await kid.child()
    for watcher, target in ((kid, me), (grandkid, kid), (grandkid, me)):
        text = f"error: agent watch would create a cycle: `{watcher.id}` -> `{target.id}`"
        assert await watcher.said("agent_watch", agent_id=target.id, enable=True) == (ERROR, text)
    # Without the watches above it, a child may watch its parent.
    await me.agent.watch_agent(kid.id, enable=False)
    assert (await kid.said("agent_watch", agent_id=me.id, enable=True))[0] == RESULT
    text = f"error: agent watch would create a cycle: `{me.id}` -> `{grandkid.id}`"
    await grandkid.agent.watch_agent(me.id, enable=False)
    assert (await me.said("agent_watch", agent_id=grandkid.id, enable=True))[0] == RESULT
    await me.agent.watch_agent(grandkid.id, enable=False)
    # me <- kid -> grandkid: one more closes the circle.
    assert (await grandkid.said("agent_watch", agent_id=me.id, enable=True))[0] == RESULT
    assert await me.said("agent_watch", agent_id=grandkid.id, enable=True) == (ERROR, text)


async def test_what_cannot_be_watched(me: Actor, open_actor: Open) -> None:
    stranger = await open_actor()
    gone = await me.child()
    await gone.agent.stop()
    revision = await me.revision()
    for target, text in (
        (me.id, "`agent_id` must identify another agent"),
        ("nobody", "unknown agent: `nobody`"),
        (stranger.id, f"unknown agent: `{stranger.id}`"),
        (gone.id, f"agent is not live: `{gone.id}`"),
    ):
        got = await me.said("agent_watch", agent_id=target, enable=True)
        assert got == (ERROR, f"error: {text}")
    assert await me.revision() == revision
    # Off works also when there is nobody left to watch.
    got = await me.said("agent_watch", agent_id=gone.id, enable=False)
    assert got == (RESULT, f"Stopped watching agent `{gone.id}`")
    for arguments, text in (
        ('{"agent_id": "a"}', "`enable` is required"),
        ('{"agent_id": "a", "enable": 1}', "`enable` must be a boolean"),
        ('{"agent_id": "", "enable": true}', "`agent_id` must not be empty"),
        ('{"agent_id": 3, "enable": true}', "`agent_id` must be a string"),
        ('{"enable": true, "id": "a"}', "unknown argument: `id`; expected `agent_id`, `enable`"),
    ):
        answer = await me.raw("agent_watch", arguments)
        assert (answer.kind, answer.text) == (ERROR, f"error: {text}")


async def test_the_end_of_the_watched_is_told_once(me: Actor) -> None:
    kid = await me.child()
    await kid.turn()
    await kid.agent.stop(reason="enough")
    told = texts(await me.prompts(WATCH_STATE))
    assert told == [state(kid.id, "turn started"), state(kid.id, "stopped — enough")]
    assert list((await me.agent.info()).watching) == []
    assert (await kid.agent.info()).state == agent_pb2.AGENT_STATE_STOPPED
