"""Many parked waits without many processes.

An agent that may run one call at a time: the first sleeps, the others are queued behind it, and
each has a waiter of its own. One prompt for the agent interrupts them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.harness import SHELL, Answer, Bare, Load, Server, Supervisor, until


class Crowd:
    """`size` calls of one agent that nobody can finish but us, within the supervisor's limit of
    10,000 for an agent."""

    def __init__(self, supervisor: Supervisor, load: Load, name: str, size: int) -> None:
        self.supervisor = supervisor
        self.agent = supervisor.agent(name, max_running_calls=1)
        self.calls = load.call(
            "start",
            address=supervisor.address,
            agent=self.agent,
            n=size,
            concurrency=32,
            script="exec sleep 100000",
            shell=SHELL,
        )["calls"]

    def park(self, loads: Sequence[Load], *, stream: bool = False) -> Callable[[], list[Answer]]:
        """A wait for each of them, from all these clients. Returns when all are parked."""
        before = self.supervisor.client.info().parked_waits
        more = {} if stream else {"connections": 8}
        pending = [
            load.begin(
                "stream" if stream else "wait",
                address=self.supervisor.address,
                agent=self.agent,
                calls=self.calls[number :: len(loads)],
                **more,
            )
            for number, load in enumerate(loads)
        ]
        await_parked(self.supervisor, before + len(self.calls))
        return lambda: [answer() for answer in pending]

    def release(self, load: Load) -> int:
        """Interrupt them all. Returns when that was asked for (CLOCK_MONOTONIC, in ns)."""
        asked = load.call("prompt", address=self.supervisor.address, agent=self.agent)
        return int(asked["at"])

    def settle(self) -> None:
        """Take the prompt in, so that the next waits are not interrupted at once."""
        handle = self.supervisor.client.agent(self.agent)
        turn = handle.next_turn(timeout=5)
        assert turn is not None
        handle.end_turn(turn.turn_id, "")


def park_bare(bare: Bare, loads: Sequence[Load], size: int) -> Callable[[], list[Answer]]:
    """The same number of waits on the bare server."""
    pending = [
        load.begin(
            "wait",
            address=bare.address,
            agent="a",
            calls=["x"] * len(range(number, size, len(loads))),
            connections=8,
        )
        for number, load in enumerate(loads)
    ]
    await_parked(bare, size)
    return lambda: [answer() for answer in pending]


def release_bare(bare: Bare, load: Load, *, one: bool = False) -> int:
    """All of them, or the newest. Returns when that was asked for."""
    call = "newest" if one else ""
    return int(load.call("release", address=bare.address, agent="a", call=call)["at"])


def await_parked(server: Server, count: int) -> None:
    until(lambda: server.client.info().parked_waits >= count, f"{count} parked waits", 120.0)
