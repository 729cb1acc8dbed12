"""ToolService: the tools a model calls, as a model calls them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf import duration_pb2

from pinfold.v1 import call_service_pb2, tool_service_pb2
from pinfoldd.core import commands as c
from pinfoldd.core.model import Agent
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import CallState, Surface
from pinfoldd.render import acknowledgements, errors, guidance, headers, schemas
from pinfoldd.rpc import checks, convert, tool_arguments
from pinfoldd.rpc import errors as statuses
from pinfoldd.rpc.agent_service import AgentService
from pinfoldd.rpc.answers import Answers, is_error
from pinfoldd.rpc.call_service import CallService
from pinfoldd.rpc.enums import REPORTED_STATES
from pinfoldd.rpc.errors import Invalid
from pinfoldd.rpc.operations import Operations
from pinfoldd.rpc.task_service import TaskService

_RESULT = tool_service_pb2.TOOL_ANSWER_KIND_RESULT
_ERROR = tool_service_pb2.TOOL_ANSWER_KIND_ERROR
_PLACEHOLDER = tool_service_pb2.TOOL_ANSWER_KIND_BACKGROUND_PLACEHOLDER
_CANCELLED = tool_service_pb2.TOOL_ANSWER_KIND_CANCELLED

# What the harness did wrong, or must try again: a status. Everything else the model reads.
_STATUS = frozenset(
    {
        Reason.AGENT_UNKNOWN,
        Reason.AGENT_STOPPED,
        Reason.CALL_ID_REUSED,
        Reason.WAIT_ID_REUSED,
        Reason.REQUEST_ID_REUSED,
        Reason.DRAINING,
        Reason.STORE_FAILING,
        Reason.KEEPER_UNAVAILABLE,
        Reason.PERMISSION_DENIED,
        Reason.UNAUTHENTICATED,
    }
)
_KINDS = {
    "read": tool_service_pb2.TOOL_KIND_READ,
    "execute": tool_service_pb2.TOOL_KIND_EXECUTE,
    "other": tool_service_pb2.TOOL_KIND_OTHER,
}
_SURFACES: dict[int, Surface | None] = {
    tool_service_pb2.TOOL_SURFACE_TAU: Surface.TAU,
    tool_service_pb2.TOOL_SURFACE_TASKS: Surface.TASKS,
    tool_service_pb2.TOOL_SURFACE_BOTH: None,
}


def _canonical(arguments: str) -> bytes:
    """The same for the same arguments, however they are spelled: a harness that sends a call
    again may have parsed and written it anew."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return arguments.encode()


class _Call:
    """One tool call on its way."""

    def __init__(self, agent: Agent, call_id: str, digest: str, arguments: Any) -> None:
        self.agent = agent
        self.id = call_id
        self.digest = digest
        self.arguments = arguments
        self.answer = tool_service_pb2.CallToolResponse(tool_call_id=call_id, kind=_RESULT)


