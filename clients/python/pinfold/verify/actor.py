"""An agent as its model and its harness drive it: tool calls, turns, prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pinfold.agent import Agent
from pinfold.cli.plain import enum_name
from pinfold.v1 import agent_pb2, tool_service_pb2
from pinfold.verify import log
from pinfold.verify.log import Event, Missing

if TYPE_CHECKING:
    from pinfold.verify.phase import Phase

NOTICE = agent_pb2.PROMPT_KIND_NOTICE
MESSAGE = agent_pb2.PROMPT_KIND_MESSAGE
USER = agent_pb2.PROMPT_KIND_USER
WATCH_ANSWER = agent_pb2.PROMPT_KIND_WATCH_ANSWER
WATCH_PROMPT = agent_pb2.PROMPT_KIND_WATCH_PROMPT
WATCH_STATE = agent_pb2.PROMPT_KIND_WATCH_STATE
START = agent_pb2.PROMPT_KIND_START

PLACEHOLDER = "background_placeholder"
RESULT = "result"
ERROR = "error"
CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool call answered. `said` is what the model sees of it: the kind and the text."""

    id: str
    message: tool_service_pb2.CallToolResponse

    @property
    def kind(self) -> str:
        return enum_name(tool_service_pb2.ToolAnswerKind.DESCRIPTOR, self.message.kind)

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def said(self) -> tuple[str, str]:
        return self.kind, self.text

    @property
    def headers(self) -> dict[str, str]:
        """The lines before the first empty one."""
        head = self.text.partition("\n\n")[0]
        return {
            name: value
            for name, _, value in (line.partition(": ") for line in head.split("\n"))
            if name
        }


class Pending:
    """A call under way, in parallel with what follows.

    Awaiting it gives its answer, or raises Missing: what should end it has happened by then.
    """

    def __init__(self, id: str, task: asyncio.Task[Answer], patience: float) -> None:
        self.id = id
        self.task = task
        self._patience = patience

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._answer().__await__()

    async def _answer(self) -> Answer:
        await asyncio.wait({self.task}, timeout=self._patience)
        if not self.task.done():
            raise Missing(f"the answer of {self.id}")
        return self.task.result()

    def done(self) -> bool:
        return self.task.done()

    def cancel(self) -> None:
        """As when the client goes away."""
        self.task.cancel()


