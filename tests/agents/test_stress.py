"""Sixty-four agents that do what comes to their minds, over real gRPC, and the log afterwards.

PINFOLD_STRESS_SECONDS says for how long (8, or 60 with `-m slow` and in `make stress`),
PINFOLD_STRESS_SEED with which chances.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from agents.harness import HERE, ROLES
from agents.invariants import check
from pinfold import Agent, Client
from pinfold.errors import PinfoldError
from support import Supervisor
from tasks.harness import configure

ROOTS = 16
CHILDREN = 3  # of each root; with it 64 agents at a time
HANDS = 2  # that make calls for one agent, besides its driver
PATIENCE = 30.0  # whatever takes longer is stuck

SETTINGS = "[shell]\nforeground_budget = 0.3\n"

# What may be answered to one that does not look where it goes. Anything else is a fault.
REFUSALS = frozenset(
    {
        "AGENT_STOPPED",
        "AGENT_UNKNOWN",
        "BARE_WAIT_IN_PROGRESS",
        "CALL_ALREADY_CANCELED",
        "CALL_ALREADY_DONE",
        "CALL_NOT_CANCELLABLE",
        "CALL_RETURNED_NORMALLY",
        "CALL_UNKNOWN",
        "CANCEL_TARGET_UNKNOWN",
        "INPUT_WAIT_IN_PROGRESS",
        "NOTHING_TO_WAIT_FOR",
        "RECIPIENT_STOPPED",
        "RECIPIENT_UNKNOWN",
        "RESULT_CONSUMED",
        "TASK_LIMIT",
        "TASK_UNKNOWN",
        "TURN_UNKNOWN",
        "WAIT_CANCELLED",
        "WAIT_IN_PROGRESS",
        "WATCH_CYCLE",
        "WATCH_SELF",
        "WATCH_TARGET_STOPPED",
        "WATCH_TARGET_UNKNOWN",
    }
)

SHORT = (
    "true",
    "exit 3",
    "kill -TERM $$",
    "echo out; echo err >&2",
    "sleep 0.05",
    "sleep 0.4; echo late",
    "printf '\\xff\\n'",
)
ENDLESS = (
    "sleep 1000000",
    "setsid sleep 1000000 & exec sleep 1000000",
    "trap '' TERM; sleep 1000000; sleep 1000000",
)
SCRIPTS = (
    "final at once",
    "shell sleep 0.1\nwait\nfinal waited",
    "message parent hello from below\nstatus done all of it\nfinal told",
    "shell sleep 1000000\nsleep 1000",
    "agent\n  shell sleep 0.1\n  final from below\nawait_message\nfinal heard {body}",
    "on_message final heard {body}\nsleep 1000",
)


class Stress:
    """All agents, and what was done."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client = client
        self.chance = chance
        self.one_by_id: dict[str, One] = {}
        self.readers: set[str] = set()
        """Agents that wait in task reads."""
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.over = False

    @property
    def agents(self) -> list[One]:
        return list(self.one_by_id.values())

    async def open_root(self, number: int) -> One:
        tasks = number % 3 == 2
        places = (0, 0, 4, 2)[number % 4]
        agent = await self.client.open_agent(
            cwd=str(HERE),
            surface="tasks" if tasks else "tau",
            max_running_calls=places,
            max_active_tasks=50,
        )
        if tasks:
            self.readers.add(agent.agent_id)
        return self.add(One(self, agent, None, reads=tasks, limited=bool(places)))

    def add(self, one: One) -> One:
        self.one_by_id[one.id] = one
        return one

    async def bounded(self, what: str, work: Awaitable[Any], agent: Agent) -> Any:
        """Fails when it is stuck; counts what it was answered."""
        self.done[what] += 1
        try:
            async with asyncio.timeout(PATIENCE):
                return await work
        except TimeoutError:
            live = [
                f"{call.call_id} {call.label!r} {call.state} of {call.started_at.ToJsonString()}"
                for call in await agent.list(live_only=True)
            ]
            raise AssertionError(f"stuck: {what} of {agent}; live: {live}") from None
        except PinfoldError as error:
            if error.reason not in REFUSALS:
                raise AssertionError(f"{what}: {error!r}") from error
            self.refused[error.reason] += 1
            return None


