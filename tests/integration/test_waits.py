"""All forms of wait, with real shells: each result is consumed once, and no wait hangs."""

from __future__ import annotations

import asyncio
import time

import pytest

from integration.harness import Shells, consumed
from pinfold import WaitAnswer
from pinfold.errors import AlreadyExistsError, InvalidRequestError, NotFoundError, StateError
from pinfold.v1 import agent_pb2

NOTHING = (
    "no background tool calls are running or completed in this conversation; "
    'use `wait({"timeout_minutes": N})` with a positive integer N to wait for new activating input'
)
INTERRUPTED = (
    "tau_internal: true\nwait_outcome: interrupted\nwait_reason: activating_input\n"
    "wait_mode: {}\n\n"
)


def waiting(
    shells: Shells, form: str, *arguments: object, **options: object
) -> asyncio.Task[WaitAnswer]:
    return asyncio.ensure_future(getattr(shells.agent, form)(*arguments, **options))


async def notices(shells: Shells) -> list[str]:
    """The calls whose notices are pending."""
    queued = await shells.log(names=["prompt.queued"])
    suppressed = {
        e.prompt_suppressed.prompt_id for e in await shells.log(names=["prompt.suppressed"])
    }
    return [
        e.prompt_queued.prompt.call_id
        for e in queued
        if e.prompt_queued.prompt.kind == agent_pb2.PROMPT_KIND_NOTICE
        and e.prompt_queued.prompt.prompt_id not in suppressed
    ]


async def test_exact(shells: Shells) -> None:
    await shells.start("sleep 0.2; echo x; exit 3", call_id="X")
    answer = await shells.agent.wait_exact(" X ")
    assert answer.text == "termination_reason: exit\nstatus: 3\n\nout x"
    assert await notices(shells) == []
    with pytest.raises(StateError) as caught:
        await shells.agent.wait_exact("X")
    assert caught.value.message == "result for tool call `X` already consumed"
    names = [event.name for event in await shells.log(call_id="X")]
    assert names.count("tool.background_result") == 1


async def test_exact_on_a_foreground_result(shells: Shells) -> None:
    await shells.run("true", call_id="F")
    with pytest.raises(StateError) as caught:
        await shells.agent.wait_exact("F")
    assert caught.value.message == "Tool call F returned normally, not backgrounded"
    with pytest.raises(StateError) as caught:
        await shells.agent.wait_exact("F")
    assert caught.value.message == "result for tool call `F` already consumed"


async def test_exact_on_a_call_that_is_still_in_the_foreground(shells: Shells) -> None:
    first = asyncio.ensure_future(shells.run("sleep 0.3; echo both", call_id="F"))
    await shells.until_event("call.started", call_id="F")
    answer = await shells.agent.wait_exact("F")
    assert answer.text == (await first).text == "status: 0\n\nout both"
    second = asyncio.ensure_future(
        shells.agent.run("sleep 0.5", call_id="G", foreground_budget=0.2)
    )
    await shells.until_event("call.started", call_id="G")
    answer = await shells.agent.wait_exact("G")
    assert answer.text == "status: 0"
    assert "is running in the background" in (await second).text
    assert consumed(await shells.log()) == {"G": 1}


async def test_sets(shells: Shells) -> None:
    await shells.start("sleep 0.2; exit 1", call_id="B")
    await shells.start("echo a", call_id="A")
    await shells.start("sleep 1000", call_id="C", grace=0.1)
    parked = waiting(shells, "wait_all", ["B", "A", "C"], wait_id="all")
    await shells.installed("all")
    await shells.ended("B")
    assert not parked.done()
    await shells.cancel("C")
    answer = await parked
    assert [result.call_id for result in answer.results] == ["B", "A", "C"]
    assert answer.results[2].error == "Tool call canceled"
    assert answer.text.startswith("results: 3\n\n<result>\noriginal_tool_call_id: B\n")
    assert consumed(await shells.log()) == {"A": 1, "B": 1, "C": 1}
    with pytest.raises(StateError):
        await shells.agent.wait_all(["A"])


async def test_one_bad_member_rejects_the_set(shells: Shells) -> None:
    await shells.start("true", call_id="A")
    await shells.ended("A")
    for bad in ("nope", "A", " "):
        with pytest.raises((NotFoundError, InvalidRequestError)):
            await shells.agent.wait_all(["A", bad])
    for ids in ([], [f"c{n}" for n in range(65)]):
        with pytest.raises(InvalidRequestError, match="1 to 64 ids"):
            await shells.agent.wait_all(ids)
    assert await notices(shells) == ["A"]
    assert (await shells.agent.wait_exact("A")).text == "status: 0"
    assert await notices(shells) == []


