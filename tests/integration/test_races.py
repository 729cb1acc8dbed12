"""Races with real processes: exactly one of everything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time

from integration.harness import Shells, consumed, terminals
from pinfold import WaitAnswer
from pinfold.errors import PinfoldError, StateError
from pinfold.v1 import call_pb2


async def test_start_and_cancel_500_times(shells: Shells) -> None:
    chance = random.Random(5)

    async def one(number: int) -> str:
        script = chance.choice(("sleep 1000", "exit 0", "(setsid sleep 1000 &); sleep 1000"))
        call_id = await shells.start(script, call_id=f"c{number}", grace=0.2)
        await asyncio.sleep(chance.uniform(0, 0.005))  # the input: within 0 to 5 ms
        try:
            await shells.cancel(call_id)
        except StateError as error:
            return error.reason
        return "cancelled"

    answers: list[str] = []
    for start in range(0, 500, 20):
        answers += await asyncio.gather(*(one(n) for n in range(start, start + 20)))
    ids = [f"c{n}" for n in range(500)]
    for call_id in ids:
        await shells.ended(call_id)
    await shells.gone()
    ends = terminals(await shells.log())
    assert ends == dict.fromkeys(ids, 1)
    for call_id, answer in zip(ids, answers):
        call = await shells.agent.get(call_id)
        assert answer in ("cancelled", "CALL_ALREADY_DONE")
        if answer == "cancelled":
            assert call.state == call_pb2.CALL_STATE_CANCELLED
        assert call.leftover_processes == 0 or call.state == call_pb2.CALL_STATE_SUCCEEDED
    # Each result is there once.
    left = set(ids)
    while left:
        members = [left.pop() for _ in range(min(64, len(left)))]
        answer = await shells.agent.wait_all(members)
        assert len(answer.results) == len(members)
    assert consumed(await shells.log()) == dict.fromkeys(ids, 1)


async def test_a_waits_and_b_cancels(shells: Shells) -> None:
    call_id = await shells.start("sleep 1000", grace=0.3)
    waiting = asyncio.ensure_future(shells.agent.wait_exact(call_id, wait_id="w"))
    await shells.installed("w")
    async with shells.supervisor.client() as other:
        begun = time.monotonic()
        await other.agent(shells.id).cancel(call_id)
        answer = await waiting
    assert time.monotonic() - begun < 1.0
    assert answer.text.startswith("error: Tool call canceled\n")


async def test_one_waiter_of_many_gets_it(shells: Shells) -> None:
    for number in range(10):
        call_id = await shells.start("sleep 0.1; exit 3")
        waits = [shells.agent.wait_exact(call_id) for _ in range(20)]
        answers = await asyncio.gather(*waits, return_exceptions=True)
        won = [answer for answer in answers if isinstance(answer, WaitAnswer)]
        lost = {answer.reason for answer in answers if isinstance(answer, PinfoldError)}
        assert len(won) == 1, number
        assert won[0].result is not None
        assert won[0].result.exit_code == 3
        assert lost <= {"WAIT_IN_PROGRESS", "RESULT_CONSUMED"}


async def test_bare_waits_share_what_there_is(shells: Shells) -> None:
    ids = [await shells.start(f"sleep 0.0{n}; exit {n}") for n in range(8)]
    for call_id in ids:
        await shells.ended(call_id)
    answers = await asyncio.gather(*(shells.agent.wait_any_background() for _ in ids))
    taken = [answer.result.call_id for answer in answers if answer.result is not None]
    assert sorted(taken) == sorted(ids)
    assert consumed(await shells.log()) == dict.fromkeys(ids, 1)


async def test_waits_and_cancels_and_ends_in_parallel(shells: Shells) -> None:
    chance = random.Random(11)
    ids = [f"c{n}" for n in range(60)]
    delivered: list[str] = []

    async def waiter(call_id: str) -> None:
        while True:
            try:
                answer = await shells.agent.wait_exact(call_id, timeout=chance.uniform(0.01, 0.3))
            except StateError:
                return
            if answer.interrupted:
                # The notice of another call: taken, so that the next wait is not interrupted.
                turn = await shells.agent.next_turn(0.0)
                if turn is not None:
                    await shells.agent.end_turn(turn.turn_id, "")
            elif not answer.timed_out:
                delivered.extend(result.call_id for result in answer.results)
                return

    async def canceller(call_id: str) -> None:
        await asyncio.sleep(chance.uniform(0, 0.3))
        with contextlib.suppress(StateError):
            await shells.cancel(call_id)

    await asyncio.gather(
        *(shells.start(f"sleep 0.{chance.randrange(30):02}", call_id=i, grace=0.2) for i in ids)
    )
    tasks = [waiter(i) for i in ids for _ in range(3)] + [canceller(i) for i in ids]
    await asyncio.gather(*tasks)
    assert sorted(delivered) == sorted(ids)
    log = await shells.log()
    assert consumed(log) == dict.fromkeys(ids, 1)
    assert terminals(log) == dict.fromkeys(ids, 1)
    await shells.gone()


async def test_the_same_call_id_at_the_same_time(shells: Shells, tmp_path: object) -> None:
    script = f"echo x >> {tmp_path}/count; sleep 0.2; echo done"
    answers = await asyncio.gather(
        *(shells.run(script, call_id="same", foreground_budget=30.0) for _ in range(20))
    )
    assert {answer.text for answer in answers} == {"status: 0\n\nout done"}
    with open(f"{tmp_path}/count") as file:
        assert file.read() == "x\n"
