"""AgentService: the tree, turns, messages."""

from __future__ import annotations

from pinfold.v1 import agent_pb2, agent_service_pb2
from pinfoldd.core import commands as c
from pinfoldd.core.model import Agent, Delivery
from pinfoldd.core.values import ReportedState, Surface
from pinfoldd.render import acknowledgements, labels
from pinfoldd.render.headers import one_line
from pinfoldd.rpc import checks, convert
from pinfoldd.rpc.answers import Answers, stop_receipt
from pinfoldd.rpc.call_service import digest_of
from pinfoldd.rpc.door import caller
from pinfoldd.rpc.errors import Invalid
from pinfoldd.rpc.operations import Endings, Operations
from pinfoldd.rpc.tokens import Tokens

_SURFACES = {
    agent_pb2.SURFACE_UNSPECIFIED: Surface.TAU,
    agent_pb2.SURFACE_TAU: Surface.TAU,
    agent_pb2.SURFACE_TASKS: Surface.TASKS,
    agent_pb2.SURFACE_NONE: Surface.NONE,
}
_STATES = {
    agent_pb2.REPORTED_STATE_WORKING: ReportedState.WORKING,
    agent_pb2.REPORTED_STATE_WAITING: ReportedState.WAITING,
    agent_pb2.REPORTED_STATE_BLOCKED: ReportedState.BLOCKED,
    agent_pb2.REPORTED_STATE_DONE: ReportedState.DONE,
}
MAX_TITLE_BYTES = 160