class ToolService:
    def __init__(
        self,
        operations: Operations,
        answers: Answers,
        calls: CallService,
        agents: AgentService,
        tasks: TaskService,
    ) -> None:
        self._do = operations
        self._answers = answers
        self._calls = calls
        self._agents = agents
        self._tasks = tasks
        self._run: dict[str, Callable[[_Call], Awaitable[None]]] = {
            "shell": self._shell,
            "wait": self._wait,
            "cancel": self._cancel,
            "agent_start": self._agent_start,
            "agent_watch": self._agent_watch,
            "message": self._message,
            "status": self._status,
            "task_output": self._task_output,
            "task_list": self._task_list,
            "task_kill": self._task_kill,
        }

    # ------------------------------------------------------------ list

    async def ListTools(
        self, request: tool_service_pb2.ListToolsRequest
    ) -> tool_service_pb2.ListToolsResponse:
        agent = self._do.state.agent(request.agent_id) if request.agent_id else None
        if request.surface:
            if request.surface not in _SURFACES:
                raise Invalid("surface", "not a surface of this contract")
            surface = _SURFACES[request.surface]
        else:
            surface = agent.surface if agent is not None else None
        config = self._do.config
        options = schemas.Options(
            foreground_seconds=config.shell.foreground_budget,
            min_minutes=config.waits.min_input_minutes,
            max_minutes=config.waits.max_input_minutes,
            task_wait_ms=config.tasks.wait_timeout_ms,
            max_task_wait_ms=config.tasks.max_wait_timeout_ms,
            background=agent is None or agent.surface is not Surface.NONE,
            roles=tuple(sorted(config.all_roles())),
        )
        hidden = agent.hidden_tools if agent is not None else []
        return tool_service_pb2.ListToolsResponse(
            tools=[
                tool_service_pb2.Tool(
                    name=tool.name,
                    description=tool.description,
                    parameters_json=tool.parameters_json(),
                    kind=_KINDS[tool.kind],
                )
                for tool in schemas.tools(surface, options, hidden)
            ],
            guidance=guidance.guidance(surface),
        )

    # ------------------------------------------------------------ call

    async def CallTool(
        self, request: tool_service_pb2.CallToolRequest
    ) -> tool_service_pb2.CallToolResponse:
        agent = self._do.state.live_agent(request.agent_id)
        call_id = checks.client_id(request.tool_call_id, "tool_call_id", "call")
        name = request.name
        digest = hashlib.blake2b(
            name.encode() + b"\0" + _canonical(request.arguments_json), digest_size=12
        ).hexdigest()
        call = _Call(agent, call_id, digest, None)
        try:
            if name not in self._run or name in agent.hidden_tools:
                raise Rejected(Reason.TOOL_UNKNOWN, name=name)
            waits = self._do.config.waits
            bounds = tool_arguments.Bounds(waits.min_input_minutes, waits.max_input_minutes)
            call.arguments = tool_arguments.parse(name, request.arguments_json, bounds)
            await self._run[name](call)
        except tool_arguments.ArgumentError as error:
            text = headers.error(error.message, error.details)
            self._refuse(call, Reason.INVALID_ARGUMENT, text)
        except Invalid as error:
            self._refuse(call, error.reason, headers.error(statuses.message(error)))
        except Rejected as error:
            if error.reason in _STATUS:
                raise
            self._refuse(call, error.reason, errors.error_text(error.reason, error.details))
            if error.reason is Reason.WAIT_CANCELLED:
                call.answer.kind = _CANCELLED
        return call.answer

    def _refuse(self, call: _Call, reason: Reason, text: str) -> None:
        call.answer.kind = _ERROR
        call.answer.reason = reason
        call.answer.text = convert.text(text)

    async def _shell(self, call: _Call) -> None:
        a: tool_arguments.ShellArguments = call.arguments
        request = call_service_pb2.RunShellRequest(
            agent_id=call.agent.id,
            call_id=call.id,
            script=a.command.encode("utf-8", "surrogateescape"),
            cwd=a.cwd.encode("utf-8", "surrogateescape"),
            env={k: v.encode("utf-8", "surrogateescape") for k, v in a.env.items()},
            background=a.background,
            exclusive=a.exclusive,
        )
        if a.timeout is not None:
            request.timeout.CopyFrom(duration_pb2.Duration(seconds=a.timeout))
        ended = await self._do.run(self._calls.start_command(request))
        answer = call.answer
        if ended.background:
            answer.kind = _PLACEHOLDER
            answer.text = self._answers.placeholder(ended)
            answer.call.CopyFrom(self._answers.call(ended))
            return
        answer.result.CopyFrom(self._answers.result(ended))
        answer.text = answer.result.text
        if ended.state is CallState.CANCELLED:
            answer.kind = _CANCELLED
        elif is_error(ended):
            answer.kind = _ERROR

    async def _wait(self, call: _Call) -> None:
        a: tool_arguments.WaitArguments = call.arguments
        command = c.StartWait(
            agent=call.agent.id,
            wait=call.id,
            mode=a.mode,
            calls=a.call_ids,
            digest=call.digest,
            timeout=None if a.minutes is None else a.minutes * 60.0,
        )
        settled = await self._do.wait(command)
        call.answer.wait.CopyFrom(self._answers.wait(call.agent, call.id, settled))
        call.answer.text = call.answer.wait.text
        if self._answers.wait_is_error(call.agent, settled):
            call.answer.kind = _ERROR

    async def _cancel(self, call: _Call) -> None:
        a: tool_arguments.CancelArguments = call.arguments
        await self._do.loop.submit(
            c.CancelCall(
                agent=call.agent.id,
                call=a.call_id,
                record=call.id,
                record_digest=call.digest,
            )
        )
        call.answer.text = acknowledgements.CANCEL_REQUESTED
        call.answer.cancel.text = acknowledgements.CANCEL_REQUESTED

    async def _agent_start(self, call: _Call) -> None:
        a: tool_arguments.AgentStartArguments = call.arguments
        as_call = a.as_call or call.agent.surface is Surface.TASKS
        started = await self._agents.start_agent(
            call.agent.id, call.id, call.digest, a.prompt, a.role, as_call=as_call
        )
        call.answer.agent_start.CopyFrom(started)
        call.answer.text = started.text
        if as_call:
            call.answer.kind = _PLACEHOLDER

    async def _agent_watch(self, call: _Call) -> None:
        a: tool_arguments.AgentWatchArguments = call.arguments
        answer = await self._agents.watch_agent(
            call.agent.id, call.id, call.digest, a.agent_id, enable=a.enable
        )
        call.answer.agent_watch.CopyFrom(answer)
        call.answer.text = answer.text

    async def _message(self, call: _Call) -> None:
        a: tool_arguments.MessageArguments = call.arguments
        checks.text(a.message, "message", self._do.config.limits.message_bytes)
        try:
            answer = await self._agents.send_message(
                call.agent.id, call.id, call.digest, a.recipient_id, a.message
            )
        except Rejected as error:
            if error.reason in (Reason.RECIPIENT_UNKNOWN, Reason.RECIPIENT_STOPPED):
                error.details["message"] = a.message
            raise
        call.answer.message.CopyFrom(answer)
        call.answer.text = answer.text

    async def _status(self, call: _Call) -> None:
        a: tool_arguments.StatusArguments = call.arguments
        answer = await self._agents.report_status(
            call.agent.id, call.id, call.digest, a.state, a.title
        )
        call.answer.status.state = REPORTED_STATES[a.state]
        call.answer.status.title = a.title
        call.answer.text = answer.text

    async def _task_output(self, call: _Call) -> None:
        a: tool_arguments.TaskOutputArguments = call.arguments
        asked = None if a.timeout_ms is None else a.timeout_ms / 1000
        timeout = self._do.task_wait(asked) if a.wait else None
        answer = await self._tasks.read(call.agent.id, a.task_id, call.id, timeout)
        call.answer.task_output.CopyFrom(answer)
        call.answer.text = answer.text

    async def _task_list(self, call: _Call) -> None:
        answer = self._tasks.listed(self._tasks.tasks(call.agent.id))
        await self._do.loop.submit(c.RecordTool(call.agent.id, call.id, "task_list", call.digest))
        call.answer.task_list.CopyFrom(answer)
        call.answer.text = answer.text

    async def _task_kill(self, call: _Call) -> None:
        a: tool_arguments.TaskKillArguments = call.arguments
        answer = await self._tasks.kill(
            call.agent.id, a.task_id, a.reason, record=call.id, digest=call.digest
        )
        call.answer.task_kill.CopyFrom(answer)
        call.answer.text = answer.text
