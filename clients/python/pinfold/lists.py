"""Lists, page by page."""

from __future__ import annotations

from pinfold.connection import Connection
from pinfold.v1 import (
    agent_pb2,
    agent_service_pb2,
    call_pb2,
    call_service_pb2,
    task_service_pb2,
)

_PAGE = 1000


async def all_agents(
    connection: Connection, parent_id: str = "", *, live_only: bool = False
) -> list[agent_pb2.Agent]:
    agents: list[agent_pb2.Agent] = []
    request = agent_service_pb2.ListAgentsRequest(
        live_only=live_only, parent_id=parent_id, page_size=_PAGE
    )
    while True:
        page = await connection.unary(connection.agents.ListAgents, request)
        agents.extend(page.agents)
        request.page_token = page.next_page_token
        if not request.page_token:
            return agents


async def all_calls(
    connection: Connection, agent_id: str = "", *, live_only: bool = False
) -> list[call_pb2.Call]:
    calls: list[call_pb2.Call] = []
    request = call_service_pb2.ListCallsRequest(
        agent_id=agent_id, live_only=live_only, page_size=_PAGE
    )
    while True:
        page = await connection.unary(connection.calls.ListCalls, request)
        calls.extend(page.calls)
        request.page_token = page.next_page_token
        if not request.page_token:
            return calls


async def all_tasks(
    connection: Connection, agent_id: str = "", *, live_only: bool = False
) -> list[task_service_pb2.Task]:
    tasks: list[task_service_pb2.Task] = []
    request = task_service_pb2.ListTasksRequest(
        agent_id=agent_id, live_only=live_only, page_size=_PAGE
    )
    while True:
        page = await connection.unary(connection.tasks.ListTasks, request)
        tasks.extend(page.tasks)
        request.page_token = page.next_page_token
        if not request.page_token:
            return tasks
