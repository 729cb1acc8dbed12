"""Turns: prompts are delivered until they are acknowledged, whoever drives the agent."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from agents.conftest import Open
from agents.harness import CANCELLED, NOTICE, USER, WATCH_ANSWER, Actor, notice, texts
from pinfold.errors import NotFoundError, PinfoldError, StateError
from pinfold.v1 import agent_pb2, call_pb2
from tasks.harness import Gate

pytestmark = pytest.mark.timeout(120)


async def test_a_delivery_is_repeated_until_it_is_acknowledged(me: Actor) -> None:
    await me.agent.send_prompt("one")
    first, second, third = me.handle(), me.handle(), me.handle()
    begun = await first.next_turn(10)
    again = await second.next_turn(10)
    assert begun is not None
    assert again is not None
    assert (begun.resumed, again.resumed) == (False, True)
    assert (again.turn_id, again.delivery_id) == (begun.turn_id, begun.delivery_id)
    assert texts(again.prompts) == texts(begun.prompts) == ["one"]
    await me.agent.send_prompt("two")
    # Nothing new before the first is acknowledged.
    assert texts((await third.take_prompts()).prompts) == ["one"]
    assert texts((await second.take_prompts()).prompts) == ["two"]
    assert texts((await me.handle().take_prompts()).prompts) == ["two"]
    await second.end_turn(begun.turn_id, "done")
    await me.no_turn()


async def test_what_a_turn_did_not_acknowledge_begins_the_next(me: Actor) -> None:
    begun = await me.begun("one")
    await me.handle().end_turn(begun.turn_id, "done")
    again = await me.handle().next_turn(10)
    assert again is not None
    assert again.turn_id != begun.turn_id
    assert (texts(again.prompts), again.resumed) == (["one"], False)


async def test_the_end_of_a_turn_can_be_sent_again(me: Actor) -> None:
    begun = await me.begun()
    await me.agent.end_turn(begun.turn_id, "done")
    await me.agent.end_turn(begun.turn_id, "done")
    ends = await me.log(names=["agent.turn_ended"])
    assert [event.turn_ended.answer for event in ends] == ["done"]
    with pytest.raises(PinfoldError) as caught:
        await me.agent.end_turn("t-0", "done")
    assert caught.value.reason == "TURN_UNKNOWN"


async def test_it_waits_for_activating_input(me: Actor) -> None:
    waiting = asyncio.ensure_future(me.agent.next_turn(None))
    await me.agent.send_prompt("by the way", passive=True)
    await me.handle().take_prompts()
    assert not waiting.done()
    await me.agent.send_prompt("now")
    turn = await waiting
    assert turn is not None
    # What is passive rides along, in its order.
    assert texts(turn.prompts) == ["by the way", "now"]
    assert [prompt.activating for prompt in turn.prompts] == [False, True]
    assert {prompt.kind for prompt in turn.prompts} == {USER}


async def test_the_end_of_its_agent_ends_the_waiting_for_a_turn(me: Actor) -> None:
    waiting = asyncio.ensure_future(me.agent.next_turn(None))
    await me.handle().take_prompts()
    await me.agent.stop()
    with pytest.raises(StateError) as caught:
        await waiting
    assert caught.value.reason == "AGENT_STOPPED"


async def test_a_passive_prompt_interrupts_no_wait(me: Actor, gate: Gate) -> None:
    turn = await me.begun()
    await me.background(f"{gate}; echo done", "X")
    exact = await me.parked("w", tool_call_id="X")
    await me.agent.send_prompt("by the way", passive=True)
    assert not exact.done()
    gate.open()
    assert (await exact).text == "status: 0\n\nout done"
    assert texts(await me.take()) == ["by the way"]
    await me.agent.end_turn(turn.turn_id, "done")


DRIVER = """
import asyncio, sys
from pinfold import Client

