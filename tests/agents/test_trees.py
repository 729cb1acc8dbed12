"""Trees of agents: what one stop or cancel ends, and what it leaves alone."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest

from agents.conftest import Open
from agents.harness import ERROR, NOTICE, RESULT, Actor
from integration.harness import Event
from pinfold.errors import StateError
from pinfold.v1 import agent_pb2, call_pb2
from support import eventually, is_zombie, processes_with
from tasks.harness import Gate

pytestmark = pytest.mark.timeout(120)

SETTINGS = "[shell]\nforeground_budget = 0.4\n"

TREE = "TEST_OF_TREES"

# Each has two processes; the second one leaves its session, and in the last both ignore TERM.
ESCAPES = (
    "setsid sleep 1000000 & exec sleep 1000000",
    "(setsid sleep 1000000 &) ; exec sleep 1000000",
    "trap '' TERM; setsid sleep 1000000 & sleep 1000000; sleep 1000000",
)
PER_LEVEL = 1 + 2 * len(ESCAPES) + 1  # the last shell does not exec
ESCAPED = len(ESCAPES)


class Grove:
    """A chain of agents, each with shells that do not end by themselves."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.levels: list[Actor] = []

    @classmethod
    async def grow(cls, root: Actor, depth: int, **options: str) -> Grove:
        grove = cls()
        parent = root
        for level in range(depth):
            parent = await parent.child(**(options if level == 0 else {}))
            grove.levels.append(parent)
            await parent.agent.run(
                "exec sleep 1000000",
                call_id="plain",
                background=True,
                env={TREE: grove.mark},
                grace=0.3,
            )
            for number, script in enumerate(ESCAPES):
                await parent.agent.run(
                    script,
                    call_id=f"escape-{number}",
                    background=True,
                    env={TREE: grove.mark},
                    grace=0.3,
                )
        wanted = PER_LEVEL * depth
        found = await asyncio.to_thread(
            eventually, lambda: len(grove.processes()) == wanted and grove.processes(), 30.0
        )
        assert found, f"{len(grove.processes())} processes instead of {wanted}"
        return grove

    @property
    def top(self) -> Actor:
        return self.levels[0]

    def processes(self) -> list[int]:
        return processes_with(TREE, self.mark)

    async def workers(self) -> list[int]:
        pids = [(await actor.agent.info()).worker_pid for actor in self.levels]
        assert all(pids)
        return pids

    async def processes_and_workers(self) -> tuple[set[int], list[int]]:
        return set(self.processes()), await self.workers()

    async def states(self) -> set[int]:
        return {(await actor.agent.info()).state for actor in self.levels}


STOPPED = agent_pb2.AGENT_STATE_STOPPED


async def test_one_stop_ends_a_tree_and_leaves_its_sibling_alone(me: Actor, gate: Gate) -> None:
    tree = await Grove.grow(me, 3)
    sibling = await Grove.grow(me, 2)
    await sibling.levels[1].background(f"{gate}; echo untouched", "X")
    workers, others = await tree.workers(), await sibling.processes_and_workers()
    answer = await tree.top.agent.stop(reason="no longer needed")

    # It answers when nothing is left, with one receipt over all of it.
    assert tree.processes() == []
    assert all(is_zombie(pid) for pid in workers)
    assert answer.agent.state == STOPPED
    assert (answer.stopped_agents, answer.ended_calls) == (3, 3 * (1 + len(ESCAPES)))
    assert answer.receipt.ended_processes >= 3 * PER_LEVEL
    assert answer.receipt.escaped_processes >= 3 * ESCAPED
    assert list(answer.receipt.surviving_pids) == []
    assert answer.receipt.HasField("duration")
    assert await tree.states() == {STOPPED}

    events = await me.tree("agent.stopped", "agent.failed")
    ended = [event.agent_id for event in events]
    assert ended == [actor.id for actor in reversed(tree.levels)], "not from the leaves"
    for actor in tree.levels:
        for call in await actor.agent.list():
            assert call.state == call_pb2.CALL_STATE_CANCELLED
            assert call.result.cancel_reason == "no longer needed"
            assert call.result.receipt.proof
            assert not call.result.receipt.survivors
        assert await actor.prompts(NOTICE) == []

    # Beside it and above it all goes on.
    assert await sibling.processes_and_workers() == others
    gate.open()
    await sibling.levels[1].ended("X")
    assert (await sibling.levels[1].agent.wait_exact("X")).text == "status: 0\n\nout untouched"
    assert (await me.agent.info()).state == agent_pb2.AGENT_STATE_IDLE
    assert await me.prompts(NOTICE) == []

    # Again it is the same, and there is nothing more to end.
    again = await tree.top.agent.stop()
    assert (again.stopped_agents, again.ended_calls) == (0, 0)
    assert again.receipt.ended_processes == 0


async def test_a_stop_in_the_middle_ends_what_is_below_only(me: Actor) -> None:
    tree = await Grove.grow(me, 3)
    top, middle, _ = tree.levels
    answer = await middle.agent.stop()
    assert (answer.stopped_agents, answer.ended_calls) == (2, 2 * (1 + len(ESCAPES)))
    assert len(tree.processes()) == PER_LEVEL
    assert (await top.agent.info()).state == agent_pb2.AGENT_STATE_IDLE
    assert {call.state for call in await top.agent.list()} == {call_pb2.CALL_STATE_RUNNING}
    # Its parent hears that it has stopped, once, and nothing of what was below.
    told = await top.prompts(agent_pb2.PROMPT_KIND_WATCH_STATE)
    assert [prompt.from_agent_id for prompt in told] == [middle.id]


