"""SIGKILL of pinfoldd: groups run on, output is complete, exit codes are true."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from chaos.wreck import Wreck, check_log, whole_log
from integration.harness import consumed
from pinfold.errors import StateError
from pinfold.v1 import agent_pb2, call_pb2
from support import Supervisor, eventually

COUNT = "for i in $(seq 1 150); do echo $i; sleep 0.01; done; exit 7"
COUNTED = "".join(f"{n}\n" for n in range(1, 151)).encode()


@pytest.mark.parametrize("durability", ["process", "full"])
async def test_a_call_runs_on(make_supervisor: Callable[..., Supervisor], durability: str) -> None:
    supervisor = make_supervisor("--durability", durability)
    await asyncio.to_thread(supervisor.start)
    async with Wreck.of(supervisor) as wreck:
        assert (await wreck.client.info()).durability == durability
        await wreck.start(COUNT, call_id="X")
        follower = asyncio.ensure_future(wreck.output("X"))
        await wreck.until_output("X", b"20\n")
        before = await wreck.agent.get("X")
        await wreck.restart()
        after = await wreck.agent.get("X")
        assert after.state == call_pb2.CALL_STATE_RUNNING
        assert after.pid == before.pid > 0
        assert after.background
        answer = await wreck.agent.wait_exact("X")
        assert answer.result is not None
        assert answer.result.exit_code == 7
        assert answer.result.message.output.size == len(COUNTED)
        # The one that followed all the while has every byte once, too.
        assert await follower == COUNTED
        assert await wreck.output("X") == COUNTED
        started = [e for e in await whole_log(wreck.client) if e.name == "supervisor.started"]
        assert [e.supervisor_started.resumed_calls for e in started] == [0, 1]
        assert [e.supervisor_started.lost_calls for e in started] == [0, 0]
        check_log(await whole_log(wreck.client), ["X"])


async def test_what_ended_while_nobody_was_there(wreck: Wreck) -> None:
    await wreck.start("sleep 0.4; echo out; echo err >&2; exit 5", call_id="X")
    await wreck.start("sleep 0.3; kill -9 $$", call_id="S")
    await wreck.start("(sleep 1000 &); sleep 0.3; echo left", call_id="L")
    await wreck.until_event("call.started", call_id="L")
    await wreck.kill_daemon()
    await asyncio.to_thread(wait_for_sleep, wreck)
    await wreck.up()
    assert (await wreck.agent.wait_exact("X")).text == (
        "termination_reason: exit\nstatus: 5\n\nout out\nerr err"
    )
    answer = await wreck.agent.wait_exact("S")
    assert answer.result is not None
    assert answer.result.signal == 9
    answer = await wreck.agent.wait_exact("L")
    assert answer.text == "status: 0\nleftover_processes: 1\n\nout left"
    call = await wreck.agent.get("L")
    assert call.leftover_processes == 1
    stopped = await wreck.agent.stop(grace=0.1)
    assert stopped.receipt.ended_processes == 1
    check_log(await whole_log(wreck.client), ["X", "S", "L"])


def wait_for_sleep(wreck: Wreck) -> None:
    """Until only the leftover is there."""
    deadline = time.monotonic() + 5
    while len(wreck.survivors()) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)


async def test_results_and_waits(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    # Its notices are passive: they interrupt no wait.
    async with Wreck.of(supervisor, surface="tasks") as wreck:
        await results_and_waits(wreck)


async def results_and_waits(wreck: Wreck) -> None:
    await wreck.start("echo done", call_id="unconsumed")
    await wreck.start("echo taken", call_id="consumed")
    await wreck.start("sleep 1.2; echo later", call_id="running")
    taken = await wreck.agent.wait_exact("consumed", wait_id="W1")
    await wreck.ended("unconsumed")
    parked = asyncio.ensure_future(wreck.agent.wait_exact("running", wait_id="W2"))
    for_input = asyncio.ensure_future(wreck.agent.wait_for_input(wait_id="W3"))
    await wreck.installed("W2")
    await wreck.restart()
    # The wait that was answered is answered the same, and the one that was parked is answered.
    assert (await wreck.agent.wait_exact("consumed", wait_id="W1")).message == taken.message
    with pytest.raises(StateError, match="already consumed"):
        await wreck.agent.wait_exact("consumed", wait_id="another")
    assert (await wreck.agent.wait_exact("unconsumed")).text == "status: 0\n\nout done"
    with pytest.raises(StateError, match="already consumed"):
        await wreck.agent.wait_exact("unconsumed")
    assert (await parked).text == "status: 0\n\nout later"
    await wreck.agent.send_prompt("wake up")
    assert (await for_input).input_available
    log = await whole_log(wreck.client)
    check_log(log, ["unconsumed", "consumed", "running"])
    assert consumed(log) == {"unconsumed": 1, "consumed": 1, "running": 1}


async def test_a_watch_goes_on_where_it_was(wreck: Wreck) -> None:
    seen: list[tuple[int, str]] = []

    async def watcher() -> None:
        async for event in wreck.client.events(1, show_internal=True):
            seen.append((event.revision, event.name))
            if event.name == "agent.status_reported":
                return

    watching = asyncio.ensure_future(watcher())
    for _ in range(3):
        calls = [wreck.run(f"sleep 0.0{n}; echo {n}") for n in range(8)]
        work = asyncio.gather(*calls)
        await asyncio.sleep(0.03)  # anywhere among them
        await wreck.restart()
        assert len(await work) == 8
    await wreck.agent.status("done", "all")
    await asyncio.wait_for(watching, 10)
    log = await whole_log(wreck.client)
    assert seen == [(event.revision, event.name) for event in log][: len(seen)]


async def test_a_notice_that_was_not_delivered(wreck: Wreck) -> None:
    await wreck.start("true", call_id="X")
    await wreck.ended("X")
    await wreck.agent.send_prompt("and this")
    await wreck.restart()
    turn = await wreck.agent.next_turn(5.0)
    assert turn is not None
    assert [prompt.kind for prompt in turn.prompts] == [
        agent_pb2.PROMPT_KIND_NOTICE,
        agent_pb2.PROMPT_KIND_USER,
    ]
    # In the middle of a turn: the same turn, the same prompts.
    await wreck.restart()
    again = await wreck.client.agent(wreck.id).next_turn(5.0)
    assert again is not None
    assert again.resumed
    assert [p.prompt_id for p in again.prompts] == [p.prompt_id for p in turn.prompts]


async def test_a_cancel_that_was_accepted(wreck: Wreck) -> None:
    script = "trap '' TERM; setsid sleep 1000 & echo up; sleep 1000"
    await wreck.start(script, call_id="X", grace=0.8)
    await wreck.until_output("X", b"up")
    await wreck.cancel("X")
    await wreck.restart()
    result = await wreck.ended("X")
    assert result.state == call_pb2.CALL_STATE_CANCELLED
    assert result.receipt is not None
    assert result.receipt.escaped >= 1
    await wreck.gone(0.5)
    check_log(await whole_log(wreck.client), ["X"])


async def test_time_limits_hold_over_a_restart(wreck: Wreck) -> None:
    begun = time.monotonic()
    await wreck.start("echo up; sleep 1000", call_id="X", timeout=2.5, grace=0.2)
    foreground = asyncio.ensure_future(
        wreck.agent.run("sleep 1000", call_id="F", grace=0.2, foreground_budget=2.0)
    )
    await wreck.until_event("call.started", call_id="F")
    await wreck.restart()
    assert "is running in the background" in (await foreground).text
    result = await wreck.ended("X")
    assert result.state == call_pb2.CALL_STATE_TIMED_OUT
    assert 2.4 <= time.monotonic() - begun < 5.0
    await wreck.cancel("F")
    await wreck.gone(1.5)


async def test_calls_that_wait_for_a_place(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    async with Wreck.of(supervisor, max_running_calls=1) as wreck:
        ids = [await wreck.start(f"sleep 0.3; exit {n}", call_id=f"c{n}") for n in range(4)]
        await wreck.restart()
        answer = await wreck.agent.wait_all(ids)
        assert [result.exit_code for result in answer.results] == [0, 1, 2, 3]
        check_log(await whole_log(wreck.client), ids)


async def test_input_and_terminals_go_on(wreck: Wreck) -> None:
    piped = await wreck.detach("cat", stdin=True)
    typed = await wreck.detach("read x; echo got $x; stty size", terminal=(24, 80))
    await wreck.agent.write_input(piped, b"before ")
    await wreck.restart()
    await wreck.agent.write_input(piped, b"after")
    await wreck.agent.close_input(piped)
    assert await wreck.output(piped) == b"before after"
    await wreck.agent.resize(typed, 40, 100)
    await wreck.agent.write_input(typed, b"keys\n")
    assert b"got keys\r\n40 100\r\n" in await wreck.output(typed)


async def test_an_agent_that_was_being_stopped(wreck: Wreck) -> None:
    await wreck.start("trap '' TERM; echo up; while :; do sleep 1; done", call_id="X", grace=0.8)
    await wreck.until_output("X", b"up")
    await wreck.run("(trap '' TERM; sleep 1000) & sleep 0.1; true", call_id="L", grace=0.8)
    stopping = asyncio.ensure_future(wreck.agent.stop(grace=0.8))
    async for event in wreck.client.events(1, names=["agent.stopping"]):
        assert event.agent_id == wreck.id
        break
    await wreck.restart()
    await asyncio.wait_for(stopping, 10.0)
    await wreck.gone(0.5)
    check_log(await whole_log(wreck.client), ["X", "L"])


async def test_the_command_that_restarts_it(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    await asyncio.to_thread(supervisor.start)
    async with Wreck.of(supervisor) as wreck:
        await wreck.start(COUNT, call_id="X")
        await wreck.until_output("X", b"5\n")
        old = await wreck.client.info()
        done = await asyncio.to_thread(supervisor.cli, "restart")
        assert done.returncode == 0, done.stderr
        new = await wreck.client.info()
        assert new.pid != old.pid
        assert new.keeper_pid == old.keeper_pid
        answer = await wreck.agent.wait_exact("X")
        assert answer.result is not None
        assert (answer.result.exit_code, await wreck.output("X")) == (7, COUNTED)
    # It is no child of ours.
    async with supervisor.client() as client:
        await client.stop()


async def test_the_start_after_a_kill_in_the_middle_of_a_start(wreck: Wreck) -> None:
    await wreck.start(COUNT, call_id="X")
    for delay in (0.05, 0.15, 0.25, 0.35):
        await wreck.kill_daemon()
        starting = asyncio.ensure_future(asyncio.to_thread(wreck.supervisor.start))
        await asyncio.sleep(delay)
        process = wreck.supervisor.process
        if process is not None:
            process.kill()
        await asyncio.wait([starting])
        starting.exception()
    await wreck.up()
    answer = await wreck.agent.wait_exact("X")
    assert answer.result is not None
    assert (answer.result.exit_code, await wreck.output("X")) == (7, COUNTED)
    check_log(await whole_log(wreck.client), ["X"])


async def test_a_first_input_that_was_on_its_way(wreck: Wreck) -> None:
    """The keeper has read a part of what the daemon sent when that is killed."""
    keeper = await wreck.keeper()
    os.kill(keeper, signal.SIGSTOP)
    starting = asyncio.ensure_future(wreck.start("wc -c", call_id="X", input=b"x" * 1_500_000))
    await wreck.until_event("call.starting", call_id="X")
    await asyncio.sleep(0.2)  # some of it is in the socket's buffer by now
    await wreck.kill_daemon()
    os.kill(keeper, signal.SIGCONT)
    await wreck.up()
    await starting
    answer = await wreck.agent.wait_exact("X", timeout=30)
    assert answer.text.endswith("out 1500000")


async def test_spools_that_nobody_knows_of_are_given_up(wreck: Wreck) -> None:
    await wreck.start("echo kept", call_id="X")
    await wreck.agent.wait_exact("X")
    await wreck.start("echo live; sleep 1000", call_id="L")
    await wreck.until_output("L", b"live\n")
    spools = wreck.supervisor.state / "spool"
    known = set(os.listdir(spools))
    await wreck.kill_daemon()
    for name in ("777.out", "777.idx"):
        (spools / name).write_bytes(b"lost")
    await wreck.up()
    assert await asyncio.to_thread(eventually, lambda: set(os.listdir(spools)) == known)
    assert await wreck.output("X") == b"kept\n"
    await wreck.agent.cancel("L")