async def main():
    async with Client.connect() as client:
        agent = client.agent(sys.argv[1])
        turn = await agent.next_turn()
        await agent.take_prompts()
        await agent.start("sleep 1000000", call_id="X", background=True)
        await agent.send_prompt("while it lived")
        taken = await agent.take_prompts()
        print(turn.turn_id, taken.delivery_id, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_a_driver_that_is_killed_in_a_turn_is_replaced(me: Actor) -> None:
    await me.agent.send_prompt("one")
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, me.id],
        env=me.supervisor.env | {"PINFOLD_ADDRESS": me.supervisor.address},
        stdout=subprocess.PIPE,
    )
    assert driver.stdout is not None
    turn_id, delivery_id = (await asyncio.to_thread(driver.stdout.readline)).decode().split()
    driver.kill()
    driver.wait()
    driver.stdout.close()
    await me.agent.send_prompt("after its death")
    turn = await me.turn()
    assert (turn.turn_id, turn.resumed, turn.delivery_id) == (turn_id, True, delivery_id)
    assert texts(turn.prompts) == ["while it lived"]  # "one" was acknowledged
    assert texts(await me.take()) == ["after its death"]
    # Its call lives on, and is the agent's still.
    assert (await me.tool("cancel", tool_call_id="X")).text == "Tool cancellation requested"
    answer = await me.tool("wait", tool_call_id="X")
    assert answer.text.startswith("error: Tool call canceled")
    await me.agent.end_turn(turn.turn_id, "done")
    assert (await me.agent.info()).state == agent_pb2.AGENT_STATE_IDLE


class TestUserCancel:
    async def test_calls_end_with_passive_notices_and_no_turn_begins(
        self, me: Actor, open_actor: Open, gate: Gate
    ) -> None:
        other = await open_actor(max_running_calls=1)
        await other.background(f"{gate}; echo first", "first")
        await other.background("echo second", "second")
        turn = await me.begun()
        await me.background("sleep 1000000", "BG")
        foreground = asyncio.ensure_future(
            me.agent.run("sleep 1000000", call_id="FG", foreground_budget=600)
        )
        tool = asyncio.ensure_future(me.tool("shell", "T", command="sleep 1000000"))
        await me.happened("call.started", "FG")
        await me.happened("call.started", "T")
        waiting = await me.parked("w", tool_call_id="BG")
        revision = await me.revision()
        assert await me.agent.cancel_turn(reason="changed my mind") == 3

        # The driver hears of it in all ways that it may be listening.
        assert (await waiting).kind == CANCELLED
        assert (await foreground).state == call_pb2.CALL_STATE_CANCELLED
        assert (await tool).text.startswith("error: Tool call canceled")
        assert (await me.agent.take_prompts()).turn_cancelled
        assert (await me.terminal("BG")).name == "tool.background_error"
        assert (await me.terminal("FG")).name == "tool.cancelled"
        (told,) = await me.prompts(NOTICE)
        assert (told.call_id, told.activating, told.internal) == ("BG", False, True)
        await me.no_turn()

        events = await me.log(start=revision)
        asked = [e.cancel_requested for e in events if e.HasField("cancel_requested")]
        assert {(one.by, one.reason) for one in asked} == {("user", "changed my mind")}
        assert len(asked) == 3
        assert {e.notice.text for e in events if e.name == "harness.notice"} == {
            "tool call cancellation request"
        }
        ended = [e.turn_ended for e in events if e.HasField("turn_ended")]
        assert [(one.turn_id, one.cancelled, one.answer) for one in ended] == [
            (turn.turn_id, True, "")
        ]

        # The next prompt carries the notice before the user's text.
        following = await me.begun("and now?")
        assert texts(following.prompts) == [notice("BG"), "and now?"]
        answer = await me.tool("wait")
        assert answer.text.startswith("error: Tool call canceled\noriginal_tool_call_id: BG\n")

        # Nobody else is touched.
        gate.open()
        await other.ended("second")
        assert texts(await other.prompts(NOTICE)) == [notice("first"), notice("second")]
        assert texts((await other.turn()).prompts)[0] == notice("first")

    async def test_what_was_delivered_begins_nothing_anew_but_is_not_lost(self, me: Actor) -> None:
        await me.agent.send_prompt("one")
        await me.handle().next_turn(10)
        await me.agent.cancel_turn()
        await me.no_turn()
        turn = await me.begun("two")
        assert texts(turn.prompts) == ["one", "two"]

    async def test_the_late_end_of_a_cancelled_turn_is_no_answer(self, me: Actor) -> None:
        kid = await me.child()
        begun = await kid.turn()
        await kid.agent.cancel_turn()
        await kid.agent.end_turn(begun.turn_id, "late")
        assert await me.prompts(WATCH_ANSWER) == []
        ends = await kid.log(names=["agent.turn_ended"])
        assert [event.turn_ended.cancelled for event in ends] == [True]

    async def test_outside_of_a_turn_it_ends_the_calls(self, me: Actor) -> None:
        await me.background("sleep 1000000", "X")
        assert await me.agent.cancel_turn() == 1
        await me.ended("X")
        await me.no_turn()


async def test_an_unknown_agent_has_no_turns(me: Actor) -> None:
    with pytest.raises(NotFoundError):
        await me.client.agent("nobody").next_turn(1)