class One:
    """One agent: a driver that takes its turns, and hands that do things at random."""

    def __init__(
        self,
        stress: Stress,
        agent: Agent,
        parent: One | None,
        *,
        reads: bool = False,
        limited: bool = False,
    ) -> None:
        self.stress = stress
        self.agent = agent
        self.parent = parent
        self.chance = random.Random(stress.chance.random())
        self.calls: list[str] = []
        self.reads = reads
        self.limited = limited  # then endless calls would keep the others from starting
        self.stopped = False
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def id(self) -> str:
        return self.agent.agent_id

    def begin(self) -> None:
        work: list[Coroutine[Any, Any, None]] = [self.drive()]
        work += [self.hand() for _ in range(HANDS)]
        self.tasks = [asyncio.ensure_future(one) for one in work]

    @property
    def over(self) -> bool:
        return self.stress.over or self.stopped

    async def drive(self) -> None:
        """As a harness does; now and then it forgets what it was told and begins anew."""
        agent = self.agent
        while not self.over:
            if self.chance.random() < 0.1:
                agent = self.stress.client.agent(self.id)
            turn = await self.stress.bounded("next turn", agent.next_turn(0.3), agent)
            if turn is None:
                await asyncio.sleep(0.02)
                continue
            for _ in range(self.chance.randrange(3)):
                await self.stress.bounded("take", agent.take_prompts(), agent)
                await asyncio.sleep(self.chance.uniform(0, 0.05))
            answer = agent.end_turn(turn.turn_id, "an answer")
            await self.stress.bounded("end turn", answer, agent)

    async def hand(self) -> None:
        kinds, weights = zip(*DEEDS.items(), strict=True)
        while not self.over:
            deed = self.chance.choices(kinds, weights)[0]
            work = deed(self)
            if work is not None:
                await self.stress.bounded(deed.__name__, work, self.agent)
            await asyncio.sleep(self.chance.uniform(0, 0.03))

    # ------------------------------------------------------------ deeds

    def _call_id(self) -> str:
        call_id = f"c{len(self.calls)}"
        self.calls.append(call_id)
        return call_id

    def _some_call(self) -> str:
        """Mostly one of the last."""
        if not self.calls or self.chance.random() < 0.03:
            return "no such call"
        if self.chance.random() < 0.1:
            return self.chance.choice(self.calls)
        return self.chance.choice(self.calls[-6:])

    def _someone(self) -> str:
        if self.chance.random() < 0.05:
            return "nobody"
        return self.chance.choice(self.stress.agents).id

    def short_call(self) -> Awaitable[Any]:
        script = self.chance.choice(SHORT)
        background = self.chance.random() < 0.5
        return self.agent.run(script, call_id=self._call_id(), background=background, grace=0.1)

    def tool_call(self) -> Awaitable[Any]:
        arguments = {"command": self.chance.choice(SHORT), "timeout": self.chance.choice((0, 1, 9))}
        return self.agent.call_tool("shell", arguments, tool_call_id=self._call_id())

    def endless_call(self) -> Awaitable[Any]:
        return self.agent.run(
            self.chance.choice(ENDLESS),
            call_id=self._call_id(),
            background=True,
            grace=0.1,
            timeout=self.chance.choice((0.5, 2.0) if self.limited else (None, 0.5, 2.0)),
        )

    def wait_for_one(self) -> Awaitable[Any]:
        return self._let_go(self.agent.wait_exact(self._some_call(), self._limit()))

    def wait_for_all(self) -> Awaitable[Any]:
        calls = {self._some_call() for _ in range(self.chance.randrange(1, 5))}
        return self._let_go(self.agent.wait_all(sorted(calls), self._limit()))

    def wait_for_any(self) -> Awaitable[Any]:
        calls = {self._some_call() for _ in range(self.chance.randrange(1, 5))}
        return self._let_go(self.agent.wait_any(sorted(calls), self._limit()))

    def wait_for_next(self) -> Awaitable[Any]:
        return self._let_go(self.agent.wait_any_background(self._limit()))

    def wait_for_input(self) -> Awaitable[Any]:
        return self._let_go(self.agent.wait_for_input(self._limit()))

    def _limit(self) -> float:
        return self.chance.choice((0.0, 0.05, 0.3, 1.0, 3.0))

    async def _let_go(self, wait: Coroutine[Any, Any, Any]) -> Any:
        """A client that sometimes goes away before its wait is decided."""
        if self.chance.random() > 0.15:
            return await wait
        task = asyncio.ensure_future(wait)
        await asyncio.wait([task], timeout=self.chance.uniform(0, 0.1))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await task
        return None

    def cancel(self) -> Awaitable[Any]:
        return self.agent.cancel(self._some_call())

    def message(self) -> Awaitable[Any]:
        relatives = [one for one in self.stress.agents if one.root is self.root]
        near = self.chance.random() < 0.8
        recipient = self.chance.choice(relatives).id if near else self._someone()
        return self.agent.message(recipient, "a </message>\n\nmessage")

    def user_prompt(self) -> Awaitable[Any]:
        return self.agent.send_prompt("do something", passive=self.chance.random() < 0.3)

    def user_cancel(self) -> Awaitable[Any]:
        return self.agent.cancel_turn(reason="a user's")

    def status(self) -> Awaitable[Any]:
        state = self.chance.choice(("working", "waiting", "blocked", "done"))
        return self.agent.status(state, f"title {self.chance.randrange(3)}")

    def watch(self) -> Awaitable[Any]:
        return self.agent.watch_agent(self._someone(), enable=self.chance.random() < 0.7)

    def read_task(self) -> Awaitable[Any]:
        task = f"shell-{max(1, len(self.calls) - self.chance.randrange(8))}"
        if self.reads and self.chance.random() < 0.5:
            return self.agent.task_output(task, wait=True, timeout=self.chance.choice((0.05, 0.5)))
        return self.agent.task_output(task)

    def kill_task(self) -> Awaitable[Any]:
        task = f"shell-{max(1, len(self.calls) - self.chance.randrange(4))}"
        return self.agent.call_tool("task_kill", {"task_id": task, "reason": "at random"})

    def list_tasks(self) -> Awaitable[Any]:
        return self.agent.call_tool("task_list")

    def delegate(self) -> Awaitable[Any] | None:
        if self.parent is not None:
            return None
        prompt = self.chance.choice(SCRIPTS[:3] if self.limited else SCRIPTS)
        if self.chance.random() < 0.5:
            return self.agent.start_agent(prompt, mode="call", call_id=self._call_id())
        return self._start_and_stop(prompt)

    async def _start_and_stop(self, prompt: str) -> None:
        started = await self.agent.start_agent(prompt)
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        await self.stress.client.agent(started.sub_agent_id).stop(grace=0.1)

    def replace(self) -> Awaitable[Any] | None:
        """End an agent and all below it, and put another in its place."""
        return self._replace()

    async def _replace(self) -> None:
        if self.stopped:
            return  # by another hand
        self.stopped = True
        await self.agent.stop(reason="replaced", grace=0.1)
        self.stress.one_by_id.pop(self.id, None)
        if self.parent is not None:
            if not self.parent.stopped:
                (await self.parent.child()).begin()
            return
        for one in self.stress.agents:
            if one.parent is self:
                one.stopped = True
                self.stress.one_by_id.pop(one.id, None)
        root = await self.stress.open_root(self.chance.randrange(100))
        await root.with_children()

    # ------------------------------------------------------------ the tree

    @property
    def root(self) -> One:
        return self if self.parent is None else self.parent.root

    async def child(self) -> One:
        started = await self.agent.start_agent("do things", role="idle")
        agent = self.stress.client.agent(started.sub_agent_id)
        return self.stress.add(One(self.stress, agent, self))

    async def with_children(self) -> None:
        self.begin()
        for _ in range(CHILDREN):
            (await self.child()).begin()


