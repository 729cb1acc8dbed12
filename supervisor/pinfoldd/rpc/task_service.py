"""TaskService: the same calls, seen as tasks."""

from __future__ import annotations

from pinfold.v1 import task_service_pb2
from pinfoldd.core import commands as c
from pinfoldd.core import tasks
from pinfoldd.core.model import Call
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.render import labels
from pinfoldd.render import tasks as texts
from pinfoldd.rpc import checks
from pinfoldd.rpc.answers import Answers
from pinfoldd.rpc.door import caller
from pinfoldd.rpc.errors import Invalid
from pinfoldd.rpc.operations import Operations


class TaskService:
    def __init__(self, operations: Operations, answers: Answers) -> None:
        self._do = operations
        self._answers = answers

    async def ReadTask(
        self, request: task_service_pb2.ReadTaskRequest
    ) -> task_service_pb2.ReadTaskResponse:
        asked = None
        if request.HasField("timeout"):
            if request.timeout.seconds <= 0 and request.timeout.nanos <= 0:
                raise Invalid("timeout", "must be positive")
            asked = checks.seconds(request.timeout, "timeout")
        timeout = self._do.task_wait(asked) if request.wait else None
        return await self.read(
            request.agent_id, _task_id(request.task_id), request.read_id, timeout
        )

    async def read(
        self, agent_id: str, task_id: str, read_id: str, timeout: float | None
    ) -> task_service_pb2.ReadTaskResponse:
        """For the typed RPC and the tool."""
        delta = await self._do.read_task(agent_id, task_id, read_id, timeout)
        return self._answers.task_read(delta)

    async def ListTasks(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        size, start = checks.page(request.page_size, request.page_token)
        found = self.tasks(request.agent_id, live_only=request.live_only)
        page = found[start : start + size]
        more = str(start + size) if start + size < len(found) else ""
        return self.listed(page, more)

    def tasks(self, agent_id: str, *, live_only: bool = False) -> list[Call]:
        """In start order. No agent: all that the caller may see."""
        state = self._do.state
        if agent_id:
            agents = [state.agent(agent_id)]
        else:
            agents = [a for a in state.agents.values() if caller.get().may(state, a.id)]
        found = [
            call
            for agent in agents
            for call in agent.calls.values()
            if call.background and (call.live or not live_only)
        ]
        if len(agents) > 1:
            found.sort(key=lambda call: call.queued_wall)
        return found

    def listed(self, calls: list[Call], more: str = "") -> task_service_pb2.ListTasksResponse:
        return task_service_pb2.ListTasksResponse(
            tasks=[self._answers.task(call) for call in calls],
            text=texts.task_list(calls),
            next_page_token=more,
        )

    async def KillTask(
        self, request: task_service_pb2.KillTaskRequest
    ) -> task_service_pb2.KillTaskResponse:
        reason = checks.text(request.reason, "reason", checks.MAX_LABEL_BYTES, empty=True)
        return await self.kill(request.agent_id, _task_id(request.task_id), reason)

    async def kill(
        self, agent_id: str, task_id: str, reason: str, *, record: str = "", digest: str = ""
    ) -> task_service_pb2.KillTaskResponse:
        """For the typed RPC and the tool. Repeats, and kills of what has ended, are no errors."""
        call = tasks.find(self._do.state, agent_id, task_id)
        who = caller.get()
        requested = True
        try:
            await self._do.loop.submit(
                c.CancelCall(
                    agent=agent_id,
                    call=call.id,
                    by="agent" if who.agent or record else "operator",
                    reason=labels.label(reason),
                    # The owner knows that it asked for the end; anyone else's kill is news to it.
                    report=who.agent == agent_id or bool(record),
                    record=record,
                    record_digest=digest,
                )
            )
        except Rejected as error:
            if error.reason not in (Reason.CALL_ALREADY_CANCELED, Reason.CALL_ALREADY_DONE):
                raise
            requested = call.live
        if requested:
            text = texts.kill_requested(call.task_id)
        else:
            text = texts.kill_too_late(call)
        return task_service_pb2.KillTaskResponse(
            task=self._answers.task(call), text=text, requested=requested
        )


def _task_id(value: str) -> str:
    value = value.strip()
    if not value:
        raise Invalid("task_id", 'expected a non-empty string, got ""')
    return value
