"""A supervisor that is killed and started again, and what must hold of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

from integration.harness import Shells, consumed, shells_of, terminals
from pinfold import Client
from pinfold.v1 import watch_service_pb2
from support import Supervisor, eventually, is_zombie

Event = watch_service_pb2.Event


class Wreck(Shells):
    """`Shells` whose supervisor dies. The client goes on by itself."""

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, supervisor: Supervisor, **options: Any) -> AsyncIterator[Wreck]:
        async with (
            supervisor.client(patience=30.0) as client,
            shells_of(supervisor, client, **options) as shells,
        ):
            yield cls(supervisor, shells.client, shells.agent, shells.marker)

    async def keeper(self) -> int:
        return (await self.client.info()).keeper_pid

    async def kill_daemon(self) -> None:
        await asyncio.to_thread(self.supervisor.kill)

    async def up(self) -> None:
        """Starts the daemon again."""
        await asyncio.to_thread(self.supervisor.start)

    async def restart(self) -> None:
        await self.kill_daemon()
        await self.up()

    async def kill_keeper(self, pid: int = 0) -> None:
        """Returns when it is dead."""
        pid = pid or await self.keeper()
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(eventually, lambda: is_zombie(pid))

    async def another_keeper(self, old: int) -> int:
        """Returns when there is one."""
        while (pid := await self.keeper()) == old:
            await asyncio.sleep(0.02)
        return pid


async def whole_log(client: Client) -> list[Event]:
    events = client.events(1, stop_at_end=True, show_internal=True)
    return [event async for event in events]


def check_log(events: Sequence[Event], calls: Sequence[str]) -> None:
    """What must hold of every log, whoever was killed when."""
    revisions = [event.revision for event in events]
    assert revisions == list(range(1, len(events) + 1)), "holes or repeats"
    ends = terminals(events)
    assert ends == dict.fromkeys(calls, 1), "not exactly one end"
    taken = consumed(events)
    assert all(count == 1 for count in taken.values()), "a result was consumed twice"
    ended: set[str] = set()
    asked: set[str] = set()
    notices: dict[str, int] = {}
    for event in events:
        if event.HasField("call_ended"):
            ended.add(event.call_id)
        elif event.name in ("call.starting", "call.started", "call.stopping"):
            assert event.call_id not in ended, f"{event.name} after the end"
        elif event.name == "call.cancel_requested":
            assert event.call_id not in asked, "a cancel was accepted twice"
            asked.add(event.call_id)
        elif event.HasField("wait_settled"):
            for call_id in event.wait_settled.consumed_call_ids:
                assert call_id in ended, "consumed before its end"
        elif event.HasField("prompt_created"):
            for prompt_id in event.prompt_created.prompt_ids:
                notices[prompt_id] = notices.get(prompt_id, 0) + 1
    assert all(count == 1 for count in notices.values()), "a prompt was created twice"
