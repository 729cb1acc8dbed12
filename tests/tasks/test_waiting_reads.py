"""Waiting reads: how long, what they leave behind, and who is first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from pinfold.errors import InvalidRequestError
from support import Supervisor
from tasks.harness import ERROR, NOTHING, Gate, Owner, configure, owner_of

WRONG = "error: invalid wait timeout: expected a positive number of milliseconds, got"


async def test_running_out_of_time_is_a_success(owner: Owner, gate: Gate, via: str) -> None:
    await owner.shell(f"{gate}; echo done deal")
    started = time.monotonic()
    assert await owner.output("shell-1", via=via, wait=True, timeout=0.3) == NOTHING
    assert 0.29 < time.monotonic() - started < 10
    assert (await owner.listed()).startswith("shell-1 [shell] running")
    typed = await owner.agent.task_output("shell-1", wait=True, timeout=0.05)
    assert typed.timed_out
    assert not (await owner.agent.task_output("shell-1")).timed_out
    gate.open()
    assert await owner.output("shell-1", via=via, wait=True) == "done deal\n[status: completed]"


async def test_a_wait_gives_at_its_end_what_has_come_meanwhile(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo one; {gate}; echo two")
    await owner.received("shell-1", 4)
    assert await owner.read("shell-1", wait=True, timeout_ms=200) == "one\n[status: running]"
    gate.open()
    assert await owner.read("shell-1", wait=True) == "two\n[status: completed]"


async def test_the_end_comes_in_the_middle_of_a_wait(owner: Owner, gate: Gate, via: str) -> None:
    await owner.shell(f"{gate}; echo done deal")
    waiting = asyncio.ensure_future(owner.output("shell-1", via=via, wait=True))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    gate.open()
    assert await asyncio.wait_for(waiting, 10) == "done deal\n[status: completed]"
    assert await owner.notices("shell-1") == []
    ends = [e.call_ended.reported for e in await owner.log(names=["tool.background_result"])]
    assert len(ends) == 1


async def test_a_wait_on_what_has_ended_answers_at_once(owner: Owner, via: str) -> None:
    await owner.shell("echo x; exit 3")
    await owner.finished("shell-1")
    assert await owner.pending() == 1
    started = time.monotonic()
    text = await owner.output("shell-1", via=via, wait=True)
    assert text == "x\n[status: completed, exit code: 3]"
    assert time.monotonic() - started < 5
    assert await owner.pending() == 0


async def test_without_wait_nobody_waits(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"{gate}")
    started = time.monotonic()
    assert await owner.read("shell-1", timeout_ms=60_000) == NOTHING
    assert await owner.read("shell-1", wait=False) == NOTHING
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "value",
    ["0", "-5", "-0.5", "true", '"1"', "null", "[]", "NaN", "Infinity", "1e999"],
)
async def test_invalid_times(owner: Owner, value: str) -> None:
    await owner.shell("exec sleep 60")
    shown = {"1e999": "Infinity"}.get(value, value)
    for wait in ("true", "false"):
        arguments = f'{{"task_id": "shell-1", "wait": {wait}, "timeout_ms": {value}}}'
        assert await owner.raw("task_output", arguments) == (ERROR, f"{WRONG} {shown}")


async def test_invalid_times_typed(owner: Owner) -> None:
    await owner.shell("exec sleep 60")
    for timeout in (0.0, -1.0):
        with pytest.raises(InvalidRequestError, match="positive") as refused:
            await owner.agent.task_output("shell-1", wait=True, timeout=timeout)
        assert refused.value.reason == "INVALID_ARGUMENT"


async def test_times_may_be_huge_or_tiny(owner: Owner) -> None:
    await owner.shell("exec sleep 0.3")
    assert await owner.read("shell-1", wait=True, timeout_ms=0.001) == NOTHING
    text = await owner.read("shell-1", wait=True, timeout_ms=10**400)
    assert text == "(no new output)\n[status: completed]"


async def test_other_wrong_arguments(owner: Owner) -> None:
    wrong = "error: invalid task_id: expected a non-empty string, got"
    for tool in ("task_output", "task_kill"):
        assert await owner.raw(tool, '{"task_id": ""}') == (ERROR, f'{wrong} ""')
        assert await owner.raw(tool, '{"task_id": 5}') == (ERROR, f"{wrong} 5")
        assert (await owner.raw(tool, "{}"))[0] == ERROR
        assert await owner.raw(tool, '{"task_id": "shell-99"}') == (
            ERROR,
            "error: unknown task shell-99",
        )
    assert (await owner.raw("task_output", '{"task_id": "x", "wait": "yes"}'))[0] == ERROR
    assert (await owner.raw("task_list", '{"all": true}'))[0] == ERROR
    for ask in (owner.agent.task_output, owner.agent.task_kill):
        with pytest.raises(InvalidRequestError, match='expected a non-empty string, got ""'):
            await ask("")


async def test_the_default_and_the_cap(
    make_supervisor: Callable[..., Supervisor], via: str
) -> None:
    supervisor = make_supervisor()
    configure(supervisor, "[tasks]\nwaitTimeoutMs = 300\nmaxWaitTimeoutMs = 700\n")
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell("exec sleep 60")

        async def waited(**options: float) -> float:
            started = time.monotonic()
            assert await owner.output("shell-1", via=via, wait=True, **options) == NOTHING
            return time.monotonic() - started

        assert 0.29 < await waited() < 0.69
        assert 0.69 < await waited(timeout=600) < 5
        assert await waited(timeout=0.05) < 0.29
        assert (await owner.listed()).startswith("shell-1 [shell] running")
        limits = (await client.info()).limits
        assert limits.task_wait_timeout.nanos == 300_000_000
        assert limits.max_task_wait_timeout.nanos == 700_000_000


# ------------------------------------------------------------ aborted


async def test_an_aborted_wait_takes_nothing_and_owes_the_notice(
    owner: Owner, gate: Gate, via: str
) -> None:
    await owner.shell(f"echo one; {gate}; echo two")
    await owner.received("shell-1", 4)
    waiting = asyncio.ensure_future(owner.output("shell-1", via=via, wait=True))
    await asyncio.sleep(0.2)
    await _abort(waiting)
    assert await owner.output("shell-1", via=via) == "one\n[status: running]"
    gate.open()
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    assert await owner.read("shell-1") == "two\n[status: completed]"
    assert len(await owner.notices("shell-1")) == 1


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008])
async def test_waits_aborted_as_they_begin_leave_nothing_behind(
    owner: Owner, gate: Gate, delay: float
) -> None:
    await owner.shell(f"{gate}; echo x")
    waiting = [
        asyncio.ensure_future(owner.agent.task_output("shell-1", wait=True)) for _ in range(40)
    ]
    await asyncio.sleep(delay)
    for wait in waiting:
        await _abort(wait)
    # An abort is on its way to the supervisor as any other message is.
    assert await owner.read("shell-1") == NOTHING
    await asyncio.sleep(0.3)
    gate.open()
    await owner.finished("shell-1")
    # None of them keeps the notice back.
    assert await owner.until(owner.pending) == 1
    assert await owner.read("shell-1") == "x\n[status: completed]"


async def test_one_of_two_waits_aborted_leaves_the_other(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"{gate}; echo x")
    first = asyncio.ensure_future(owner.read("shell-1", wait=True))
    second = asyncio.ensure_future(owner.read("shell-1", wait=True))
    await asyncio.sleep(0.2)
    await _abort(first)
    await asyncio.sleep(0.1)
    gate.open()
    assert await second == "x\n[status: completed]"
    assert await owner.notices("shell-1") == []


async def test_a_wait_that_ran_out_of_time_owes_the_notice(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"{gate}; echo x")
    assert await owner.read("shell-1", wait=True, timeout_ms=100) == NOTHING
    gate.open()
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1


async def test_abort_against_the_end(owner: Owner, gates: Callable[[], Gate]) -> None:
    """Either the wait was first: its bytes are its own, to be had again by its id, and there
    is no notice. Or the abort: then nothing is consumed, and there is one."""
    outcomes = set()
    for n in range(40):
        gate = gates()
        task_id = f"shell-{n + 1}"
        await owner.shell(f"{gate}; echo {n}")
        waiting = asyncio.ensure_future(
            owner.agent.task_output(task_id, wait=True, read_id=f"w{n}")
        )
        await asyncio.sleep(0.02)
        gate.open()
        await asyncio.sleep(0.0004 * n)
        await _abort(waiting)
        await owner.finished(task_id)

        async def decided(task_id: str = task_id) -> bool:
            call = (await owner.agent.get(task_id)).call_id
            reads = [
                e.task_read.reported for e in await owner.log(names=["task.read"], call_id=call)
            ]
            return any(reads) or len(await owner.notices(task_id)) > 0

        await owner.until(decided)
        told = await owner.notices(task_id)
        again = await owner.agent.task_output(task_id, read_id=f"w{n}")
        assert again.text == f"{n}\n[status: completed]"
        other = await owner.agent.task_output(task_id)
        assert other.text == "(no new output)\n[status: completed]"
        assert len(told) <= 1
        if waiting.done() and not waiting.cancelled():
            assert told == []
        outcomes.add(bool(told))
        assert await owner.pending() == 0
    assert outcomes


async def test_of_many_waits_one_gets_the_output_and_all_the_status(
    owner: Owner, gate: Gate
) -> None:
    await owner.shell(f"{gate}; echo x; exit 4")
    waiting = [asyncio.ensure_future(owner.read("shell-1", wait=True)) for _ in range(10)]
    await asyncio.sleep(0.2)
    gate.open()
    said = sorted(await asyncio.gather(*waiting))
    assert said == ["(no new output)\n[status: completed, exit code: 4]"] * 9 + [
        "x\n[status: completed, exit code: 4]"
    ]
    assert await owner.notices("shell-1") == []


async def test_a_wait_outlives_the_daemon(
    make_supervisor: Callable[..., Supervisor], gate: Gate
) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell(f"{gate}; echo x")
        waiting = asyncio.ensure_future(owner.read("shell-1", wait=True, tool_call_id="w"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(supervisor.kill)
        gate.open()
        await asyncio.to_thread(supervisor.start)
        assert await waiting == "x\n[status: completed]"
        assert await owner.read("shell-1", tool_call_id="w") == "x\n[status: completed]"
        assert await owner.pending() == 0


async def test_a_wait_whose_owner_stops_is_answered(owner: Owner) -> None:
    await owner.shell("exec sleep 60")
    waiting = asyncio.ensure_future(owner.agent.task_output("shell-1", wait=True))
    await asyncio.sleep(0.2)
    await owner.agent.stop(reason="owner disposed")
    text = "(no new output)\n[status: killed, signal: SIGTERM, reason: owner disposed]"
    assert (await asyncio.wait_for(waiting, 10)).text == text


async def _abort(waiting: asyncio.Future[object]) -> None:
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
