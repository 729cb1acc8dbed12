"""A client that goes away takes nothing with it, and nothing is consumed for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from integration.harness import Shells, consumed, descriptors, error_info
from pinfold.v1 import call_service_pb2
from support import eventually

WAITER = """
import asyncio, sys, pinfold
async def main(address, agent, form, *ids):
    async with pinfold.Client.connect(address, token="") as client:
        handle = client.agent(agent)
        print("ready", flush=True)
        if form == "exact":
            await handle.wait_exact(ids[0], wait_id="lost")
        elif form == "all":
            await handle.wait_all(ids, wait_id="lost")
        elif form == "bare":
            await handle.wait_any_background(wait_id="lost")
        elif form == "input":
            await handle.wait_for_input(wait_id="lost")
        elif form == "turn":
            await handle.next_turn()
        elif form == "run":
            await handle.run(ids[0], call_id=ids[1], foreground_budget=60.0)
        elif form == "output":
            async for chunk in handle.output(ids[0]):
                print("chunk", flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


def client_process(shells: Shells, form: str, *ids: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WAITER, shells.supervisor.address, shells.id, form, *ids],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=shells.supervisor.env,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def settled(shells: Shells, wait_id: str) -> str:
    async for event in shells.client.events(1, agents=[shells.id], names=["wait.settled"]):
        if event.wait_settled.wait_id == wait_id:
            return event.wait_settled.outcome
    raise AssertionError


@pytest.mark.parametrize("form", ["exact", "all", "bare"])
async def test_killed_while_it_waits(shells: Shells, form: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    for call_id in ("X", "Y"):
        await shells.start(f"while [ -e {gate} ]; do sleep 0.02; done", call_id=call_id)
    process = client_process(shells, form, "X", "Y")
    await shells.installed("lost")
    kill(process)
    assert await settled(shells, "lost") == "cancelled"
    gate.unlink()
    await shells.ended("X")
    await shells.ended("Y")
    assert consumed(await shells.log()) == {}
    # The notices have come back, once each.
    turn = await shells.agent.next_turn(5.0)
    assert turn is not None
    told = [prompt.call_id for prompt in turn.prompts]
    assert sorted(told + [p.call_id for p in (await shells.agent.take_prompts()).prompts]) == [
        "X",
        "Y",
    ]
    await shells.agent.end_turn(turn.turn_id, "")
    answer = await shells.agent.wait_all(["X", "Y"])
    assert len(answer.results) == 2
    assert consumed(await shells.log()) == {"X": 1, "Y": 1}


async def test_killed_while_it_waits_for_input(shells: Shells) -> None:
    process = client_process(shells, "input")
    await shells.installed("lost")
    kill(process)
    assert await settled(shells, "lost") == "cancelled"
    await shells.agent.send_prompt("for the next one")
    assert (await shells.agent.wait_for_input()).input_available


async def test_killed_while_its_call_runs(shells: Shells, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    script = f"while [ -e {gate} ]; do sleep 0.02; done; echo whole"
    process = client_process(shells, "run", script, "R")
    await shells.until_event("call.started", call_id="R")
    kill(process)
    gate.unlink()
    result = await shells.ended("R")
    assert result.text == "status: 0\n\nout whole"


async def test_killed_while_it_reads_output(shells: Shells) -> None:
    call_id = await shells.start("while :; do echo tick; sleep 0.02; done", grace=0.1)
    info = await shells.client.info()
    before = descriptors(info.pid)
    for _ in range(5):
        process = client_process(shells, "output", call_id)
        assert process.stdout is not None
        while process.stdout.readline() != b"chunk\n":
            pass
        kill(process)
    assert eventually(lambda: descriptors(info.pid) <= before + 1)
    await shells.cancel(call_id)
    await shells.gone(1.0)


async def test_killed_while_it_waits_for_a_turn(shells: Shells) -> None:
    process = client_process(shells, "turn")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    kill(process)
    await shells.agent.send_prompt("kept")
    turn = await shells.agent.next_turn(5.0)
    assert turn is not None
    assert [prompt.text for prompt in turn.prompts] == ["kept"]
    # A driver that dies in its turn: the next one gets the same turn and the same prompts.
    again = await shells.client.agent(shells.id).next_turn(5.0)
    assert again is not None
    assert again.resumed
    assert (again.turn_id, [prompt.text for prompt in again.prompts]) == (turn.turn_id, ["kept"])


def request(shells: Shells, wait_id: str, **form: Any) -> call_service_pb2.WaitRequest:
    return call_service_pb2.WaitRequest(agent_id=shells.id, wait_id=wait_id, **form)


async def test_an_rpc_that_is_cancelled(shells: Shells) -> None:
    await shells.start("sleep 0.6", call_id="X")
    wait = shells.client.connection.calls.Wait
    forms = {
        "exact": {"exact": call_service_pb2.WaitRequest.Exact(call_id="X")},
        "bare": {"bare": call_service_pb2.WaitRequest.Bare()},
        "input": {"input": call_service_pb2.WaitRequest.Input()},
    }
    calls = {name: wait(request(shells, name, **form)) for name, form in forms.items()}
    for name, call in calls.items():
        await shells.installed(name)
        call.cancel()
        assert await settled(shells, name) == "cancelled"
    again = await shells.agent.wait_all(["X"], wait_id="all")
    assert again.results[0].exit_code == 0


async def test_an_rpc_whose_deadline_passes(shells: Shells) -> None:
    await shells.start("sleep 0.6; echo x", call_id="X")
    exact = call_service_pb2.WaitRequest.Exact(call_id="X")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shells.client.connection.calls.Wait(request(shells, "W", exact=exact), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert await settled(shells, "W") == "cancelled"
    # The same id again is the same wait, which nothing was decided about.
    answer = await shells.agent.wait_exact("X", wait_id="W")
    assert answer.text == "status: 0\n\nout x"


async def test_one_of_two_views_of_a_wait_goes_away(shells: Shells) -> None:
    await shells.start("sleep 0.6; echo x", call_id="X")
    views = [asyncio.ensure_future(shells.agent.wait_exact("X", wait_id="W")) for _ in range(2)]
    await shells.installed("W")
    await shells.agent.list()  # both have arrived
    views[0].cancel()
    assert (await views[1]).text == "status: 0\n\nout x"
    assert consumed(await shells.log()) == {"X": 1}


async def test_many_waits_on_one_stream(shells: Shells) -> None:
    stream = shells.client.connection.calls.WaitStream()
    ids = [f"c{n}" for n in range(50)]
    for number, call_id in enumerate(ids):
        await shells.start(f"sleep 0.{number % 5}; exit {number}", call_id=call_id)

    async def send(wait: call_service_pb2.WaitRequest) -> None:
        await stream.write(call_service_pb2.WaitStreamRequest(waits=[wait]))

    for call_id in ids:
        await send(
            request(
                shells, f"w-{call_id}", set=call_service_pb2.WaitRequest.Set(call_ids=[call_id])
            )
        )
    await send(request(shells, "bad", exact=call_service_pb2.WaitRequest.Exact(call_id="nope")))
    await send(call_service_pb2.WaitRequest(agent_id="nobody", wait_id="who"))
    answers: dict[str, call_service_pb2.WaitStreamResponse.Answer] = {}
    while len(answers) < 52:
        response = await stream.read()
        for answer in response.answers:
            assert answer.wait_id not in answers
            answers[answer.wait_id] = answer
    assert (answers["bad"].failure.code, answers["bad"].failure.reason) == (5, "CALL_UNKNOWN")
    assert answers["bad"].failure.message == "unknown tool call: `nope`"
    assert answers["who"].failure.code == 3
    interrupted = [i for i in ids if not answers[f"w-{i}"].response.results]
    for call_id in ids:
        if call_id not in interrupted:
            [result] = answers[f"w-{call_id}"].response.results
            assert result.call_id == call_id
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    taken = consumed(await shells.log())
    assert taken == {i: 1 for i in ids if i not in interrupted}


async def test_the_end_of_a_stream_of_waits(shells: Shells) -> None:
    await shells.start("sleep 0.6; echo x", call_id="X")
    stream = shells.client.connection.calls.WaitStream()
    exact = call_service_pb2.WaitRequest.Exact(call_id="X")
    waits = [request(shells, "W", exact=exact)]
    await stream.write(call_service_pb2.WaitStreamRequest(waits=waits))
    await shells.installed("W")
    stream.cancel()
    assert await settled(shells, "W") == "cancelled"
    assert (await shells.agent.wait_exact("X")).text == "status: 0\n\nout x"


async def test_a_burst_of_parked_waits(shells: Shells) -> None:
    call_id = await shells.start("sleep 1.5", call_id="X")
    wait = shells.client.connection.calls.Wait
    exact = call_service_pb2.WaitRequest.Exact(call_id=call_id)
    parked = [wait(request(shells, "W", exact=exact)) for _ in range(500)]
    info = await shells.client.info()
    assert info.parked_waits >= 1
    answers = await asyncio.gather(*parked)
    assert {answer.results[0].call_id for answer in answers} == {"X"}
    assert consumed(await shells.log()) == {"X": 1}
    assert (await shells.client.info()).parked_waits == 0


async def test_the_error_of_a_wait_has_its_details(shells: Shells) -> None:
    exact = call_service_pb2.WaitRequest.Exact(call_id="nope")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shells.client.connection.calls.Wait(request(shells, "W", exact=exact))
    info = error_info(caught.value)
    assert (info.reason, info.domain, dict(info.metadata)) == (
        "CALL_UNKNOWN",
        "pinfold",
        {"tool_call_id": "nope"},
    )
