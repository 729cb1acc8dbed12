"""Agents on a real supervisor: as a model, as a driver, and what the log says of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from integration.harness import MARKER, Event, Shells
from pinfold import Agent, Client
from pinfold.turns import Turn
from pinfold.v1 import agent_pb2, tool_service_pb2
from support import Supervisor

RESULT = tool_service_pb2.TOOL_ANSWER_KIND_RESULT
ERROR = tool_service_pb2.TOOL_ANSWER_KIND_ERROR
PLACEHOLDER = tool_service_pb2.TOOL_ANSWER_KIND_BACKGROUND_PLACEHOLDER
CANCELLED = tool_service_pb2.TOOL_ANSWER_KIND_CANCELLED

USER = agent_pb2.PROMPT_KIND_USER
MESSAGE = agent_pb2.PROMPT_KIND_MESSAGE
NOTICE = agent_pb2.PROMPT_KIND_NOTICE
WATCH_ANSWER = agent_pb2.PROMPT_KIND_WATCH_ANSWER
WATCH_PROMPT = agent_pb2.PROMPT_KIND_WATCH_PROMPT
WATCH_STATE = agent_pb2.PROMPT_KIND_WATCH_STATE
START = agent_pb2.PROMPT_KIND_START

Answer = tool_service_pb2.CallToolResponse

HERE = Path(__file__).parent
PATIENCE = 45.0

# What is waited for ends with an event; these only keep a fault from lasting for ever.
TERMINALS = (
    "tool.result",
    "tool.error",
    "tool.cancelled",
    "tool.background_result",
    "tool.background_error",
)

ROLES = f"""
[roles.serial]
worker = "scripted"
max_running_calls = 1

[roles.idle]
worker = "command"
command = ["sleep", "1000000"]

[roles.kit]
worker = "python"
entry = "kit_worker:work"

[roles.stub]
worker = "command"
command = [{sys.executable!r}, {str(HERE / "stub_worker.py")!r}]

