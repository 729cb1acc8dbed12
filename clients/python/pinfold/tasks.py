"""An agent's calls seen as tasks, and its tools as a model calls them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pinfold.handle import AgentHandle
from pinfold.lists import all_tasks
from pinfold.v1 import task_service_pb2, tool_service_pb2
from pinfold.values import duration, new_id


class Tasks(AgentHandle):
    async def task_output(
        self,
        task_id: str,
        *,
        wait: bool = False,
        timeout: float | None = None,
        read_id: str = "",
    ) -> task_service_pb2.ReadTaskResponse:
        """The output since the last read, and the status. With `wait`, at the end of the task
        or after `timeout` seconds (default 30), whichever is first."""
        return await self.connection.unary(
            self.connection.tasks.ReadTask,
            task_service_pb2.ReadTaskRequest(
                agent_id=self.agent_id,
                task_id=task_id,
                read_id=read_id or new_id("read"),
                wait=wait,
                timeout=duration(timeout),
            ),
            parks=wait,
        )

    async def task_list(self, *, live_only: bool = False) -> list[task_service_pb2.Task]:
        """The agent's tasks in start order."""
        return await all_tasks(self.connection, self.agent_id, live_only=live_only)

    async def task_kill(
        self, task_id: str, *, reason: str = ""
    ) -> task_service_pb2.KillTaskResponse:
        """Asks for the end of a task; `requested` is false when it had finished already."""
        return await self.connection.unary(
            self.connection.tasks.KillTask,
            task_service_pb2.KillTaskRequest(
                agent_id=self.agent_id, task_id=task_id, reason=reason
            ),
        )

    async def list_tools(self) -> tool_service_pb2.ListToolsResponse:
        """The tools of the agent's surface, and a guidance section for a system prompt."""
        return await self.connection.unary(
            self.connection.tools.ListTools,
            tool_service_pb2.ListToolsRequest(agent_id=self.agent_id),
        )

    async def call_tool(
        self,
        name: str,
        arguments: str | Mapping[str, Any] = "{}",
        *,
        tool_call_id: str = "",
    ) -> tool_service_pb2.CallToolResponse:
        """A model's call as it is: arguments as JSON text (or a mapping), text back.

        What is wrong with the model's arguments is an answer of kind ERROR for the model to
        read, never an exception.
        """
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        return await self.connection.unary(
            self.connection.tools.CallTool,
            tool_service_pb2.CallToolRequest(
                agent_id=self.agent_id,
                tool_call_id=tool_call_id or new_id("call"),
                name=name,
                arguments_json=arguments,
            ),
            parks=True,
        )
