"""SIGKILL of the keeper, alone or with the daemon: lost calls say so, and nothing survives."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from chaos.wreck import Wreck, check_log, whole_log
from integration.harness import consumed
from pinfold.errors import StateError
from pinfold.v1 import call_pb2
from support import Supervisor, eventually, is_zombie

TREE = (
    "echo so far; setsid sleep 1000 & set -m; (trap '' TERM; sleep 1000) & "
    "(setsid sh -c 'sleep 1000 & sleep 1000' &); sleep 1000"
)


async def three_calls(wreck: Wreck) -> None:
    await wreck.start("echo kept; exit 3", call_id="done")
    await wreck.ended("done")
    await wreck.start(TREE, call_id="tree")
    await wreck.run("(sleep 1000 &); exit 4", call_id="left")
    await wreck.until_output("tree", b"so far")
    await wreck.running(7)


async def check_lost(wreck: Wreck) -> None:
    result = await wreck.ended("tree")
    assert result.state == call_pb2.CALL_STATE_LOST
    assert result.cause == call_pb2.END_CAUSE_UNKNOWN
    assert (result.exit_code, result.signal) == (None, None)
    assert result.text.startswith("error: Tool call lost: ")
    assert result.text.endswith("\n\nout so far")
    await wreck.gone(0.5)
    assert (await wreck.agent.wait_exact("tree")).results[0].state == call_pb2.CALL_STATE_LOST
    with pytest.raises(StateError, match="already consumed"):
        await wreck.agent.wait_exact("tree")
    answer = await wreck.agent.wait_exact("done")
    assert answer.text == "termination_reason: exit\nstatus: 3\n\nout kept"
    async for event in wreck.client.events(1, names=["call.empty"], call_id="left"):
        assert event.group_emptied.receipt.ended >= 1
        break
    assert (await wreck.agent.get("left")).leftover_processes == 0
    # The next one serves.
    assert (await wreck.run("echo new", call_id="new")).text == "status: 0\n\nout new"
    log = await whole_log(wreck.client)
    check_log(log, ["done", "tree", "left", "new"])
    assert consumed(log) == {"tree": 1, "done": 1}


async def test_the_keeper_alone(wreck: Wreck) -> None:
    await three_calls(wreck)
    old = await wreck.client.info()
    await wreck.kill_keeper()
    await wreck.another_keeper(old.keeper_pid)
    await check_lost(wreck)
    assert (await wreck.client.info()).pid == old.pid


async def test_both(wreck: Wreck) -> None:
    await three_calls(wreck)
    keeper = await wreck.keeper()
    await wreck.kill_daemon()
    await wreck.kill_keeper(keeper)
    await wreck.up()
    await check_lost(wreck)


async def test_the_keeper_first_and_then_the_daemon_at_once(wreck: Wreck) -> None:
    await three_calls(wreck)
    os.kill(await wreck.keeper(), signal.SIGKILL)
    await wreck.restart()
    await check_lost(wreck)


async def test_waits_end_with_what_is_lost(wreck: Wreck) -> None:
    await wreck.start("sleep 1000", call_id="X")
    await wreck.start("sleep 1000", call_id="Y")
    for call_id in ("X", "Y"):
        await wreck.until_event("call.started", call_id=call_id)
    parked = [
        asyncio.ensure_future(wreck.agent.wait_exact("X", wait_id="W1")),
        asyncio.ensure_future(wreck.agent.wait_all(["Y"], wait_id="W2")),
    ]
    for wait_id in ("W1", "W2"):
        await wreck.installed(wait_id)
    await wreck.kill_keeper()
    for answer in await asyncio.gather(*parked):
        assert "error: Tool call lost: " in answer.text


async def test_readers_and_writers_do_not_hang(wreck: Wreck) -> None:
    await wreck.start("echo up; cat >/dev/null", call_id="X", stdin=True)
    await wreck.until_output("X")
    follower = asyncio.ensure_future(wreck.output("X", until_end=False))
    await wreck.start("echo up; sleep 1000", call_id="Y", stdin=True)
    await wreck.until_output("Y")
    # More than a pipe holds, to a program that does not read.
    writer = asyncio.ensure_future(wreck.agent.write_input("Y", bytes(900_000)))
    await wreck.agent.list()
    await wreck.kill_keeper()
    assert await asyncio.wait_for(follower, 10.0) == b"up\n"
    await asyncio.wait([writer], timeout=10.0)
    assert writer.done()
    assert writer.exception() is not None


async def test_a_cancel_in_the_middle(wreck: Wreck) -> None:
    await wreck.start("trap '' TERM; echo up; while :; do sleep 1; done", call_id="X", grace=5.0)
    await wreck.until_output("X")
    await wreck.cancel("X")
    await wreck.kill_keeper()
    result = await wreck.ended("X")
    assert result.state in (call_pb2.CALL_STATE_CANCELLED, call_pb2.CALL_STATE_LOST)
    await wreck.gone(0.5)
    check_log(await whole_log(wreck.client), ["X"])


async def test_while_the_daemon_stops(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    async with supervisor.client() as client:
        agent = await client.open_agent()
        await agent.run("trap '' TERM; while :; do sleep 1; done", background=True, grace=3.0)
        keeper = (await client.info()).keeper_pid
        os.kill(supervisor.pid, signal.SIGTERM)
        async for event in client.events(1, names=["call.stopping"]):
            assert event.agent_id == agent.agent_id
            break
        os.kill(keeper, signal.SIGKILL)
    assert supervisor.process is not None
    assert await asyncio.to_thread(supervisor.process.wait, 20) == 0
    assert await asyncio.to_thread(eventually, lambda: not supervisor.marked())


async def test_the_keeper_does_not_stay_for_ever(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor(env={"PINFOLD_LINGER": "0.5"})
    await asyncio.to_thread(supervisor.start)
    async with Wreck.of(supervisor) as wreck:
        await wreck.start("echo out; setsid sleep 1000 & sleep 1000", call_id="X")
        await wreck.start("echo early; exit 6", call_id="E")
        await wreck.until_output("X")
        await wreck.ended("E")
        keeper = await wreck.keeper()
        await wreck.kill_daemon()
        assert await asyncio.to_thread(eventually, lambda: is_zombie(keeper), 10.0)
        assert wreck.survivors() == []
        await wreck.up()
        result = await wreck.ended("X")
        assert result.exit_code != 0
        assert result.text.endswith("out out")
        assert (await wreck.agent.wait_exact("E")).text.endswith("status: 6\n\nout early")
        assert (await wreck.run("echo new", call_id="N")).ok
        check_log(await whole_log(wreck.client), ["X", "E", "N"])


async def test_ten_times_in_a_row(wreck: Wreck) -> None:
    for number in range(10):
        await wreck.start("sleep 1000", call_id=f"c{number}")
        # Before that it may be started by the next keeper, and not be lost at all.
        await wreck.until_event("call.started", call_id=f"c{number}")
        keeper = await wreck.keeper()
        await wreck.kill_keeper(keeper)
        await wreck.another_keeper(keeper)
        assert (await wreck.ended(f"c{number}")).state == call_pb2.CALL_STATE_LOST
    await wreck.gone(0.5)
    check_log(await whole_log(wreck.client), [f"c{n}" for n in range(10)])