[roles.serial_stub]
worker = "command"
command = [{sys.executable!r}, {str(HERE / "stub_worker.py")!r}]
max_running_calls = 1
"""


def interrupted(mode: str) -> str:
    """The headers of an interrupted wait."""
    return (
        "tau_internal: true\n"
        "wait_outcome: interrupted\n"
        "wait_reason: activating_input\n"
        f"wait_mode: {mode}"
    )


def placeholder(call_id: str) -> str:
    return f"tau_internal: true\n\nTool call `{call_id}` is running in the background."


def notice(call_id: str) -> str:
    return (
        f"[tau-internal] Tool call `{call_id}` completed. "
        "Its result is queued; use `wait` to consume it."
    )


def message_text(sender: str, body: str) -> str:
    """`body`: as it stands in the prompt, its closing tags escaped."""
    return (
        f"[tau-internal]: You have received a message from {sender}\n\n"
        f"<message>\n{body}\n</message>"
    )


def watched(agent_id: str, rest: str) -> str:
    return f"[tau-internal]: Agent `{agent_id}`, which you watch{rest}"


def texts(prompts: Sequence[agent_pb2.Prompt]) -> list[str]:
    return [prompt.text for prompt in prompts]


class Actor(Shells):
    """One agent that the test drives, and what is below it."""

    def handle(self) -> Agent:
        """Another driver of the same agent: it has seen nothing."""
        return self.client.agent(self.id)

    # ------------------------------------------------------------ as a model

    async def tool(self, name: str, tool_call_id: str = "", /, **arguments: Any) -> Answer:
        return await self.agent.call_tool(name, arguments, tool_call_id=tool_call_id)

    async def raw(self, name: str, arguments: str, tool_call_id: str = "") -> Answer:
        return await self.agent.call_tool(name, arguments, tool_call_id=tool_call_id)

    async def said(self, name: str, /, **arguments: Any) -> tuple[int, str]:
        answer = await self.tool(name, **arguments)
        return answer.kind, answer.text

    async def background(self, command: str, call_id: str) -> str:
        answer = await self.tool("shell", call_id, command=command, background=True)
        assert (answer.kind, answer.text) == (PLACEHOLDER, placeholder(call_id))
        return call_id

    async def finished(self, call_id: str, command: str = "echo done") -> str:
        """In the background, and ended; nobody has its result."""
        await self.background(command, call_id)
        await self.ended(call_id)
        return call_id

    async def parked(self, wait_id: str, /, **arguments: Any) -> asyncio.Task[Answer]:
        """A wait that is installed, in parallel with what follows."""
        task = asyncio.ensure_future(self.tool("wait", wait_id, **arguments))
        installed = asyncio.ensure_future(self.installed(wait_id))
        await asyncio.wait({task, installed}, return_when=asyncio.FIRST_COMPLETED)
        if not installed.done():
            installed.cancel()
            raise AssertionError(f"the wait was not installed: {await task}")
        return task

    # ------------------------------------------------------------ as a driver

    async def turn(self) -> Turn:
        """Begins the next turn: there is something for it."""
        turn = await self.agent.next_turn(PATIENCE)
        assert turn is not None
        return turn

    async def begun(self, text: str = "go") -> Turn:
        """In a turn, which a user's prompt has begun."""
        await self.agent.send_prompt(text)
        return await self.turn()

    async def no_turn(self) -> None:
        """Nothing begins a turn now."""
        assert await self.agent.next_turn(0.0) is None

    async def take(self) -> list[agent_pb2.Prompt]:
        return (await self.agent.take_prompts()).prompts

    # ------------------------------------------------------------ sub-agents

    async def child(self, prompt: str = "do it", role: str = "idle", **options: Any) -> Actor:
        """A sub-agent. With the role `idle` the test drives it."""
        started = await self.agent.start_agent(prompt, role=role, **options)
        agent = self.client.agent(started.sub_agent_id)
        return Actor(self.supervisor, self.client, agent, self.marker)

    # ------------------------------------------------------------ the log

    async def until(self, check: Callable[[Event], bool], what: str, *, start: int = 1) -> Event:
        """The first such event of the agent and all below it."""
        events = self.client.events(start, agents=[self.id], descendants=True, show_internal=True)
        try:
            async with asyncio.timeout(PATIENCE):
                async for event in events:
                    if check(event):
                        return event
        except TimeoutError:
            pass
        last = [
            f"{e.name} {e.agent_id} {e.call_id} {e.worker_exited.reason}" for e in await self.tree()
        ]
        raise AssertionError(f"it does not happen: {what}\n" + "\n".join(last[-20:]))

    async def happened(self, name: str, call_id: str = "", *, start: int = 1) -> Event:
        return await self.until(
            lambda e: (
                e.name == name and e.agent_id == self.id and (not call_id or e.call_id == call_id)
            ),
            f"{name} {call_id}",
            start=start,
        )

    async def terminal(self, call_id: str) -> Event:
        """The end of one of its calls."""
        return await self.until(
            lambda e: e.name in TERMINALS and (e.agent_id, e.call_id) == (self.id, call_id),
            f"the end of {call_id}",
        )

    async def queued(self, kind: int, text: str = "", *, start: int = 1) -> Event:
        """A prompt of this kind, with `text` in it, was queued for this agent."""
        return await self.until(
            lambda e: (
                e.agent_id == self.id
                and e.HasField("prompt_queued")
                and e.prompt_queued.prompt.kind == kind
                and text in e.prompt_queued.prompt.text
            ),
            f"a prompt {agent_pb2.PromptKind.Name(kind)} {text!r}",
            start=start,
        )

    async def delivered(self, prompt_id: str) -> Event:
        return await self.until(
            lambda e: prompt_id in e.prompt_created.prompt_ids, f"{prompt_id} is delivered"
        )

    async def tree(self, *names: str, start: int = 1) -> list[Event]:
        """The events of the agent and all below it, so far."""
        events = self.client.events(
            start,
            agents=[self.id],
            descendants=True,
            names=names,
            stop_at_end=True,
            show_internal=True,
        )
        return [event async for event in events]

    async def prompts(self, kind: int) -> list[agent_pb2.Prompt]:
        """All of this kind that were ever queued for it."""
        return [
            event.prompt_queued.prompt
            for event in await self.log(names=["prompt.queued"])
            if event.prompt_queued.prompt.kind == kind
        ]


@contextlib.asynccontextmanager
async def actor_of(supervisor: Supervisor, client: Client, **options: Any) -> AsyncIterator[Actor]:
    """Opens a root agent, and at the end stops it and counts what is left."""
    marker = uuid.uuid4().hex
    options.setdefault("cwd", str(HERE))
    agent = await client.open_agent(env={MARKER: marker}, **options)
    actor = Actor(supervisor, client, agent, marker)
    try:
        yield actor
        await agent.stop(grace=0.1)
        await actor.gone(5.0)
    finally:
        for pid in actor.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
