"""Cancel: within grace + 1 s no process of the call is alive, wherever it went."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from integration.harness import Shells
from pinfold import Result
from pinfold.errors import StateError
from pinfold.v1 import call_pb2

GRACE = 0.4

# Forks twice, and leaves the session.
DAEMONIZE = (
    "python3 -c 'import os, time\nfor _ in range(2): os.fork() and os._exit(0)\nos.setsid()"
    "\ntime.sleep(1000)'"
)


async def cancel_and_count(shells: Shells, call_id: str, grace: float = GRACE) -> Result:
    begun = time.monotonic()
    await shells.cancel(call_id)
    await shells.gone(grace + 1.0)
    result = await shells.ended(call_id)
    assert time.monotonic() - begun < grace + 1.5
    assert result.state == call_pb2.CALL_STATE_CANCELLED
    assert result.cause == call_pb2.END_CAUSE_CANCELLED
    assert result.receipt is not None
    assert result.receipt.proof
    assert not result.receipt.survivors
    return result


@pytest.mark.parametrize(
    ("script", "processes"),
    [
        ("timeout 100 sleep 1000; true", 3),
        ("set -m; (sleep 1000; true) & (sleep 1000; true) & wait", 5),
        ("setsid sleep 1000 & echo hi; sleep 60", 3),
        ("(trap '' TERM; sleep 1000) & trap 'exit 0' TERM; wait", 2),
        ("setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 60", 4),
        ("trap '' TERM INT HUP; nohup setsid sleep 1000 & sleep 1000", 3),
        (f"{DAEMONIZE} & sleep 1000", 2),
    ],
)
async def test_every_process_of_it(shells: Shells, script: str, processes: int) -> None:
    call_id = await shells.start(script, grace=GRACE)
    await shells.running(processes)
    result = await cancel_and_count(shells, call_id)
    assert result.receipt is not None
    assert result.receipt.ended >= processes - 1


async def test_processes_that_are_made_faster_than_one_can_look(shells: Shells) -> None:
    call_id = await shells.start("while :; do (sleep 30 &); done", grace=GRACE)
    await shells.running(20)
    await cancel_and_count(shells, call_id, grace=GRACE + 1.0)


async def test_a_program_that_answers_term_in_its_own_time(shells: Shells) -> None:
    script = "trap 'sleep 1; echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    call_id = await shells.start(script, grace=5.0)
    await shells.until_output(call_id, b"up")
    result = await cancel_and_count(shells, call_id, grace=2.0)
    assert result.exit_code == 0
    assert result.text.startswith("error: Tool call canceled\n")
    assert result.text.endswith("out bye")
    assert "status: 0" not in result.text


async def test_a_stopped_program(shells: Shells) -> None:
    call_id = await shells.start("echo up; kill -STOP $$; echo on; sleep 1000", grace=GRACE)
    await shells.until_event("call.paused", call_id=call_id)
    assert (await shells.agent.get(call_id)).paused
    [pid] = shells.survivors()
    os.kill(pid, signal.SIGCONT)
    await shells.until_event("call.resumed", call_id=call_id)
    await shells.until_output(call_id, b"on")
    assert not (await shells.agent.get(call_id)).paused
    os.kill(pid, signal.SIGSTOP)
    await shells.until_event("call.paused", call_id=call_id, start=await shells.revision())
    await cancel_and_count(shells, call_id)


async def test_the_receipt_says_what_it_took(shells: Shells) -> None:
    script = "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.1; done"
    call_id = await shells.start(script, grace=GRACE)
    await shells.until_output(call_id, b"up")
    await shells.running(3)
    result = await cancel_and_count(shells, call_id)
    receipt = result.receipt
    assert receipt is not None
    assert receipt.signals[0].signal == 15
    assert 9 in [sent.signal for sent in receipt.signals]
    assert receipt.escaped >= 1
    assert receipt.ended_by in ("kill", "sweep")
    assert result.signal == 9
    assert "kill_signals: TERM@0.00s" in result.text


async def test_output_so_far_and_time_are_kept(shells: Shells) -> None:
    call_id = await shells.start("echo one; echo two >&2; sleep 1000", grace=GRACE)
    await shells.until_output(call_id, b"two")
    await shells.cancel(call_id, reason="no longer needed")
    answer = await shells.agent.wait_exact(call_id)
    assert answer.result is not None
    text = answer.text
    assert text.startswith("error: Tool call canceled\n")
    assert "cancel_reason: no longer needed\n" in text
    assert "\n\nout one\nerr two" in text
    with pytest.raises(StateError) as caught:
        await shells.agent.wait_exact(call_id)
    assert caught.value.reason == "RESULT_CONSUMED"


async def test_one_of_two(shells: Shells) -> None:
    first = await shells.start("sleep 1000", grace=GRACE)
    second = await shells.start("sleep 0.8; echo fine")
    await shells.cancel(first)
    answer = await shells.agent.wait_exact(first)
    assert answer.text.startswith("error: Tool call canceled")
    answer = await shells.agent.wait_exact(second)
    assert answer.text == "status: 0\n\nout fine"


async def test_before_the_spawn_nothing_is_started(shells: Shells, tmp_path: object) -> None:
    marker = f"{tmp_path}/marker"
    agent = await shells.client.open_agent(max_running_calls=1)
    first = (await agent.start("sleep 1000", background=True, grace=GRACE)).call_id
    second = (await agent.start(f"touch {marker}", background=True)).call_id
    assert (await agent.get(second)).state == call_pb2.CALL_STATE_QUEUED
    await agent.cancel(second)
    result = await agent.ended(second)
    assert result.state == call_pb2.CALL_STATE_CANCELLED
    assert result.exit_code is None
    await agent.cancel(first)
    await agent.ended(first)
    await agent.stop()
    assert not os.path.exists(marker)
    events = shells.client.events(1, agents=[agent.agent_id], call_id=second, stop_at_end=True)
    names = [event.name async for event in events]
    assert names.count("tool.background_error") == 1
    assert "call.started" not in names


async def test_cancel_twice_and_after_the_end(shells: Shells) -> None:
    call_id = await shells.start("trap '' TERM; echo up; sleep 1000", grace=GRACE)
    await shells.until_output(call_id)
    answers = await asyncio.gather(
        *(shells.agent.cancel(call_id) for _ in range(8)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, StateError)]
    assert len(refused) == 7
    assert {(error.reason, error.message) for error in refused} == {
        ("CALL_ALREADY_CANCELED", "Tool call already canceled")
    }
    await shells.ended(call_id)
    with pytest.raises(StateError, match="^Tool call already canceled$"):
        await shells.cancel(call_id)
    done = await shells.run("exit 3")
    with pytest.raises(StateError, match="^Tool call is already done$"):
        await shells.cancel(done.call_id)
    names = [event.name for event in await shells.log(call_id=call_id)]
    assert names.count("call.cancel_requested") == 1
    assert names.count("harness.notice") == 1
    [notice] = [event for event in await shells.log() if event.name == "harness.notice"]
    assert notice.notice.text == "tool call cancellation request"


async def test_an_exit_that_comes_first_wins(shells: Shells) -> None:
    done = await shells.start("exit 4")
    answer = await shells.agent.wait_exact(done)
    assert answer.result is not None
    assert answer.result.exit_code == 4
    with pytest.raises(StateError, match="already done"):
        await shells.cancel(done)


async def test_a_shorter_grace_with_the_cancel(shells: Shells) -> None:
    call_id = await shells.start("trap '' TERM; echo up; sleep 1000", grace=30.0)
    await shells.until_output(call_id)
    await shells.cancel(call_id, grace=0.1)
    await shells.gone(1.0)