async def test_sixty_four(shells: Shells) -> None:
    ids = [await shells.start(f"exit {n}") for n in range(64)]
    answer = await shells.agent.wait_all(ids)
    assert [result.exit_code for result in answer.results] == list(range(64))


async def test_any_of_a_set(shells: Shells) -> None:
    await shells.start("sleep 0.2; echo fast", call_id="F")
    await shells.start("sleep 0.6; echo slow", call_id="S")
    answer = await shells.agent.wait_any(["S", "F"])
    assert [result.call_id for result in answer.results] == ["F"]
    assert answer.text.startswith("original_tool_call_id: F\n")
    answer = await shells.agent.wait_any(["S"])
    assert [result.call_id for result in answer.results] == ["S"]


async def test_bare(shells: Shells) -> None:
    with pytest.raises(StateError) as caught:
        await shells.agent.wait_any_background()
    assert caught.value.message == NOTHING
    await shells.start("sleep 0.3; echo a", call_id="A")
    await shells.start("echo b", call_id="B")
    await shells.ended("A")
    texts = [(await shells.agent.wait_any_background()).text for _ in range(2)]
    assert texts == [
        "original_tool_call_id: B\nstatus: 0\n\nout b",
        "original_tool_call_id: A\nstatus: 0\n\nout a",
    ]


async def test_bare_beside_a_foreground_call(shells: Shells) -> None:
    call_id = await shells.detach("sleep 0.5")
    with pytest.raises(StateError) as caught:
        await shells.agent.wait_any_background()
    assert caught.value.message == NOTHING
    await shells.ended(call_id)


async def test_bare_and_exact_on_the_only_call(shells: Shells) -> None:
    await shells.start("sleep 1000", call_id="X", grace=0.1)
    bare = waiting(shells, "wait_any_background", wait_id="bare")
    exact = waiting(shells, "wait_exact", "X", wait_id="exact")
    await shells.installed("bare")
    await shells.installed("exact")
    for form, text in (
        (
            shells.agent.wait_any_background(),
            "existing wait for a background tool call in this conversation already in progress",
        ),
        (shells.agent.wait_exact("X"), "existing wait for this tool already in progress"),
        (shells.agent.wait_all(["X"]), "existing wait for this tool already in progress"),
    ):
        with pytest.raises(StateError) as caught:
            await form
        assert caught.value.message == text
    await shells.cancel("X")
    assert (await exact).text.startswith("error: Tool call canceled")
    with pytest.raises(StateError) as caught:
        await bare
    assert caught.value.message == NOTHING


async def test_an_interruption_and_the_retry(shells: Shells) -> None:
    await shells.start("sleep 1; echo x", call_id="X")
    await shells.start("sleep 1; echo y", call_id="Y")
    parked = [
        (waiting(shells, "wait_exact", "X", wait_id="w1"), "w1", "exact"),
        (waiting(shells, "wait_all", ["Y"], wait_id="w2"), "w2", "exact_all"),
        (waiting(shells, "wait_any_background", wait_id="w3"), "w3", "any_background"),
    ]
    for_input = waiting(shells, "wait_for_input", wait_id="w4")
    for wait_id in ("w1", "w2", "w3", "w4"):
        await shells.installed(wait_id)
    await shells.agent.send_prompt("look here")
    for task, _, mode in parked:
        answer = await task
        assert answer.interrupted
        assert answer.text.startswith(INTERRUPTED.format(mode))
        assert "look here" not in answer.text
    answer = await for_input
    assert answer.input_available
    assert answer.text == "input_available: true"
    # Still there: the next wait is interrupted at once, a ready result is not.
    assert (await shells.agent.wait_exact("X")).interrupted
    await shells.ended("X")
    assert (await shells.agent.wait_exact("X")).text == "status: 0\n\nout x"
    # The notice of Y has come back, since nothing covers it any more.
    await shells.ended("Y")
    assert await notices(shells) == ["Y"]
    turn = await shells.agent.next_turn(0.0)
    assert turn is not None
    assert turn.prompts[0].text == "look here"
    await shells.agent.end_turn(turn.turn_id, "done")
    assert (await shells.agent.wait_exact("Y")).text == "status: 0\n\nout y"
    assert consumed(await shells.log()) == {"X": 1, "Y": 1}