async def test_stops_at_the_same_time_all_answer_when_it_is_over(me: Actor) -> None:
    tree = await Grove.grow(me, 3)
    answers = await asyncio.gather(
        *(actor.handle().stop() for actor in tree.levels for _ in range(2))
    )
    assert tree.processes() == []
    assert {answer.agent.state for answer in answers} == {STOPPED}
    assert sum(answer.stopped_agents for answer in answers) == 3


async def test_the_cancel_of_an_agent_that_is_a_call_ends_its_tree(me: Actor, gate: Gate) -> None:
    tree = await Grove.grow(me, 3, mode="call", call_id="D")
    survivor = await Grove.grow(me, 1, mode="call", call_id="S")
    await me.background(f"{gate}; echo mine", "X")
    waiting = await me.parked("w", tool_call_id="D")
    workers = await tree.workers()
    assert await me.said("cancel", tool_call_id="D") == (RESULT, "Tool cancellation requested")
    answer = await waiting
    assert tree.processes() == []
    assert all(is_zombie(pid) for pid in workers)
    assert answer.kind == ERROR
    head = answer.text.partition("\n\n")[0].split("\n")
    assert head[:3] == [
        "error: Tool call canceled",
        f"self_agent_id: {me.id}",
        f"sub_agent_id: {tree.top.id}",
    ]
    assert await tree.states() == {STOPPED}
    # Nothing of what was inside is the parent's.
    assert await me.said("wait", tool_call_id="plain") == (
        ERROR,
        "error: unknown tool call: `plain`",
    )
    assert await me.prompts(NOTICE) == []
    assert await me.said("wait", tool_call_id="D") == (
        ERROR,
        "error: result for tool call `D` already consumed",
    )
    assert await me.said("cancel", tool_call_id="D") == (ERROR, "error: Tool call already canceled")
    assert (await me.said("cancel", tool_call_id=tree.top.id)) == (
        ERROR,
        f"error: Unknown tool call id\ntool_call_id: {tree.top.id}",
    )
    # The other delegate, and the parent's own call, go on.
    assert len(survivor.processes()) == PER_LEVEL
    begun = await survivor.top.turn()
    await survivor.top.agent.end_turn(begun.turn_id, "unaffected")
    assert await me.said("wait", tool_call_id="S") == (RESULT, "unaffected")
    gate.open()
    assert await me.said("wait", tool_call_id="X") == (RESULT, "status: 0\n\nout mine")
    await survivor.top.happened("agent.stopped")
    assert survivor.processes() == []
    assert await me.said("cancel", tool_call_id="S") == (ERROR, "error: Tool call is already done")


async def test_a_scripted_tree_is_ended_by_one_stop(me: Actor) -> None:
    """Agents that start each other, with their workers in the middle of their turns."""
    await me.child(
        "shell setsid sleep 1000000 & exec sleep 1000000\n"
        "agent\n"
        "  shell exec sleep 1000000\n"
        "  agent\n"
        "    shell exec sleep 1000000\n"
        "    sleep 1000\n"
        "  sleep 1000\n"
        "sleep 1000",
        role="scripted",
    )
    started: set[str] = set()

    def all_started(event: Event) -> bool:
        if event.name == "call.started":
            started.add(event.agent_id)
        return len(started) == 3

    await me.until(all_started, "shells at all three levels")
    assert len(me.survivors()) >= 4
    answer = await me.agent.stop()
    assert me.survivors() == []
    assert answer.stopped_agents == 4
    with pytest.raises(StateError):
        await me.tool("shell", command="echo")


async def test_a_stop_while_workers_are_being_started(me: Actor) -> None:
    kids = await asyncio.gather(*(me.child("sleep 1000", role="scripted") for _ in range(6)))
    answer = await me.agent.stop()
    assert answer.stopped_agents == 7
    for kid in kids:
        assert (await kid.agent.info()).state == STOPPED
    assert me.survivors() == []


async def test_waits_and_turns_below_end_with_the_tree(
    me: Actor, gates: Callable[[], Gate]
) -> None:
    kid = await me.child()
    await kid.agent.end_turn((await kid.turn()).turn_id, "done")
    await kid.background(f"{gates()}", "X")
    exact = await kid.parked("w", tool_call_id="X")
    turn = asyncio.ensure_future(kid.handle().next_turn(None))
    foreground = asyncio.ensure_future(
        kid.agent.run("sleep 1000000", call_id="FG", foreground_budget=600)
    )
    await kid.happened("call.started", "FG")
    await me.agent.stop()
    for parked in (exact, turn):
        with pytest.raises(StateError) as caught:
            await parked
        assert caught.value.reason == "AGENT_STOPPED"
    result = await foreground
    assert result.state == call_pb2.CALL_STATE_CANCELLED


async def test_its_name_can_be_used_again_for_another_agent(open_actor: Open) -> None:
    """Nothing of the first is left to be told, or to answer, to the second."""
    first = await open_actor(agent_id="again-and-again")
    await first.background("sleep 1000000", "X")
    old = await first.parked("w", timeout_minutes=5)
    await first.agent.send_prompt("for the first", passive=True)
    await first.agent.stop()
    with pytest.raises(StateError):
        await old
    second = await open_actor(agent_id="again-and-again")
    await second.no_turn()
    assert (await second.tool("wait", tool_call_id="X")).reason == "CALL_UNKNOWN"
    new = await second.parked("w", timeout_minutes=5)
    await second.agent.message(second.id, "for the second")
    assert (await new).text == "input_available: true"
    assert [prompt.body for prompt in (await second.turn()).prompts] == ["for the second"]
    assert [call.call_id for call in await second.agent.list()] == []
