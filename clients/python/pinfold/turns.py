"""An agent as its driver sees it: turns, prompts, sub-agents, messages, status."""

from __future__ import annotations

from dataclasses import dataclass

from pinfold.errors import InvalidRequestError
from pinfold.handle import AgentHandle
from pinfold.v1 import agent_pb2, agent_service_pb2
from pinfold.values import duration, new_id

_REPORTED_STATES = {
    "working": agent_pb2.ReportedState.REPORTED_STATE_WORKING,
    "waiting": agent_pb2.ReportedState.REPORTED_STATE_WAITING,
    "blocked": agent_pb2.ReportedState.REPORTED_STATE_BLOCKED,
    "done": agent_pb2.ReportedState.REPORTED_STATE_DONE,
}
_START_MODES = {
    "watch": agent_service_pb2.StartMode.START_MODE_WATCH,
    "call": agent_service_pb2.StartMode.START_MODE_CALL,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that was begun, or taken over (`resumed`), with the prompts that make it."""

    turn_id: str
    prompts: list[agent_pb2.Prompt]
    delivery_id: str
    resumed: bool

    @property
    def text(self) -> str:
        """All prompts as one text."""
        return "\n\n".join(prompt.text for prompt in self.prompts)


@dataclass(frozen=True, slots=True)
class Taken:
    """Prompts that arrived during the turn. `turn_cancelled`: a user ended it."""

    prompts: list[agent_pb2.Prompt]
    delivery_id: str
    turn_cancelled: bool


class Turns(AgentHandle):
    """Prompts are delivered again until they are acknowledged; each step here acknowledges
    the last delivery that this handle was given."""

    async def next_turn(self, timeout: float | None = None) -> Turn | None:
        """Waits for activating input and begins a turn with it. `None` after `timeout` s."""
        response = await self.connection.unary(
            self.connection.agents.NextTurn,
            agent_service_pb2.NextTurnRequest(
                agent_id=self.agent_id,
                acknowledge_delivery_id=self.delivery_id,
                timeout=duration(timeout),
            ),
            parks=True,
        )
        if not response.turn_id:
            return None
        self.delivery_id = response.delivery_id
        return Turn(
            response.turn_id, list(response.prompts), response.delivery_id, response.resumed
        )

    async def take_prompts(self) -> Taken:
        """What has arrived during the turn, at once."""
        response = await self.connection.unary(
            self.connection.agents.TakePrompts,
            agent_service_pb2.TakePromptsRequest(
                agent_id=self.agent_id, acknowledge_delivery_id=self.delivery_id
            ),
        )
        self.delivery_id = response.delivery_id
        return Taken(list(response.prompts), response.delivery_id, response.turn_cancelled)

    async def end_turn(self, turn_id: str, answer: str, *, draft: bool = False) -> None:
        """Ends the turn with the agent's answer, which its watchers get. `draft`: it is only how
        far the answer came, and means something only if the agent is being ended."""
        await self.connection.unary(
            self.connection.agents.EndTurn,
            agent_service_pb2.EndTurnRequest(
                agent_id=self.agent_id,
                turn_id=turn_id,
                answer=answer,
                acknowledge_delivery_id=self.delivery_id,
                draft=draft,
            ),
        )
        self.delivery_id = ""

    async def send_prompt(self, text: str, *, passive: bool = False, request_id: str = "") -> str:
        """A user's prompt for the agent. Returns its prompt id once it is stored."""
        response = await self.connection.unary(
            self.connection.agents.SendPrompt,
            agent_service_pb2.SendPromptRequest(
                agent_id=self.agent_id,
                request_id=request_id or new_id("req"),
                text=text,
                passive=passive,
            ),
        )
        return response.prompt_id

    async def cancel_turn(self, *, reason: str = "") -> int:
        """As a user: cancels the turn and its calls. Returns how many calls."""
        response = await self.connection.unary(
            self.connection.agents.CancelTurn,
            agent_service_pb2.CancelTurnRequest(agent_id=self.agent_id, reason=reason),
        )
        return response.cancelled_calls

    async def start_agent(
        self, prompt: str, *, role: str = "", mode: str = "watch", call_id: str = ""
    ) -> agent_service_pb2.StartAgentResponse:
        """Starts a sub-agent and returns at once. `mode`: "watch", or "call" for one whose
        first answer is the result of a background call."""
        if mode not in _START_MODES:
            raise InvalidRequestError(
                f"no such mode: {mode!r} (expected 'watch' or 'call')", reason="INVALID_ARGUMENT"
            )
        return await self.connection.unary(
            self.connection.agents.StartAgent,
            agent_service_pb2.StartAgentRequest(
                agent_id=self.agent_id,
                call_id=call_id or new_id("call"),
                prompt=prompt,
                role=role,
                mode=_START_MODES[mode],
            ),
        )

    async def message(
        self, recipient_id: str, message: str, *, request_id: str = ""
    ) -> agent_service_pb2.SendMessageResponse:
        """A message to another agent. Success means stored."""
        return await self.connection.unary(
            self.connection.agents.SendMessage,
            agent_service_pb2.SendMessageRequest(
                agent_id=self.agent_id,
                request_id=request_id or new_id("req"),
                recipient_id=recipient_id,
                message=message,
            ),
        )

    async def watch_agent(self, agent_id: str, *, enable: bool = True) -> str:
        """Turns the watch of another agent on or off. Returns what a model reads."""
        response = await self.connection.unary(
            self.connection.agents.WatchAgent,
            agent_service_pb2.WatchAgentRequest(
                agent_id=self.agent_id, watched_agent_id=agent_id, enable=enable
            ),
        )
        return response.text

    async def status(self, state: str, title: str) -> str:
        """Reports "working", "waiting", "blocked" or "done", with a title of one line."""
        if state not in _REPORTED_STATES:
            raise InvalidRequestError(
                f"no such state: {state!r} (expected {', '.join(_REPORTED_STATES)})",
                reason="INVALID_ARGUMENT",
            )
        report = agent_pb2.StatusReport(state=_REPORTED_STATES[state], title=title)
        response = await self.connection.unary(
            self.connection.agents.ReportStatus,
            agent_service_pb2.ReportStatusRequest(agent_id=self.agent_id, status=report),
        )
        return response.text

    async def info(self) -> agent_pb2.Agent:
        """The agent as it stands."""
        response = await self.connection.unary(
            self.connection.agents.GetAgent,
            agent_service_pb2.GetAgentRequest(agent_id=self.agent_id),
        )
        return response.agent

    async def stop(
        self, *, reason: str = "", grace: float | None = None
    ) -> agent_service_pb2.StopAgentResponse:
        """Ends the agent and everything below it; returns when nothing of it is left."""
        return await self.connection.unary(
            self.connection.agents.StopAgent,
            agent_service_pb2.StopAgentRequest(
                agent_id=self.agent_id, reason=reason, grace=duration(grace)
            ),
            parks=True,
        )