DEEDS: dict[Callable[[One], Awaitable[Any] | None], int] = {
    One.short_call: 30,
    One.tool_call: 15,
    One.endless_call: 8,
    One.wait_for_one: 20,
    One.wait_for_all: 16,
    One.wait_for_any: 8,
    One.wait_for_next: 14,
    One.wait_for_input: 5,
    One.cancel: 14,
    One.message: 12,
    One.user_prompt: 5,
    One.user_cancel: 2,
    One.status: 4,
    One.watch: 4,
    One.read_task: 10,
    One.kill_task: 5,
    One.list_tasks: 2,
    One.delegate: 2,
    One.replace: 1,
}


async def run(stress: Stress, seconds: float) -> None:
    """Everybody at once; the first fault ends it."""
    for root in await asyncio.gather(*(stress.open_root(n) for n in range(ROOTS))):
        await root.with_children()
    until = time.monotonic() + seconds
    everyone: set[asyncio.Task[None]] = set()
    try:
        while not stress.over:
            everyone |= {task for one in stress.agents for task in one.tasks if not task.done()}
            stress.over = time.monotonic() >= until
            done, _ = await asyncio.wait(everyone, timeout=0.1)
            for task in done:
                task.result()
            everyone -= done
        await asyncio.gather(*everyone)
    finally:
        for task in everyone:
            task.cancel()
        await asyncio.gather(*everyone, return_exceptions=True)