class Actor:
    """All tool calls go through CallTool, as a model makes them."""

    def __init__(self, phase: Phase, agent: Agent) -> None:
        self._phase = phase
        self.agent = agent
        self.turn_id = ""
        self._calls = 0

    @property
    def id(self) -> str:
        return self.agent.agent_id

    # ------------------------------------------------------------ tools

    async def call(self, tool: str, /, id: str = "", **arguments: Any) -> Answer:
        """One tool call; `id` is the model's id of it."""
        self._calls += 1
        call_id = id or f"{tool}-call-{self._calls}"
        return Answer(call_id, await self.agent.call_tool(tool, arguments, tool_call_id=call_id))

    def begin(self, tool: str, /, id: str = "", **arguments: Any) -> Pending:
        """The same, in parallel with what follows."""
        task = self._phase.spawn(self.call(tool, id, **arguments))
        return Pending(id or tool, task, self._phase.patience)

    async def raw(self, tool: str, arguments: str, id: str = "") -> Answer:
        """With arguments as JSON text, right or wrong."""
        self._calls += 1
        call_id = id or f"{tool}-call-{self._calls}"
        return Answer(call_id, await self.agent.call_tool(tool, arguments, tool_call_id=call_id))

    async def shell(self, command: str, id: str = "", **arguments: Any) -> Answer:
        return await self.call("shell", id, command=command, **arguments)

    async def wait(self, target: str = "", id: str = "") -> Answer:
        """Exact with a target, else bare."""
        return await self.call("wait", id, **({"tool_call_id": target} if target else {}))

    async def cancel(self, target: str) -> Answer:
        return await self.call("cancel", tool_call_id=target)

    async def message(self, recipient: str, text: str) -> Answer:
        return await self.call("message", recipient_id=recipient, message=text)

    async def background(self, command: str, id: str) -> str:
        """A shell in the background at once; its id. For phases that are about something else
        than how it gets there."""
        answer = await self.shell(command, id, background=True)
        self._phase.require(f"{id} is in the background", expected=PLACEHOLDER, got=answer.kind)
        return id

    async def gated(self, id: str, say: str = "done") -> str:
        """A background shell that says something and ends when `open` is called with its id."""
        path = await self._phase.gate(f"{self.id}.{id}")
        return await self.background(f"cat {path}; echo {say}", id)

    async def open(self, id: str) -> None:
        """Let a gated shell end, and see its end in the log."""
        await self._phase.open_gate(f"{self.id}.{id}")
        await self.ended(id)

    async def finished(self, id: str, say: str = "done") -> str:
        """A background shell that has ended; nobody has its result yet."""
        await self.background(f"echo {say}", id)
        await self.ended(id)
        return id

    # ------------------------------------------------------------ events

    async def ended(self, call_id: str, *, patience: float | None = None) -> Event:
        return await self._phase.log.until(
            lambda e: e.name in log.TERMINALS and e.agent_id == self.id and e.call_id == call_id,
            f"the end of call {call_id}",
            patience=patience,
        )

    async def happened(self, name: str, call_id: str = "") -> Event:
        return await self._phase.log.until(
            lambda e: log.is_named(e, name, agent=self.id, call=call_id),
            f"{name} {call_id}".rstrip(),
        )

    async def noticed(self, call_id: str) -> Event:
        """The notice of a call is queued."""
        return await self.queued(NOTICE, f"the notice of {call_id}", call=call_id)

    async def queued(
        self,
        kind: agent_pb2.PromptKind.ValueType,
        what: str,
        *,
        call: str = "",
        body: str = "",
        patience: float | None = None,
    ) -> Event:
        """A prompt of this kind is queued for the agent, with `body` in its text."""
        return await self._phase.log.until(
            lambda e: (
                bool(log.queued([e], self.id, kind, call=call))
                and body in e.prompt_queued.prompt.text
            ),
            what,
            patience=patience,
        )

    async def wait_installed(self, wait_id: str) -> Event:
        return await self._phase.log.until(
            lambda e: bool(log.installed([e], self.id, wait_id)), f"wait {wait_id} is installed"
        )

    async def wait_settled(self, wait_id: str) -> Event:
        return await self._phase.log.until(
            lambda e: bool(log.settled([e], self.id, wait_id)), f"wait {wait_id} is settled"
        )

    async def parked(self, tool: str, id: str, **arguments: Any) -> Pending:
        """A wait that is installed, and goes on in parallel with what follows."""
        pending = self.begin(tool, id, **arguments)
        installed = self._phase.spawn(self.wait_installed(id))
        await asyncio.wait({pending.task, installed}, return_when=asyncio.FIRST_COMPLETED)
        if not installed.done():
            installed.cancel()
            answer = (await pending).said
            self._phase.require(f"wait {id} is installed", expected="installed", got=answer)
        await installed
        return pending

    # ------------------------------------------------------------ turns

    async def user(self, text: str) -> None:
        """A user's prompt."""
        await self.agent.send_prompt(text)

    async def next_turn(self, timeout: float | None = None) -> list[agent_pb2.Prompt]:
        """The prompts of the next turn; none when the time passes without one."""
        begun = await self.agent.next_turn(self._phase.patience if timeout is None else timeout)
        if begun is None:
            return []
        self.turn_id = begun.turn_id
        return begun.prompts

    async def take(self) -> list[agent_pb2.Prompt]:
        """What has arrived during the turn."""
        return (await self.agent.take_prompts()).prompts

    async def end_turn(self, answer: str = "done") -> None:
        await self.agent.end_turn(self.turn_id, answer)
        self.turn_id = ""


def shown(prompts: list[agent_pb2.Prompt]) -> list[str]:
    return [prompt.text for prompt in prompts]
