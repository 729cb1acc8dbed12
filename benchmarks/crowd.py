"""Many parked waits without many processes.

An agent that may run one call at a time: the first sleeps, the others are queued behind it, and
each has a waiter of its own. One prompt for the agent interrupts them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.harness import SHELL, Answer, Bare, Load, Server, Supervisor, until

_PER_AGENT = 5_000  # calls, under the supervisor's limit of 10,000


class Crowd:
    """`size` calls of a supervisor that nobody can finish but us."""

    def __init__(self, supervisor: Supervisor, load: Load, name: str, size: int) -> None:
        self.supervisor = supervisor
        self.calls: dict[str, list[str]] = {}
        for number in range(0, size, _PER_AGENT):
            agent = supervisor.agent(f"{name}-{number}", max_running_calls=1)
            self.calls[agent] = load.call(
                "start",
                address=supervisor.address,
                agent=agent,
                n=min(_PER_AGENT, size - number),
                concurrency=32,
                script="exec sleep 100000",
                shell=SHELL,
            )["calls"]

    def park(self, loads: Sequence[Load], *, stream: bool = False) -> Callable[[], list[Answer]]:
        """A wait for each of them, from all these clients. Returns when all are parked."""
        before = self.supervisor.client.info().parked_waits
        pending = []
        size = 0
        for agent, calls in self.calls.items():
            for number, load in enumerate(loads):
                part = calls[number :: len(loads)]
                size += len(part)
                more = {} if stream else {"connections": 8}
                pending.append(
                    load.begin(
                        "stream" if stream else "wait",
                        address=self.supervisor.address,
                        agent=agent,
                        calls=part,
                        **more,
                    )
                )
        await_parked(self.supervisor, before + size)
        return lambda: [answer() for answer in pending]

    def release(self, load: Load) -> int:
        """Interrupt them all. Returns when that was asked for (CLOCK_MONOTONIC, in ns)."""
        asked = [
            load.begin("prompt", address=self.supervisor.address, agent=agent)
            for agent in self.calls
        ]
        return min(int(answer()["at"]) for answer in asked)

    def settle(self) -> None:
        """Take the prompt in, so that the next waits are not interrupted at once."""
        for agent in self.calls:
            handle = self.supervisor.client.agent(agent)
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
