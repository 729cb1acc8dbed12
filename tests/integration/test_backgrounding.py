"""The foreground budget, placeholders, notices, queueing (docs/contract.md)."""

from __future__ import annotations

import asyncio
import time

import pytest

from integration.harness import Shells
from pinfold import Placeholder, Result
from pinfold.errors import AlreadyExistsError, StateError
from pinfold.v1 import agent_pb2, call_pb2, tool_service_pb2


async def test_within_two_seconds_it_is_a_result(shells: Shells) -> None:
    answer = await shells.agent.run("sleep 0.5; echo fine")
    assert isinstance(answer, Result)
    assert answer.text == "status: 0\n\nout fine"
    names = {event.name for event in await shells.log(call_id=answer.call_id)}
    assert "call.backgrounded" not in names
    assert "prompt.queued" not in names


async def test_after_two_seconds_it_is_in_the_background(shells: Shells) -> None:
    begun = time.monotonic()
    answer = await shells.agent.run("sleep 2.5; echo late", call_id="X")
    assert 1.9 <= time.monotonic() - begun < 2.4
    assert isinstance(answer, Placeholder)
    assert answer.call_id == "X"
    assert answer.text == ("tau_internal: true\n\nTool call `X` is running in the background.")
    turn = await shells.agent.next_turn(5.0)
    assert turn is not None
    [prompt] = turn.prompts
    assert prompt.text == (
        "[tau-internal] Tool call `X` completed. Its result is queued; use `wait` to consume it."
    )
    assert (prompt.kind, prompt.activating, prompt.internal, prompt.call_id) == (
        agent_pb2.PROMPT_KIND_NOTICE,
        True,
        True,
        "X",
    )
    # The notice was delivered and consumed nothing.
    result = await shells.agent.wait_exact("X")
    assert result.text == "status: 0\n\nout late"
    names = [event.name for event in await shells.log(call_id="X")]
    assert names.count("tool.background_result") == 1
    assert names.count("prompt.queued") <= 1


async def test_a_budget_of_its_own(shells: Shells) -> None:
    answer = await shells.agent.run("sleep 0.4", foreground_budget=0.1)
    assert isinstance(answer, Placeholder)
    assert (await shells.agent.wait_exact(answer.call_id)).text == "status: 0"
    answer = await shells.agent.run("sleep 2.2", foreground_budget=5.0)
    assert isinstance(answer, Result)


async def test_the_budget_begins_with_the_execution(shells: Shells) -> None:
    agent = await shells.client.open_agent(max_running_calls=1)
    first = asyncio.ensure_future(agent.run("sleep 0.6", foreground_budget=30.0))
    second = asyncio.ensure_future(agent.run("sleep 0.3; echo second", foreground_budget=0.5))
    answer = await second
    assert isinstance(answer, Result)
    assert answer.text.endswith("out second")
    await first
    await agent.stop()


async def test_calls_queue_in_order(shells: Shells, tmp_path: object) -> None:
    agent = await shells.client.open_agent(max_running_calls=2)
    script = f"echo $PINFOLD_CALL_ID >> {tmp_path}/order; ls {tmp_path} >/dev/null; sleep 0.05"
    calls = [await agent.start(script, call_id=f"c{n:02}", background=True) for n in range(10)]
    states = [call.state for call in await agent.list()]
    assert states.count(call_pb2.CALL_STATE_RUNNING) <= 2
    answer = await agent.wait_all([call.call_id for call in calls])
    assert [result.call_id for result in answer.results] == [f"c{n:02}" for n in range(10)]
    events = [
        event.call_id
        async for event in shells.client.events(
            1, agents=[agent.agent_id], names=["call.starting"], stop_at_end=True
        )
    ]
    assert events == sorted(events)
    await agent.stop()


async def test_an_exclusive_call_overlaps_with_no_other(shells: Shells, tmp_path: object) -> None:
    log = f"{tmp_path}/log"
    mark = f"echo b$PINFOLD_CALL_ID >> {log}; sleep 0.15; echo e$PINFOLD_CALL_ID >> {log}"
    await asyncio.gather(
        shells.run(mark, call_id="1"),
        shells.run(mark, call_id="2", exclusive=True),
        shells.run(mark, call_id="3", exclusive=True),
        shells.run(mark, call_id="4"),
    )
    with open(log) as file:
        lines = file.read().split()
    for number in "23":
        begin = lines.index(f"b{number}")
        assert lines[begin + 1] == f"e{number}"


async def test_the_same_id_again(shells: Shells) -> None:
    first = await shells.run("echo $RANDOM$RANDOM", call_id="same")
    again = await shells.run("echo $RANDOM$RANDOM", call_id="same")
    assert first.text == again.text
    with pytest.raises(AlreadyExistsError) as caught:
        await shells.run("echo other", call_id="same")
    assert caught.value.reason == "CALL_ID_REUSED"
    assert caught.value.message == (
        "tool call id `same` was already used with other arguments; use a new id"
    )
    # A second view of a call that is in the background gets the placeholder, too.
    await shells.start("sleep 0.5", call_id="bg")
    again_bg = await shells.agent.run("sleep 0.5", call_id="bg", background=True)
    assert isinstance(again_bg, Placeholder)


async def test_no_surface_no_background(shells: Shells) -> None:
    agent = await shells.client.open_agent(surface="none")
    with pytest.raises(StateError) as caught:
        await agent.run("touch /tmp/never", background=True)
    assert caught.value.message == "background tasks unavailable: no control surface is attached"
    answer = await agent.run("sleep 0.5; echo here", foreground_budget=0.1)
    assert isinstance(answer, Result)
    await agent.stop()


async def test_the_tool_answers_with_the_same_texts(shells: Shells) -> None:
    tools = shells.client.connection.tools
    request = tool_service_pb2.CallToolRequest(
        agent_id=shells.id,
        tool_call_id="T",
        name="shell",
        arguments_json='{"command": "sleep 0.2; exit 3", "background": true}',
    )
    answer = await tools.CallTool(request)
    assert answer.kind == tool_service_pb2.TOOL_ANSWER_KIND_BACKGROUND_PLACEHOLDER
    assert answer.text == "tau_internal: true\n\nTool call `T` is running in the background."
    request = tool_service_pb2.CallToolRequest(
        agent_id=shells.id, tool_call_id="W", name="wait", arguments_json='{"tool_call_id": " T "}'
    )
    answer = await tools.CallTool(request)
    assert answer.text == "termination_reason: exit\nstatus: 3"
    again = await tools.CallTool(request)
    assert again == answer


async def test_a_lost_view_does_not_end_the_call(shells: Shells) -> None:
    view = asyncio.ensure_future(shells.agent.run("sleep 0.5; echo whole", call_id="V"))
    await shells.until_event("call.started", call_id="V")
    view.cancel()
    with pytest.raises(asyncio.CancelledError):
        await view
    result = await shells.run("sleep 0.5; echo whole", call_id="V", foreground_budget=None)
    assert result.text == "status: 0\n\nout whole"


async def test_a_thousand_calls_leave_nothing(shells: Shells) -> None:
    from integration.harness import descriptors

    info = await shells.client.info()
    before = descriptors(info.pid), descriptors(info.keeper_pid)
    for _ in range(20):
        answers = await asyncio.gather(*(shells.run("echo $((6*7))") for _ in range(50)))
        assert {answer.text for answer in answers} == {"status: 0\n\nout 42"}
    assert shells.survivors() == []
    after = descriptors(info.pid), descriptors(info.keeper_pid)
    assert after[0] <= before[0] + 5
    assert after[1] <= before[1] + 5