async def test_running_out_of_time_is_an_answer(shells: Shells) -> None:
    await shells.start("sleep 0.6", call_id="X")
    begun = time.monotonic()
    for answer in await asyncio.gather(
        shells.agent.wait_exact("X", timeout=0.2), shells.agent.wait_for_input(timeout=0.2)
    ):
        assert answer.timed_out
        assert answer.text == "timed_out: true"
    assert 0.15 < time.monotonic() - begun < 0.5
    assert (await shells.agent.wait_all(["X"], timeout=0.0)).timed_out
    assert (await shells.agent.wait_any_background(timeout=5.0)).results


async def test_advice_after_three(shells: Shells) -> None:
    answers = [await shells.agent.wait_for_input(timeout=0.01) for _ in range(4)]
    assert [bool(answer.message.advice) for answer in answers] == [False, False, True, False]
    assert answers[2].text.startswith("timed_out: true\nadvice: ")
    await shells.run("true")
    answers = [await shells.agent.wait_for_input(timeout=0.01) for _ in range(3)]
    assert bool(answers[2].message.advice)


async def test_the_same_wait_id_again(shells: Shells) -> None:
    await shells.start("echo x", call_id="X")
    first = await shells.agent.wait_exact("X", wait_id="W")
    again = await shells.agent.wait_exact("X", wait_id="W")
    assert first.message == again.message
    with pytest.raises(AlreadyExistsError) as caught:
        await shells.agent.wait_exact("Y", wait_id="W")
    assert caught.value.reason == "WAIT_ID_REUSED"
    await shells.start("sleep 0.4; echo z", call_id="Z")
    views = await asyncio.gather(*(shells.agent.wait_exact("Z", wait_id="V") for _ in range(5)))
    assert {view.text for view in views} == {"status: 0\n\nout z"}
    assert consumed(await shells.log()) == {"X": 1, "Z": 1}
    # A refusal is the same, too.
    await shells.run("true", call_id="F")
    for _ in range(2):
        with pytest.raises(StateError, match="returned normally"):
            await shells.agent.wait_exact("F", wait_id="R")


async def test_an_end_of_the_agent_ends_its_waits(shells: Shells) -> None:
    agent = await shells.client.open_agent()
    call = await agent.start("sleep 1000", background=True, grace=0.1)
    parked = asyncio.ensure_future(agent.wait_exact(call.call_id))
    async for event in shells.client.events(1, agents=[agent.agent_id], names=["wait.installed"]):
        assert event.wait_installed.call_ids == [call.call_id]
        break
    await agent.stop()
    with pytest.raises(StateError) as caught:
        await parked
    assert caught.value.reason == "AGENT_STOPPED"


async def test_what_belongs_to_another_is_unknown(shells: Shells) -> None:
    other = await shells.client.open_agent()
    await shells.start("sleep 0.3; echo mine", call_id="X")
    for attempt in (other.wait_exact("X"), other.wait_all(["X"]), other.get("X")):
        with pytest.raises(NotFoundError) as caught:
            await attempt
        assert caught.value.message == "unknown tool call: `X`"
    with pytest.raises(NotFoundError, match="^Unknown tool call id$"):
        await other.cancel("X")
    with pytest.raises(StateError) as refused:
        await other.wait_any_background()
    assert refused.value.message == NOTHING
    for foreign in (other.agent_id, "W"):
        with pytest.raises(NotFoundError, match="^Unknown tool call id$"):
            await shells.agent.cancel(foreign)
    assert (await shells.agent.wait_exact("X")).text.endswith("out mine")
    await other.stop()


async def test_a_wait_cannot_be_waited_for_or_cancelled_as_a_call(shells: Shells) -> None:
    await shells.start("sleep 0.5", call_id="X")
    parked = waiting(shells, "wait_exact", "X", wait_id="W")
    await shells.installed("W")
    with pytest.raises(NotFoundError, match="unknown tool call: `W`"):
        await shells.agent.wait_exact("W")
    with pytest.raises(StateError) as caught:
        await shells.agent.cancel("W")
    assert caught.value.message == "Tool call is not a running cancellable tool call"
    assert (await parked).text == "status: 0"
