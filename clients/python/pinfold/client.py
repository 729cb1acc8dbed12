"""The asynchronous client: the supervisor, its agents, its log."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from pinfold.address import Address, resolve
from pinfold.channel import Tls
from pinfold.connection import Connection
from pinfold.errors import InvalidRequestError
from pinfold.lists import all_agents, all_calls, all_tasks
from pinfold.v1 import (
    agent_pb2,
    agent_service_pb2,
    call_pb2,
    supervisor_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    watch_service_pb2,
)
from pinfold.values import Bytes, duration, new_id, to_bytes, to_env
from pinfold.watch import make_filter, watch

if TYPE_CHECKING:
    from pinfold.agent import Agent

_SURFACES = {
    "": agent_pb2.Surface.SURFACE_UNSPECIFIED,
    "tau": agent_pb2.Surface.SURFACE_TAU,
    "tasks": agent_pb2.Surface.SURFACE_TASKS,
    "none": agent_pb2.Surface.SURFACE_NONE,
}
_TOOL_SURFACES = {
    "": tool_service_pb2.ToolSurface.TOOL_SURFACE_UNSPECIFIED,
    "tau": tool_service_pb2.ToolSurface.TOOL_SURFACE_TAU,
    "tasks": tool_service_pb2.ToolSurface.TOOL_SURFACE_TASKS,
    "both": tool_service_pb2.ToolSurface.TOOL_SURFACE_BOTH,
}


class Client:
    """A connection to a supervisor. All times are in seconds.

    RPCs that are safe to repeat are sent again, with the same ids, while the supervisor can't
    be reached, for `patience` seconds; then they raise `UnavailableError`. Every error is a
    `PinfoldError`.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        patience: float = 30.0,
        deadline: float = 60.0,
    ) -> Self:
        """A client of the supervisor at `address`, or of the one of a state directory.

        `address`: "unix:PATH" or "HOST:PORT"; default: the socket in `state`, `PINFOLD_ADDRESS`,
        or the socket in the default state directory (`PINFOLD_STATE`). `token`: default
        `PINFOLD_TOKEN`. `tls`: for TCP; default from `PINFOLD_TLS_CA`, `_CERT`, `_KEY`.
        `deadline`: for RPCs that answer at once.

        The connection is made with the first RPC. Raises `InvalidRequestError` for an address
        that is none.
        """
        if token is None:
            token = os.environ.get("PINFOLD_TOKEN", "")
        if tls is None:
            tls = Tls.from_environment()
        resolved = resolve(address, state)
        return cls(Connection(resolved, token=token, tls=tls, patience=patience, deadline=deadline))

    @property
    def address(self) -> Address:
        return self.connection.address

    async def close(self) -> None:
        """Ends the connection. Calls run on; waits that are not settled are cancelled."""
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Agents

    async def open_agent(
        self,
        agent_id: str = "",
        *,
        surface: str = "",
        label: str = "",
        cwd: Bytes | None = None,
        env: Mapping[str, str | bytes] | None = None,
        max_running_calls: int = 0,
        max_active_tasks: int = 0,
        hidden_tools: Sequence[str] = (),
    ) -> Agent:
        """Opens a root agent, or returns the one with this id and these settings.

        `surface`: "tau" (default), "tasks" or "none". Raises `AlreadyExistsError` when the id
        is taken by an agent with other settings.
        """
        from pinfold.agent import Agent

        response = await self.connection.unary(
            self.connection.agents.OpenAgent,
            agent_service_pb2.OpenAgentRequest(
                agent_id=agent_id or new_id("agent"),
                surface=_choose(_SURFACES, surface, "surface"),
                label=label,
                cwd=to_bytes(cwd),
                env=to_env(env),
                max_running_calls=max_running_calls,
                max_active_tasks=max_active_tasks,
                hidden_tools=hidden_tools,
            ),
        )
        return Agent(self.connection, response.agent.agent_id, token=response.token)

    def agent(self, agent_id: str) -> Agent:
        """A handle of an agent that was opened before. Asks nobody."""
        from pinfold.agent import Agent

        return Agent(self.connection, agent_id)

    async def list_agents(
        self, *, live_only: bool = False, parent_id: str = ""
    ) -> list[agent_pb2.Agent]:
        """All agents that the token reaches."""
        return await all_agents(self.connection, parent_id, live_only=live_only)

    async def list_calls(
        self, *, agent_id: str = "", live_only: bool = False
    ) -> list[call_pb2.Call]:
        """Calls in start order; of all agents that the token reaches when `agent_id` is empty."""
        return await all_calls(self.connection, agent_id, live_only=live_only)

    async def list_tasks(
        self, *, agent_id: str = "", live_only: bool = False
    ) -> list[task_service_pb2.Task]:
        """Tasks in start order; of all agents that the token reaches when `agent_id` is empty."""
        return await all_tasks(self.connection, agent_id, live_only=live_only)

    async def list_tools(
        self, surface: str = "both", *, agent_id: str = ""
    ) -> tool_service_pb2.ListToolsResponse:
        """Tools with their JSON Schemas, and a guidance section for a system prompt."""
        return await self.connection.unary(
            self.connection.tools.ListTools,
            tool_service_pb2.ListToolsRequest(
                agent_id=agent_id, surface=_choose(_TOOL_SURFACES, surface, "surface")
            ),
        )

    # The log

    def watch(
        self,
        start_revision: int = 0,
        *,
        agents: Sequence[str] = (),
        descendants: bool = False,
        names: Sequence[str] = (),
        call_id: str = "",
        stop_at_end: bool = False,
        show_internal: bool = False,
        progress: float | None = None,
    ) -> AsyncIterator[watch_service_pb2.WatchResponse]:
        """Responses as the supervisor sends them; events of one decision are in one of them.

        From 0: a snapshot, closed by a bookmark, then what follows. From R: everything since
        R, inclusive. After a lost connection it goes on behind what was seen, and nothing is
        missed or repeated; a snapshot that was not complete begins anew. `names`: exact, or
        prefixes such as "call.*". Raises `OutOfRangeError` for a revision that is not kept.
        """
        event_filter = make_filter(
            agents=agents, descendants=descendants, names=names, call_id=call_id
        )
        return watch(
            self.connection,
            start_revision,
            event_filter,
            stop_at_end=stop_at_end,
            show_internal=show_internal,
            progress=progress,
        )

    async def events(
        self,
        start_revision: int,
        *,
        agents: Sequence[str] = (),
        descendants: bool = False,
        names: Sequence[str] = (),
        call_id: str = "",
        stop_at_end: bool = False,
        show_internal: bool = False,
    ) -> AsyncIterator[watch_service_pb2.Event]:
        """The same, one event at a time."""
        responses = self.watch(
            start_revision,
            agents=agents,
            descendants=descendants,
            names=names,
            call_id=call_id,
            stop_at_end=stop_at_end,
            show_internal=show_internal,
        )
        async for response in responses:
            for event in response.events:
                yield event

    # The supervisor

    async def info(self) -> supervisor_service_pb2.GetInfoResponse:
        """Version, limits, capabilities, and how much there is of everything."""
        return await self.connection.unary(
            self.connection.supervisor.GetInfo, supervisor_service_pb2.GetInfoRequest()
        )

    async def drain(self) -> int:
        """Lets no new call start from now on. Returns how many are live."""
        response = await self.connection.unary(
            self.connection.supervisor.Drain, supervisor_service_pb2.DrainRequest()
        )
        return response.live_calls

    async def stop(
        self, *, keep_groups: bool = False, grace: float | None = None, reason: str = ""
    ) -> supervisor_service_pb2.StopResponse:
        """Ends all calls and the supervisor; returns when no process is left.

        `keep_groups`: only the daemon exits; calls run on for the next one. `grace`: seconds
        between TERM and KILL, default each call's own. Never repeated after a lost connection.
        """
        return await self.connection.unary(
            self.connection.supervisor.Stop,
            supervisor_service_pb2.StopRequest(
                keep_groups=keep_groups, grace=duration(grace), reason=reason
            ),
            parks=True,
            repeat=False,
        )

    async def create_token(
        self, *, agent_id: str = "", label: str = "", valid_for: float | None = None
    ) -> supervisor_service_pb2.CreateTokenResponse:
        """A token for operators, or for one agent and what is below it. It is shown once."""
        return await self.connection.unary(
            self.connection.supervisor.CreateToken,
            supervisor_service_pb2.CreateTokenRequest(
                agent_id=agent_id, label=label, valid_for=duration(valid_for)
            ),
            repeat=False,
        )

    async def list_tokens(
        self,
    ) -> list[supervisor_service_pb2.ListTokensResponse.Token]:
        response = await self.connection.unary(
            self.connection.supervisor.ListTokens, supervisor_service_pb2.ListTokensRequest()
        )
        return list(response.tokens)

    async def revoke_token(self, token_id: str) -> None:
        await self.connection.unary(
            self.connection.supervisor.RevokeToken,
            supervisor_service_pb2.RevokeTokenRequest(token_id=token_id),
        )


_Choice = TypeVar("_Choice")


def _choose(choices: Mapping[str, _Choice], name: str, what: str) -> _Choice:
    if name not in choices:
        known = ", ".join(repr(choice) for choice in choices if choice)
        raise InvalidRequestError(
            f"no such {what}: {name!r} (expected {known})", reason="INVALID_ARGUMENT"
        )
    return choices[name]
