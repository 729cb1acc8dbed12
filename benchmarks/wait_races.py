"""Many want one result: who gets it, how fast, and that nobody else does."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.crowd import Crowd, await_parked, park_bare, release_bare
from benchmarks.harness import SHELL, Answer, Bench, Load, Supervisor, interleave
from benchmarks.stats import Goal, Row, Stats, add, timed
from pinfold import Client, PinfoldError, Placeholder

_NS = 1e-9


def run(bench: Bench) -> Iterator[Row]:
    # Several processes, so that the clients' own loops are not what decides.
    loads = [bench.new_load(), bench.new_load(), bench.python]
    with bench.supervisor() as supervisor, bench.directory() as directory:
        yield from _one_call(bench, supervisor, loads, directory)
        yield from _parked(bench, supervisor, loads[:2], directory)
        yield from _bare(bench, supervisor, loads, directory)
        for what, race in _RACES.items():
            yield asyncio.run(_race(supervisor.address, what, race, bench.size(100, 20)))


class Reader:
    """A call in the background that ends as soon as it is told to."""

    def __init__(self, supervisor: Supervisor, agent: str, fifo: Path) -> None:
        os.mkfifo(fifo)
        handle = supervisor.client.agent(agent)
        call = handle.run(f"read line < {fifo}", shell=SHELL, background=True)
        self.call = call.call_id
        self._fifo = os.open(fifo, os.O_WRONLY)  # returns when the shell reads
        fifo.unlink()

    def finish(self) -> int:
        begin = time.monotonic_ns()
        os.write(self._fifo, b"\n")
        os.close(self._fifo)
        return begin


def _one_call(
    bench: Bench, supervisor: Supervisor, loads: Sequence[Load], directory: Path
) -> Iterator[Row]:
    """N exact waits on one call: one is installed, the others are told so at once."""
    agent = supervisor.agent("race")
    waiters = bench.size(1000, 200)
    winners, losers, kinds = [], [], Counter[str]()
    for number in range(bench.size(15, 3)):
        reader = Reader(supervisor, agent, directory / f"one-{number}")
        begin = time.monotonic_ns()
        pending = [
            load.begin(
                "wait",
                address=supervisor.address,
                agent=agent,
                calls=[reader.call] * len(range(index, waiters, len(loads))),
                connections=8,
            )
            for index, load in enumerate(loads)
        ]
        await_parked(supervisor, 1)
        time.sleep(0.3)  # until all the others have been refused
        ended = reader.finish()
        for answer in (wait() for wait in pending):
            kinds.update(answer["outcome"])
            for at, outcome in zip(answer["at"], answer["outcome"], strict=True):
                if outcome == "RESULT":
                    winners.append((at - ended) * _NS)
                else:
                    losers.append((at - begin) * _NS)
        _settle(supervisor, agent)
    note = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
    what = f"{waiters} exact waits on one call, {len(loads)} processes"
    yield timed("wait_races", f"{what}: completion → the winner", winners, note=note)
    yield timed("wait_races", f"{what}: asked → a loser knows", losers)
    _exactly(kinds["RESULT"], bench.size(15, 3), what)


def _parked(
    bench: Bench, supervisor: Supervisor, loads: Sequence[Load], directory: Path
) -> Iterator[Row]:
    agent = supervisor.agent("winner")
    size = 1000  # also in a quick run: the goals are for as many
    crowd = Crowd(supervisor, loads[0], "crowd", size)
    waiting = crowd.park(loads)
    bare_waiting = park_bare(bench.bare, loads, size)
    names = itertools.count()

    def winner() -> list[float]:
        reader = Reader(supervisor, agent, directory / f"parked-{next(names)}")
        answer = loads[0].begin(
            "wait", address=supervisor.address, agent=agent, calls=[reader.call]
        )
        await_parked(supervisor, size + 1)
        began = reader.finish()
        took = [(at - began) * _NS for at in answer()["at"]]
        _settle(supervisor, agent)
        return took

    def bare_winner() -> list[float]:
        answer = loads[0].begin("wait", address=bench.bare.address, agent="last", calls=["x"])
        await_parked(bench.bare, size + 1)
        began = release_bare(bench.bare, loads[0], one=True)
        return [(at - began) * _NS for at in answer()["at"]]

    found = interleave(
        bench.size(40, 12),
        {
            "bare": bare_winner,
            "exit": lambda: bench.native.ask("exit 1"),
            "winner": winner,
        },
    )
    yield timed(
        "wait_races",
        f"completion → its waiter, among {size:,} parked",
        found["winner"],
        add(found["bare"], found["exit"]),
        client=loads[0].name,
        goal=Goal(1.5),
        note="floor: a shell's exit reaped in C, and a bare handler released",
    )
    release_bare(bench.bare, loads[0])
    bare_waiting()
    crowd.release(loads[0])
    waiting()
    crowd.settle()

    def all_answered() -> list[float]:
        answers = crowd.park(loads)
        began = crowd.release(loads[0])
        took = _last(answers()) - began
        crowd.settle()
        return [took * _NS]

    def bare_answered() -> list[float]:
        answers = park_bare(bench.bare, loads, size)
        began = release_bare(bench.bare, loads[0])
        return [(_last(answers()) - began) * _NS]

    found = interleave(bench.size(8, 3), {"bare": bare_answered, "all": all_answered})
    yield timed(
        "wait_races",
        f"{size:,} waiters all answered",
        found["all"],
        found["bare"],
        client=loads[0].name,
        goal=Goal(2),
        note="one prompt interrupts them all",
    )


def _bare(
    bench: Bench, supervisor: Supervisor, loads: Sequence[Load], directory: Path
) -> Iterator[Row]:
    """K results in the queue, and as many hands as there are processes, times four."""
    agent = supervisor.agent("bare")
    handle = supervisor.client.agent(agent)
    count = bench.size(300, 60)
    for _ in range(count):
        handle.run("true", shell=SHELL, background=True)
    deadline = time.monotonic() + 30
    while handle.list(live_only=True) and time.monotonic() < deadline:
        time.sleep(0.05)
    pending = [
        load.begin("bare", address=supervisor.address, agent=agent)
        for load in (*loads, *loads, *loads, *loads)
    ]
    begin = time.monotonic_ns()
    answers = [answer() for answer in pending]
    taken = Counter(call for answer in answers for call in answer["calls"])
    took = max((at for answer in answers for at in answer["at"]), default=begin) - begin
    _exactly(len(taken), count, "bare waits")
    _exactly(sum(taken.values()), count, "bare waits")
    yield Row(
        "wait_races",
        f"{len(pending)} bare waiters on {count} completions",
        Stats.one(count / (took * _NS)),
        unit="results/s",
        note=f"{sum(taken.values())} consumed, each once",
    )


# ---------------------------------------------------------------- two events at once


async def _cancel_and_exit(client: Client, agent: str, number: int) -> tuple[int, str]:
    """The process ends by itself while it is cancelled: one terminal state."""
    handle = client.agent(agent)
    call = await handle.start(f"sleep 0.0{number % 4}", shell=SHELL, foreground_budget=60.0)
    await asyncio.sleep((number % 4) * 0.01)
    try:
        await handle.cancel(call.call_id)
    except PinfoldError as error:
        said = error.reason
    else:
        said = "accepted"
    await handle.ended(call.call_id)
    ends = 0
    async for event in client.events(1, call_id=call.call_id, stop_at_end=True):
        ends += event.HasField("call_ended")
    return ends, said


async def _prompt_and_completion(client: Client, agent: str, number: int) -> tuple[int, str]:
    """A prompt comes as the awaited call ends: the result is consumed once all the same."""
    handle = client.agent(f"{agent}-{number}")
    call = await handle.run("sleep 0.02", shell=SHELL, background=True)
    assert isinstance(call, Placeholder)
    wait = asyncio.create_task(handle.wait_exact(call.call_id))
    await asyncio.sleep(0.015 + number % 5 * 0.003)
    await handle.send_prompt("hello")
    answer = await wait
    said = "interrupted" if answer.interrupted else "result"
    consumed = len(answer.results)
    while answer.interrupted:
        turn = await handle.next_turn(timeout=1)
        if turn is not None:
            await handle.end_turn(turn.turn_id, "")
        answer = await handle.wait_exact(call.call_id)
        consumed += len(answer.results)
    return consumed, said


async def _disconnect_and_delivery(client: Client, agent: str, number: int) -> tuple[int, str]:
    """The waiter vanishes as the result comes: the same wait, sent again, has the answer."""
    handle = client.agent(f"{agent}-{number}")
    call = await handle.run("sleep 0.02", shell=SHELL, background=True)
    wait = asyncio.create_task(handle.wait_exact(call.call_id, wait_id=f"wait-{number}"))
    await asyncio.sleep(0.016 + number % 8 * 0.002)
    wait.cancel()
    try:
        await wait
    except asyncio.CancelledError:
        said = "disconnected"
    else:
        return 1, "delivered"
    for wait_id in (f"wait-{number}", f"again-{number}"):
        try:
            answer = await handle.wait_exact(call.call_id, wait_id=wait_id)
        except PinfoldError as error:
            said = f"{said}, {error.reason}"
            continue
        return len(answer.results), said
    return 0, said


Race = Callable[[Client, str, int], Awaitable[tuple[int, str]]]
_RACES: dict[str, Race] = {
    "cancel against exit": _cancel_and_exit,
    "a prompt against completion": _prompt_and_completion,
    "disconnect against delivery": _disconnect_and_delivery,
}


async def _race(address: str, what: str, race: Race, repeats: int) -> Row:
    agent = what.replace(" ", "-")
    kinds = Counter[str]()
    wrong = 0
    begin = time.monotonic()
    async with Client.connect(address, token="") as client:
        await client.open_agent(agent)
        for number in range(repeats):
            await client.open_agent(f"{agent}-{number}")
        width = 10
        for start in range(0, repeats, width):
            numbers = range(start, min(start + width, repeats))
            for times, said in await asyncio.gather(*(race(client, agent, n) for n in numbers)):
                kinds[said] += 1
                wrong += times != 1
    took = time.monotonic() - begin
    _exactly(wrong, 0, what)
    note = f"once each of {repeats}: " + ", ".join(f"{n} × {k}" for k, n in sorted(kinds.items()))
    return Row("wait_races", what, Stats.one(repeats / took), unit="races/s", note=note)


# ---------------------------------------------------------------- helpers


def _last(answers: Sequence[Answer]) -> int:
    for answer in answers:
        wrong = Counter[str](answer["outcome"])
        del wrong["INTERRUPTED"]
        if wrong:
            raise AssertionError(f"waits that were not interrupted: {wrong}")
    return max(int(at) for answer in answers for at in answer["at"])


def _settle(supervisor: Supervisor, agent: str) -> None:
    """Nothing is left in the queue of the agent that would interrupt its next wait."""
    handle = supervisor.client.agent(agent)
    while handle.info().pending_prompts:
        turn = handle.next_turn(timeout=1)
        if turn is None:
            return
        handle.end_turn(turn.turn_id, "")


def _exactly(found: int, wanted: int, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found} instead of {wanted}")