class AgentService:
    def __init__(
        self, operations: Operations, answers: Answers, tokens: Tokens, directory: str
    ) -> None:
        self._do = operations
        self._answers = answers
        self._tokens = tokens
        self._directory = directory

    # ------------------------------------------------------------ the tree

    async def OpenAgent(
        self, request: agent_service_pb2.OpenAgentRequest
    ) -> agent_service_pb2.OpenAgentResponse:
        agent_id = checks.agent_id(request.agent_id)
        cwd = checks.path(request.cwd, "cwd")
        if cwd and not cwd.startswith(b"/"):
            raise Invalid("cwd", "must be absolute")
        surface = _SURFACES.get(request.surface)
        if surface is None:
            raise Invalid("surface", "not a surface of this contract")
        env = checks.environment(dict(request.env), "env", self._do.config.shell.env_value_bytes)
        checks.exec_size("env", (), env)
        if len(request.hidden_tools) > 100 or any(len(n) > 100 for n in request.hidden_tools):
            raise Invalid("hidden_tools", "at most 100 names of at most 100 characters")
        await self._do.loop.submit(
            c.OpenAgent(
                agent=agent_id,
                surface=surface,
                digest=digest_of(request, "agent_id"),
                label=labels.label(
                    checks.text(request.label, "label", checks.MAX_LABEL_BYTES, empty=True)
                ),
                max_running=checks.count(request.max_running_calls, "max_running_calls"),
                max_tasks=checks.count(request.max_active_tasks, "max_active_tasks"),
                cwd=cwd.decode("utf-8", "surrogateescape") or self._directory,
                env={k: v.decode("utf-8", "surrogateescape") for k, v in env.items()},
                hidden_tools=list(request.hidden_tools),
            )
        )
        return agent_service_pb2.OpenAgentResponse(
            agent=convert.agent(self._do.state.agent(agent_id)), token=self._tokens.worker(agent_id)
        )

    async def GetAgent(
        self, request: agent_service_pb2.GetAgentRequest
    ) -> agent_service_pb2.GetAgentResponse:
        agent = self._do.state.agent(request.agent_id)
        return agent_service_pb2.GetAgentResponse(agent=convert.agent(agent))

    async def ListAgents(
        self, request: agent_service_pb2.ListAgentsRequest
    ) -> agent_service_pb2.ListAgentsResponse:
        size, start = checks.page(request.page_size, request.page_token)
        state = self._do.state
        who = caller.get()
        agents = [
            agent
            for agent in state.agents.values()
            if who.may(state, agent.id)
            and (not request.live_only or agent.stopped_wall is None)
            and (not request.parent_id or agent.parent == request.parent_id)
        ]
        more = str(start + size) if start + size < len(agents) else ""
        return agent_service_pb2.ListAgentsResponse(
            agents=[convert.agent(agent) for agent in agents[start : start + size]],
            next_page_token=more,
        )

    async def StopAgent(
        self, request: agent_service_pb2.StopAgentRequest
    ) -> agent_service_pb2.StopAgentResponse:
        grace = None
        if request.HasField("grace"):
            grace = checks.seconds(request.grace, "grace")
        reason = checks.text(request.reason, "reason", checks.MAX_LABEL_BYTES, empty=True)
        state = self._do.state
        state.agent(request.agent_id)
        tree = state.below(request.agent_id)
        calls = [call for agent in tree for call in (agent.calls[i] for i in agent.live)]
        left = [call for agent in tree for call in (agent.calls[i] for i in agent.leftovers)]
        begun = self._do.loop.engine_now().mono
        with Endings(self._do.loop, [*calls, *left]) as endings:
            agents, ended = await self._do.stop_agent(
                c.StopAgent(request.agent_id, reason=labels.label(reason), grace=grace)
            )
            receipts = endings.receipts()
        receipt = stop_receipt(receipts, self._do.loop.engine_now().mono - begun)
        return agent_service_pb2.StopAgentResponse(
            agent=convert.agent(state.agent(request.agent_id)),
            ended_calls=ended,
            stopped_agents=agents,
            receipt=receipt,
        )

    # ------------------------------------------------------------ turns

    async def NextTurn(
        self, request: agent_service_pb2.NextTurnRequest
    ) -> agent_service_pb2.NextTurnResponse:
        timeout = None
        if request.HasField("timeout"):
            timeout = checks.seconds(request.timeout, "timeout")
        before = self._do.state.agent(request.agent_id).turn
        command = c.NextTurn(request.agent_id, request.acknowledge_delivery_id)
        agent = await self._do.next_turn(command, timeout)
        if agent is None:
            return agent_service_pb2.NextTurnResponse()
        return agent_service_pb2.NextTurnResponse(
            turn_id=agent.turn,
            prompts=self._prompts(agent, agent.delivery),
            delivery_id=agent.delivery.id if agent.delivery else "",
            resumed=agent.turn == before,
        )

    async def TakePrompts(
        self, request: agent_service_pb2.TakePromptsRequest
    ) -> agent_service_pb2.TakePromptsResponse:
        await self._do.loop.submit(c.TakePrompts(request.agent_id, request.acknowledge_delivery_id))
        agent = self._do.state.agent(request.agent_id)
        return agent_service_pb2.TakePromptsResponse(
            prompts=self._prompts(agent, agent.delivery),
            delivery_id=agent.delivery.id if agent.delivery else "",
            turn_cancelled=not agent.turn and agent.turn_cancelled,
        )

    def _prompts(self, agent: Agent, delivery: Delivery | None) -> list[agent_pb2.Prompt]:
        if delivery is None:
            return []
        return [self._answers.prompt(agent, prompt) for prompt in delivery.prompts]

    async def EndTurn(
        self, request: agent_service_pb2.EndTurnRequest
    ) -> agent_service_pb2.EndTurnResponse:
        checks.text(request.answer, "answer", self._do.config.limits.prompt_bytes, empty=True)
        await self._do.loop.submit(
            c.EndTurn(
                request.agent_id,
                request.turn_id,
                request.answer,
                request.acknowledge_delivery_id,
                request.draft,
            )
        )
        return agent_service_pb2.EndTurnResponse()

    async def SendPrompt(
        self, request: agent_service_pb2.SendPromptRequest
    ) -> agent_service_pb2.SendPromptResponse:
        checks.text(request.text, "text", self._do.config.limits.prompt_bytes)
        request_id = checks.client_id(request.request_id, "request_id", "req")
        await self._do.loop.submit(
            c.SendPrompt(
                request.agent_id,
                request_id,
                digest_of(request, "request_id"),
                request.text,
                not request.passive,
            )
        )
        record = self._do.state.agent(request.agent_id).records[request_id]
        return agent_service_pb2.SendPromptResponse(prompt_id=record.answer)

    async def CancelTurn(
        self, request: agent_service_pb2.CancelTurnRequest
    ) -> agent_service_pb2.CancelTurnResponse:
        reason = checks.text(request.reason, "reason", checks.MAX_LABEL_BYTES, empty=True)
        events = await self._do.loop.submit(c.CancelTurn(request.agent_id, labels.label(reason)))
        cancelled = sum(1 for _, event in events if type(event).__name__ == "CancelRequested")
        return agent_service_pb2.CancelTurnResponse(cancelled_calls=cancelled)

    # ------------------------------------------------------------ sub-agents, messages

    async def StartAgent(
        self, request: agent_service_pb2.StartAgentRequest
    ) -> agent_service_pb2.StartAgentResponse:
        checks.text(request.prompt, "prompt", self._do.config.limits.prompt_bytes)
        call_id = checks.client_id(request.call_id, "call_id", "call")
        return await self.start_agent(
            request.agent_id,
            call_id,
            digest_of(request, "call_id"),
            request.prompt,
            request.role,
            as_call=request.mode == agent_service_pb2.START_MODE_CALL,
        )

    async def start_agent(
        self, agent_id: str, call_id: str, digest: str, prompt: str, role: str, *, as_call: bool
    ) -> agent_service_pb2.StartAgentResponse:
        """For the typed RPC and the tool."""
        role = role or self._do.config.default_role
        await self._do.loop.submit(
            c.StartAgent(
                agent=agent_id,
                call=call_id,
                digest=digest,
                child=checks.new_id("agent"),
                prompt=prompt,
                role=role,
                label=labels.label(prompt),
                as_call=as_call,
            )
        )
        starter = self._do.state.agent(agent_id)
        call = starter.calls.get(call_id)
        if call is None:
            child = starter.records[call_id].answer
        else:
            child = call.sub_agent
        return self._answers.agent_started(starter, child, call, call_id)

    async def SendMessage(
        self, request: agent_service_pb2.SendMessageRequest
    ) -> agent_service_pb2.SendMessageResponse:
        if not request.message:
            raise Invalid("message", "`message` must not be empty")
        checks.text(request.message, "message", self._do.config.limits.message_bytes)
        request_id = checks.client_id(request.request_id, "request_id", "msg")
        return await self.send_message(
            request.agent_id,
            request_id,
            digest_of(request, "request_id"),
            request.recipient_id,
            request.message,
        )

    async def send_message(
        self, agent_id: str, request_id: str, digest: str, recipient: str, body: str
    ) -> agent_service_pb2.SendMessageResponse:
        """For the typed RPC and the tool."""
        await self._do.loop.submit(
            c.SendMessage(agent_id, request_id, digest, recipient.strip(), body)
        )
        message_id = self._do.state.agent(agent_id).records[request_id].answer
        return agent_service_pb2.SendMessageResponse(
            message_id=message_id, text=acknowledgements.message_committed(message_id)
        )

    async def WatchAgent(
        self, request: agent_service_pb2.WatchAgentRequest
    ) -> agent_service_pb2.WatchAgentResponse:
        return await self.watch_agent(
            request.agent_id, "", "", request.watched_agent_id, enable=request.enable
        )

    async def watch_agent(
        self, agent_id: str, request_id: str, digest: str, watched: str, *, enable: bool
    ) -> agent_service_pb2.WatchAgentResponse:
        """For the typed RPC and the tool."""
        watched = watched.strip()
        await self._do.loop.submit(c.WatchAgent(agent_id, watched, enable, request_id, digest))
        return agent_service_pb2.WatchAgentResponse(
            text=acknowledgements.watching(watched, enabled=enable)
        )

    async def ReportStatus(
        self, request: agent_service_pb2.ReportStatusRequest
    ) -> agent_service_pb2.ReportStatusResponse:
        state = _STATES.get(request.status.state)
        if state is None:
            raise Invalid("status.state", "working, waiting, blocked or done")
        title = request.status.title.strip()
        if not title or len(title.encode()) > MAX_TITLE_BYTES or title != one_line(title):
            raise Invalid("status.title", f"one line of 1 to {MAX_TITLE_BYTES} bytes")
        return await self.report_status(request.agent_id, "", "", state, title)

    async def report_status(
        self, agent_id: str, request_id: str, digest: str, state: ReportedState, title: str
    ) -> agent_service_pb2.ReportStatusResponse:
        """For the typed RPC and the tool."""
        await self._do.loop.submit(c.ReportStatus(agent_id, state, title, request_id, digest))
        return agent_service_pb2.ReportStatusResponse(
            text=acknowledgements.status_accepted(state, title)
        )
