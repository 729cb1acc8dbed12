"""The loop every worker has, and a turn as the work sees it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pinfold import interrupts
from pinfold.agent import Agent
from pinfold.client import Client
from pinfold.errors import PinfoldError
from pinfold.turns import Turn as Begun
from pinfold.v1 import agent_pb2, tool_service_pb2

_GONE = frozenset({"AGENT_STOPPED", "AGENT_UNKNOWN"})


class TurnCancelled(Exception):  # noqa: N818: it is no error, it ends the work on a turn
    """A user cancelled the turn: stop working, the next turn is waiting."""


class Turn:
    """One turn. What arrives while it lasts is had with `take`, between tool calls.

    Attributes:
        agent: The agent that works: for everything that is no tool call.
        turn_id: The id of the turn.
        prompts: What there is to work on. `take` adds to it.
        resumed: A worker died in this turn, and it is begun again.
        memory: Kept between the turns of one worker process.
        draft: How far the answer has come; to be assigned while working. What is here when the
            agent is ended is kept as the partial text of the call that it is.
    """

    def __init__(self, agent: Agent, begun: Begun, memory: dict[str, Any]) -> None:
        self.agent = agent
        self.turn_id = begun.turn_id
        self.prompts: list[agent_pb2.Prompt] = list(begun.prompts)
        self.resumed = begun.resumed
        self.memory = memory
        self.draft = ""

    @property
    def text(self) -> str:
        """All prompts of the turn, as one text for a model."""
        return "\n\n".join(prompt.text for prompt in self.prompts)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, tool_call_id: str = ""
    ) -> tool_service_pb2.CallToolResponse:
        """One tool call, as a model makes it."""
        return await self.agent.call_tool(name, arguments or {}, tool_call_id=tool_call_id)

    async def take(self) -> list[agent_pb2.Prompt]:
        """Prompts that have arrived since. Raises TurnCancelled."""
        taken = await self.agent.take_prompts()
        if taken.turn_cancelled:
            raise TurnCancelled
        self.prompts += taken.prompts
        return taken.prompts


Work = Callable[[Turn], Awaitable[str]]


async def _answer(work: Work, turn: Turn) -> str:
    """What the work returns, checked: whoever wrote it may have no type checker."""
    working: object = work(turn)
    if not inspect.isawaitable(working):
        name = getattr(work, "__name__", type(work).__name__)
        raise TypeError(f"the worker {name!r} must be an `async def` that returns the answer")
    answer: object = await working
    if not isinstance(answer, str):
        kind = "None" if answer is None else type(answer).__name__
        raise TypeError(f"the worker returned {kind}: return the answer as str")
    return answer


class Worker:
    """Drives one agent until it is stopped."""

    def __init__(self, work: Work, agent: Agent) -> None:
        self._work = work
        self._agent = agent
        self._memory: dict[str, Any] = {}
        self._turn: Turn | None = None

    @property
    def has_draft(self) -> bool:
        return self._turn is not None and bool(self._turn.draft)

    async def hand_over(self) -> None:
        """The agent is being ended: say how far its answer has come, if it has."""
        turn = self._turn
        if turn is not None and turn.draft:
            with contextlib.suppress(PinfoldError):
                await self._agent.end_turn(turn.turn_id, turn.draft, draft=True)

    async def serve(self) -> None:
        """Take turns. Returns when the agent has stopped."""
        while True:
            self._turn = None
            try:
                begun = await self._agent.next_turn()
                if begun is None:
                    continue
                self._turn = Turn(self._agent, begun, self._memory)
                answer = await _answer(self._work, self._turn)
                await self._agent.end_turn(begun.turn_id, answer)
            except TurnCancelled:
                continue
            except PinfoldError as error:
                if error.reason not in _GONE:
                    raise
                # The work may hear of it before the signal comes.
                await self.hand_over()
                return


def run(work: Work) -> None:
    """The `main` of a worker program. Ends when its agent is stopped."""
    agent_id = os.environ.get("PINFOLD_AGENT_ID", "")
    if not agent_id or not os.environ.get("PINFOLD_ADDRESS"):
        sys.exit(
            "pinfold.worker: no PINFOLD_AGENT_ID and PINFOLD_ADDRESS in the environment: "
            "a worker is started by the supervisor, as a role of its settings"
        )

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        async with Client.connect() as client:
            worker = Worker(work, client.agent(agent_id))

            def terminated(*_: object) -> None:
                # No handler of the event loop: the work may be blocking it.
                if not worker.has_draft:
                    _end()
                loop.call_soon_threadsafe(ended.cancel)

            interrupts.wake_for(signal.SIGTERM)
            signal.signal(signal.SIGTERM, terminated)
            serving = asyncio.ensure_future(worker.serve())
            await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await serving
                return
            await worker.hand_over()
            _end()

    asyncio.run(main())


def _end() -> None:
    """As by the signal itself; work that does not want to end is not waited for."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