async def ended(stress: Stress) -> None:
    """What is left ends, while its agents are there to hear of it."""

    async def one(agent: One) -> None:
        for call in await agent.agent.list(live_only=True):
            with contextlib.suppress(PinfoldError):
                await agent.agent.cancel(call.call_id, grace=0.1)
            with contextlib.suppress(PinfoldError):
                await agent.agent.ended(call.call_id)

    await asyncio.gather(*(one(agent) for agent in stress.agents))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_stress(
    make_supervisor: Callable[..., Supervisor], request: pytest.FixtureRequest
) -> None:
    usual = "60" if request.config.getoption("markexpr") == "slow" else "8"
    seconds = float(os.environ.get("PINFOLD_STRESS_SECONDS", usual))
    seed = int(os.environ.get("PINFOLD_STRESS_SEED", "1"))
    supervisor = make_supervisor()
    configure(supervisor, SETTINGS + ROLES)
    await asyncio.to_thread(supervisor.start)
    async with supervisor.client() as client:
        stress = Stress(client, random.Random(seed))
        begun = time.monotonic()
        await run(stress, seconds)
        took = time.monotonic() - begun
        await ended(stress)
        assert len(stress.agents) >= ROOTS
        await asyncio.gather(
            *(one.agent.stop(grace=0.1) for one in stress.agents if one.parent is None)
        )
        assert supervisor.survivors() == []
        info = await client.info()
        log = [event async for event in client.events(1, stop_at_end=True, show_internal=True)]
    figures = report(stress, log, took)
    print(f"\nseed {seed}, {figures}")
    faults = check(log, readers=stress.readers)
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:20])
    assert (info.live_calls, info.live_agents) == (0, 0), info


def report(stress: Stress, log: list[Any], took: float) -> str:
    names = Counter(event.name for event in log)
    outcomes = Counter(e.wait_settled.outcome for e in log if e.HasField("wait_settled"))
    consumed = sum(len(e.wait_settled.consumed_call_ids) for e in log)
    return (
        f"{took:.1f} s: {stress.done.total()} operations ({stress.refused.total()} refused), "
        f"{len(log)} events, {names['call.queued']} calls, {consumed} results consumed by waits, "
        f"{names['agent.message_sent']} messages, {names['agent.turn_started']} turns, "
        f"{names['agent.opened'] + names['agent.started']} agents, "
        f"{names['call.cancel_requested']} cancels; waits {dict(outcomes)}\n"
        f"deeds {dict(stress.done)}\nrefused {dict(stress.refused)}"
    )
