"""An owner of tasks on a real supervisor: typed and as a model, with its log and its notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from integration.harness import MARKER, Shells
from pinfold import Client
from pinfold.v1 import agent_pb2, task_service_pb2, tool_service_pb2
from support import Supervisor

RESULT = tool_service_pb2.TOOL_ANSWER_KIND_RESULT
ERROR = tool_service_pb2.TOOL_ANSWER_KIND_ERROR
PLACEHOLDER = tool_service_pb2.TOOL_ANSWER_KIND_BACKGROUND_PLACEHOLDER

NO_SURFACE = "background tasks unavailable: no control surface is attached"
NOTHING = "(no new output)\n[status: running]"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"

Answer = tool_service_pb2.CallToolResponse
Read = task_service_pb2.ReadTaskResponse


class Gate:
    """What a command waits for: `{gate}` in a shell, until `open`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / uuid.uuid4().hex[:6]
        os.mkfifo(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)

    def __str__(self) -> str:
        return f"read -r _ <{self._path}"

    def open(self) -> None:
        os.write(self._fd, b"\n")


class Owner(Shells):
    """One agent on the `tasks` surface (or another)."""

    # ------------------------------------------------------------ as a model

    async def tool(self, name: str, tool_call_id: str = "", **arguments: Any) -> Answer:
        return await self.agent.call_tool(name, arguments, tool_call_id=tool_call_id)

    async def raw(self, name: str, arguments: str) -> tuple[int, str]:
        answer = await self.agent.call_tool(name, arguments)
        return answer.kind, answer.text

    async def shell(self, command: str, call_id: str = "", **arguments: Any) -> Answer:
        """In the background."""
        return await self.tool("shell", call_id, command=command, background=True, **arguments)

    async def subagent(self, script: str, call_id: str = "", **arguments: Any) -> Answer:
        return await self.tool("agent_start", call_id, prompt=script, **arguments)

    async def read(self, task_id: str, *, tool_call_id: str = "", **arguments: Any) -> str:
        answer = await self.tool("task_output", tool_call_id, task_id=task_id, **arguments)
        assert answer.kind == RESULT, answer
        return answer.text

    async def listed(self) -> str:
        return (await self.tool("task_list")).text

    async def kill(self, task_id: str, **arguments: Any) -> str:
        answer = await self.tool("task_kill", task_id=task_id, **arguments)
        assert answer.kind == RESULT, answer
        return answer.text

    # ------------------------------------------------------------ either way

    async def output(self, task_id: str, *, via: str, **options: Any) -> str:  # type: ignore[override]
        """One read, typed or as a model. `wait`, `timeout` (seconds), `read_id`."""
        if via == "typed":
            return (await self.agent.task_output(task_id, **options)).text
        arguments = {key: options[key] for key in ("wait",) if key in options}
        if "timeout" in options:
            arguments["timeout_ms"] = options["timeout"] * 1000
        answer = await self.tool(
            "task_output", options.get("read_id", ""), task_id=task_id, **arguments
        )
        assert answer.kind == RESULT, answer
        return answer.text

    # ------------------------------------------------------------ what happened

    async def received(self, task_id: str, size: int) -> None:
        """Returns when the supervisor has so many bytes of its output."""
        got = 0
        async for chunk in self.agent.output(task_id):
            got += len(chunk.data)
            if got >= size:
                return
        raise AssertionError(f"only {got} bytes of {size}")

    async def output_at(self, name: str, offset: int, *, limit: int = 0) -> bytes:
        """As an observer, from an offset on to the end (or so many bytes)."""
        chunks = self.agent.output(name, offset=offset, limit=limit)
        return b"".join([chunk.data async for chunk in chunks])

    async def finished(self, task_id: str) -> None:
        """It has ended, and nobody was told by this."""
        await self.agent.ended(task_id)

    async def notices(self, task_id: str = "") -> list[str]:
        """The calls of all notices that were ever queued."""
        call = (await self.agent.get(task_id)).call_id if task_id else ""
        return [
            event.prompt_queued.prompt.call_id
            for event in await self.log(names=["prompt.queued"])
            if event.prompt_queued.prompt.kind == agent_pb2.PROMPT_KIND_NOTICE
            and (not call or event.prompt_queued.prompt.call_id == call)
        ]

    async def pending(self) -> int:
        return (await self.agent.info()).pending_prompts

    async def turn(self, text: str = "go on") -> list[agent_pb2.Prompt]:
        """The prompts of the next turn, made by a user's prompt; the turn has ended then."""
        await self.agent.send_prompt(text)
        turn = await self.agent.next_turn(10.0)
        assert turn is not None
        await self.agent.end_turn(turn.turn_id, "done")
        return turn.prompts

    async def until(self, check: Callable[[], Any], timeout: float = 10.0) -> Any:
        """The first true value of an async `check`."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not (value := await check()):
            assert asyncio.get_running_loop().time() < deadline, "it does not happen"
            await asyncio.sleep(0.02)
        return value


@contextlib.asynccontextmanager
async def owner_of(
    supervisor: Supervisor, client: Client, *, agent_id: str = "", **options: Any
) -> AsyncIterator[Owner]:
    """Opens an agent, and at the end stops it and counts what is left."""
    marker = uuid.uuid4().hex
    options.setdefault("surface", "tasks")
    agent = await client.open_agent(agent_id, env={MARKER: marker}, **options)
    owner = Owner(supervisor, client, agent, marker)
    try:
        yield owner
        await agent.stop(grace=0.1)
        await owner.gone(2.0)
    finally:
        for pid in owner.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def configure(supervisor: Supervisor, text: str) -> None:
    """The settings file of a supervisor that isn't started yet."""
    supervisor.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    (supervisor.state / "pinfold.toml").write_text(text)
