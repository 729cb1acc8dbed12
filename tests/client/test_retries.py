"""A lost connection: the same request again, with the same ids, for a bounded time."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from fake import Fake, drop, forever, refuse, sequence

from pinfold import Client, Placeholder, Result, errors
from pinfold.v1 import (
    agent_pb2,
    agent_service_pb2,
    call_pb2,
    call_service_pb2,
    supervisor_service_pb2,
)

RESULT = call_pb2.CallResult(
    call_id="c", state=call_pb2.CALL_STATE_SUCCEEDED, process=call_pb2.ProcessEnd(exit_code=0)
)


async def test_run_is_the_same_call_again(fake: Fake, fake_client: Client) -> None:
    answer = call_service_pb2.RunShellResponse(call_id="c", result=RESULT)
    fake.on("RunShell", sequence(drop, drop, answer))
    result = await fake_client.agent("a").run("true", timeout=3, env={"A": "b"})
    assert isinstance(result, Result)
    assert result.ok
    sent = fake.sent("RunShell")
    assert len(sent) == 3
    assert sent[0].call_id
    assert sent[0] == sent[1] == sent[2]


async def test_placeholder(fake: Fake, fake_client: Client) -> None:
    answer = call_service_pb2.RunShellResponse(call_id="c", task_id="shell-1", placeholder="text")
    fake.on("RunShell", sequence(answer))
    assert await fake_client.agent("a").run(["true"]) == Placeholder("c", "shell-1", "text")
    assert fake.sent("RunShell")[0].argv.args == [b"true"]


async def test_cancelled_by_the_server_is_a_lost_connection(
    fake: Fake, fake_client: Client
) -> None:
    async def cancelled(context: grpc.aio.ServicerContext) -> None:
        await context.abort(grpc.StatusCode.CANCELLED, "")

    fake.on("GetInfo", sequence(cancelled, supervisor_service_pb2.GetInfoResponse(version="1")))
    assert (await fake_client.info()).version == "1"


async def test_a_wait_again_has_its_id_and_the_time_that_is_left(
    fake: Fake, fake_client: Client
) -> None:
    async def drop_later(context: grpc.aio.ServicerContext) -> None:
        await asyncio.sleep(0.5)
        await drop(context)

    answer = call_service_pb2.WaitResponse(
        outcome=call_service_pb2.WAIT_OUTCOME_RESULT, results=[RESULT]
    )
    fake.on("Wait", sequence(drop_later, answer))
    waited = await fake_client.agent("a").wait_exact("c", timeout=10)
    assert waited.result == Result(RESULT)
    first, second = fake.sent("Wait")
    assert first.wait_id == second.wait_id != ""
    assert first.timeout.ToTimedelta().total_seconds() == 10
    assert 8 < second.timeout.ToTimedelta().total_seconds() < 9.6


async def test_a_wait_without_a_limit_has_none(fake: Fake, fake_client: Client) -> None:
    answer = call_service_pb2.WaitResponse(outcome=call_service_pb2.WAIT_OUTCOME_TIMED_OUT)
    fake.on("Wait", sequence(answer))
    agent = fake_client.agent("a")
    assert (await agent.wait_any_background()).timed_out
    await agent.wait_for_input(timeout=0)
    await agent.wait_all(["x", "y"])
    await agent.wait_any(["x", "y"])
    bare, immediate, all_of, any_of = fake.sent("Wait")
    assert bare.WhichOneof("form") == "bare"
    assert not bare.HasField("timeout")
    assert immediate.HasField("timeout")
    assert all_of.set.mode == call_service_pb2.SET_MODE_ALL
    assert any_of.set.mode == call_service_pb2.SET_MODE_ANY
    assert len({request.wait_id for request in fake.sent("Wait")}) == 4


async def test_cancelling_the_coroutine_cancels_the_wait(fake: Fake, fake_client: Client) -> None:
    ended = asyncio.Event()

    async def park(context: grpc.aio.ServicerContext) -> None:
        try:
            await forever()
        finally:
            ended.set()

    fake.on("Wait", sequence(park))
    waiting = asyncio.create_task(fake_client.agent("a").wait_exact("c"))
    while not fake.requests:
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(ended.wait(), 2)


async def test_a_supervisor_that_is_started_again(fake: Fake, fake_client: Client) -> None:
    fake.on("GetInfo", sequence(supervisor_service_pb2.GetInfoResponse(version="1")))
    await fake_client.info()
    await fake.stop()
    asking = asyncio.create_task(fake_client.info())
    await asyncio.sleep(0.7)
    await fake.start()
    assert (await asking).version == "1"


async def test_patience_ends(fake: Fake) -> None:
    await fake.stop()
    async with Client.connect(f"unix:{fake.socket}", token="", patience=0.3) as client:
        started = time.monotonic()
        with pytest.raises(errors.UnavailableError, match="no supervisor at unix:.*pinfold serve"):
            await client.info()
        assert 0.2 < time.monotonic() - started < 3


async def test_draining_is_an_answer(fake: Fake, fake_client: Client) -> None:
    async def draining(context: grpc.aio.ServicerContext) -> None:
        await refuse(context, grpc.StatusCode.UNAVAILABLE, "draining", reason="DRAINING")

    fake.on("RunShell", sequence(draining))
    with pytest.raises(errors.UnavailableError) as caught:
        await fake_client.agent("a").run("true")
    assert caught.value.reason == "DRAINING"
    assert len(fake.requests) == 1


async def test_retry_info_is_followed(fake: Fake, fake_client: Client) -> None:
    async def later(context: grpc.aio.ServicerContext) -> None:
        code = grpc.StatusCode.UNAVAILABLE
        await refuse(context, code, "soon", reason="KEEPER_UNAVAILABLE", retry_after=0.05)

    fake.on("GetInfo", sequence(later, supervisor_service_pb2.GetInfoResponse(version="1")))
    assert (await fake_client.info()).version == "1"


async def test_a_cancel_whose_reply_was_lost(fake: Fake, fake_client: Client) -> None:
    async def already(context: grpc.aio.ServicerContext) -> None:
        await refuse(
            context,
            grpc.StatusCode.FAILED_PRECONDITION,
            "Tool call already canceled",
            reason="CALL_ALREADY_CANCELED",
        )

    fake.on("CancelCall", sequence(drop, already))
    answer = await fake_client.agent("a").cancel("c")
    assert answer.text == "Tool cancellation requested"
    with pytest.raises(errors.StateError, match="already canceled"):
        await fake_client.agent("a").cancel("c")


async def test_input_is_never_sent_twice(fake: Fake, fake_client: Client) -> None:
    fake.on("WriteInput", sequence(drop))
    with pytest.raises(errors.UnavailableError):
        await fake_client.agent("a").write_input("c", b"data")
    assert len(fake.requests) == 1


async def test_input_that_is_taken_piece_by_piece(fake: Fake, fake_client: Client) -> None:
    taken = bytearray()

    async def take(
        request: call_service_pb2.WriteInputRequest, context: grpc.aio.ServicerContext
    ) -> call_service_pb2.WriteInputResponse:
        piece = request.data[: 3 if len(taken) % 2 else 2] if len(fake.requests) % 3 else b""
        taken.extend(piece)
        return call_service_pb2.WriteInputResponse(accepted=len(piece))

    fake.on("WriteInput", take)
    await fake_client.agent("a").write_input("c", b"0123456789")
    assert bytes(taken) == b"0123456789"


async def test_request_ids_are_the_same_in_a_repeat(fake: Fake, fake_client: Client) -> None:
    fake.on("SendPrompt", sequence(drop, agent_service_pb2.SendPromptResponse(prompt_id="p")))
    fake.on("SendMessage", sequence(drop, agent_service_pb2.SendMessageResponse()))
    fake.on("StartAgent", sequence(drop, agent_service_pb2.StartAgentResponse()))
    fake.on("OpenAgent", sequence(drop, agent_service_pb2.OpenAgentResponse()))
    agent = fake_client.agent("a")
    assert await agent.send_prompt("hello") == "p"
    await agent.message("b", "hello")
    await agent.start_agent("hello")
    await fake_client.open_agent()
    for method, field in (
        ("SendPrompt", "request_id"),
        ("SendMessage", "request_id"),
        ("StartAgent", "call_id"),
        ("OpenAgent", "agent_id"),
    ):
        first, second = (getattr(request, field) for request in fake.sent(method))
        assert first == second != ""


async def test_each_step_acknowledges_the_last_delivery(fake: Fake, fake_client: Client) -> None:
    prompt = agent_pb2.Prompt(prompt_id="p1", text="hi")
    fake.on(
        "NextTurn",
        sequence(
            agent_service_pb2.NextTurnResponse(turn_id="t1", delivery_id="d1", prompts=[prompt]),
            agent_service_pb2.NextTurnResponse(),
        ),
    )
    fake.on("TakePrompts", sequence(agent_service_pb2.TakePromptsResponse(delivery_id="d2")))
    fake.on("EndTurn", sequence(agent_service_pb2.EndTurnResponse()))
    agent = fake_client.agent("a")
    turn = await agent.next_turn()
    assert turn is not None
    assert turn.text == "hi"
    await agent.take_prompts()
    await agent.end_turn(turn.turn_id, "done")
    assert await agent.next_turn(timeout=1) is None
    acknowledged = [request.acknowledge_delivery_id for _, request in fake.requests]
    assert acknowledged == ["", "d1", "d2", ""]
