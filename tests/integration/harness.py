"""Shells of one agent on a real supervisor, and the count of the processes they leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from pinfold import Agent, Client, Placeholder, Result
from pinfold.v1 import watch_service_pb2
from support import Supervisor, processes_with

MARKER = "TEST_OF_SHELLS"

Event = watch_service_pb2.Event
Script = str | bytes | Sequence[str | bytes]


BUSY_SECONDS = 10.0


class Shells:
    """One agent. All its processes carry a marker of their own in their environment."""

    def __init__(self, supervisor: Supervisor, client: Client, agent: Agent, marker: str) -> None:
        self.supervisor = supervisor
        self.client = client
        self.agent = agent
        self.marker = marker

    @property
    def id(self) -> str:
        return self.agent.agent_id

    # ------------------------------------------------------------ calls

    async def run(self, script: Script, **options: Any) -> Result:
        """In the foreground to its end."""
        options.setdefault("foreground_budget", 60.0)
        answer = await self.agent.run(script, **options)
        assert isinstance(answer, Result), answer
        return answer

    async def start(self, script: Script, **options: Any) -> str:
        """In the background at once. Returns its call id."""
        answer = await self.agent.run(script, background=True, **options)
        assert isinstance(answer, Placeholder), answer
        return answer.call_id

    async def detach(self, script: Script, **options: Any) -> str:
        """In the foreground, but nobody waits for its answer."""
        options.setdefault("foreground_budget", 60.0)
        return (await self.agent.start(script, **options)).call_id

    async def cancel(self, call_id: str, **options: Any) -> None:
        answer = await self.agent.cancel(call_id, **options)
        assert answer.text == "Tool cancellation requested"

    async def ended(self, call_id: str) -> Result:
        return await self.agent.ended(call_id)

    # ------------------------------------------------------------ output

    async def output(self, call_id: str, **options: Any) -> bytes:
        """All bytes to the end of the call (or as `options` say)."""
        chunks = self.agent.output(call_id, **options)
        return b"".join([chunk.data async for chunk in chunks])

    async def until_output(self, call_id: str, wanted: bytes = b"\n") -> bytes:
        """Returns when the output has `wanted` in it."""
        seen = b""
        async for chunk in self.agent.output(call_id):
            seen += chunk.data
            if wanted in seen:
                return seen
        raise AssertionError(f"the output ended without {wanted!r}: {seen!r}")

    # ------------------------------------------------------------ the log

    async def until_event(self, name: str, *, call_id: str = "", start: int = 1) -> Event:
        """The first event of this name, from a revision on."""
        events = self.client.events(start, agents=[self.id], names=[name], call_id=call_id)
        async for event in events:
            return event
        raise AssertionError(f"no {name}")

    async def log(
        self, *, start: int = 1, call_id: str = "", names: Sequence[str] = ()
    ) -> list[Event]:
        """The agent's events so far."""
        events = self.client.events(
            start,
            agents=[self.id],
            call_id=call_id,
            names=names,
            stop_at_end=True,
            show_internal=True,
        )
        return [event async for event in events]

    async def revision(self) -> int:
        return (await self.client.info()).revision

    async def installed(self, wait_id: str) -> None:
        """Returns when this wait is installed."""
        async for event in self.client.events(1, agents=[self.id], names=["wait.installed"]):
            if event.wait_installed.wait_id == wait_id:
                return

    # ------------------------------------------------------------ processes

    def survivors(self) -> list[int]:
        return processes_with(MARKER, self.marker)

    async def gone(self, timeout: float = 3.0) -> None:
        """Fails unless all processes of the agent are gone within `timeout` seconds, and what a
        loaded machine may add to them."""
        deadline = time.monotonic() + timeout + BUSY_SECONDS
        while (left := self.survivors()) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert not left, f"processes left: {describe(left)}"

    async def running(self, count: int, timeout: float = 5.0) -> list[int]:
        """Returns when so many processes of the agent are there."""
        deadline = time.monotonic() + timeout
        while len(found := self.survivors()) < count:
            assert time.monotonic() < deadline, f"{describe(found)} instead of {count} processes"
            await asyncio.sleep(0.01)
        return found


@contextlib.asynccontextmanager
async def shells_of(
    supervisor: Supervisor, client: Client, *, agent_id: str = "", **options: Any
) -> AsyncIterator[Shells]:
    """Opens an agent, and at the end stops it and counts what is left."""
    marker = uuid.uuid4().hex
    agent = await client.open_agent(agent_id, env={MARKER: marker}, **options)
    shells = Shells(supervisor, client, agent, marker)
    try:
        yield shells
        await agent.stop(grace=0.1)
        await shells.gone(1.0)
    finally:
        for pid in shells.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- terminals


def terminals(events: Sequence[Event]) -> dict[str, int]:
    """How many ends each call has in a part of the log."""
    ends: dict[str, int] = {}
    for event in events:
        if event.HasField("call_ended"):
            ends[event.call_id] = ends.get(event.call_id, 0) + 1
    return ends


def consumed(events: Sequence[Event]) -> dict[str, int]:
    """How often each result was consumed by a wait."""
    taken: dict[str, int] = {}
    for event in events:
        for call_id in event.wait_settled.consumed_call_ids:
            taken[call_id] = taken.get(call_id, 0) + 1
    return taken


# ---------------------------------------------------------------- errors


def error_info(error: grpc.aio.AioRpcError | grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo of a failed RPC."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            assert status.code == error.code().value[0]
            assert status.message == error.details()
            for detail in status.details:
                if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                    return error_details_pb2.ErrorInfo.FromString(detail.value)
    raise AssertionError(f"no ErrorInfo: {error!r}")


# ---------------------------------------------------------------- /proc


def describe(pids: Sequence[int]) -> dict[int, str]:
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
            found[pid] = raw.replace(b"\0", b" ").decode(errors="replace")
    return found


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def zombies_of(parents: Sequence[int]) -> list[int]:
    """Zombies whose parent is one of these processes."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                if stat[0] == b"Z" and int(stat[1]) in parents:
                    found.append(int(entry))
    return found


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
