"""The same client without `async`: each method is the asynchronous one, awaited elsewhere."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pinfold.address import Address
from pinfold.agent import Agent
from pinfold.answers import OutputChunk
from pinfold.channel import Tls
from pinfold.client import Client
from pinfold.portal import Portal
from pinfold.v1 import watch_service_pb2
from pinfold.values import Bytes

P = ParamSpec("P")
R = TypeVar("R")


def _of_agent(
    method: Callable[Concatenate[Agent, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncAgent, P], R]:
    @functools.wraps(method)
    def blocking(self: SyncAgent, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.call(method(self.wrapped, *args, **kwargs))

    return blocking


def _of_client(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncClient, P], R]:
    @functools.wraps(method)
    def blocking(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.call(method(self.wrapped, *args, **kwargs))

    return blocking


class SyncAgent:
    """See `Agent`. Safe to use from several threads."""

    def __init__(self, portal: Portal, wrapped: Agent) -> None:
        self.portal = portal
        self.wrapped = wrapped

    def __repr__(self) -> str:
        return f"SyncAgent({self.agent_id!r})"

    @property
    def agent_id(self) -> str:
        return self.wrapped.agent_id

    @property
    def token(self) -> str:
        return self.wrapped.token

    run = _of_agent(Agent.run)
    start = _of_agent(Agent.start)
    read_output = _of_agent(Agent.read_output)
    get = _of_agent(Agent.get)
    list = _of_agent(Agent.list)
    ended = _of_agent(Agent.ended)
    cancel = _of_agent(Agent.cancel)
    write_input = _of_agent(Agent.write_input)
    close_input = _of_agent(Agent.close_input)
    resize = _of_agent(Agent.resize)

    wait_exact = _of_agent(Agent.wait_exact)
    wait_all = _of_agent(Agent.wait_all)
    wait_any = _of_agent(Agent.wait_any)
    wait_any_background = _of_agent(Agent.wait_any_background)
    wait_for_input = _of_agent(Agent.wait_for_input)

    task_output = _of_agent(Agent.task_output)
    task_list = _of_agent(Agent.task_list)
    task_kill = _of_agent(Agent.task_kill)
    list_tools = _of_agent(Agent.list_tools)
    call_tool = _of_agent(Agent.call_tool)

    next_turn = _of_agent(Agent.next_turn)
    take_prompts = _of_agent(Agent.take_prompts)
    end_turn = _of_agent(Agent.end_turn)
    send_prompt = _of_agent(Agent.send_prompt)
    cancel_turn = _of_agent(Agent.cancel_turn)
    start_agent = _of_agent(Agent.start_agent)
    message = _of_agent(Agent.message)
    watch_agent = _of_agent(Agent.watch_agent)
    status = _of_agent(Agent.status)
    info = _of_agent(Agent.info)
    stop = _of_agent(Agent.stop)

    def output(
        self,
        call_id: str,
        *,
        offset: int = 0,
        follow: bool = True,
        until_end: bool = True,
        stream: str | None = None,
        limit: int = 0,
    ) -> Iterator[OutputChunk]:
        """See `Agent.output`."""
        return self.portal.iterate(
            self.wrapped.output(
                call_id,
                offset=offset,
                follow=follow,
                until_end=until_end,
                stream=stream,
                limit=limit,
            )
        )


class SyncClient:
    """See `Client`. Safe to use from several threads; not across a fork."""

    def __init__(self, portal: Portal, wrapped: Client) -> None:
        self.portal = portal
        self.wrapped = wrapped

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
        """See `Client.connect`."""
        wrapped = Client.connect(
            address, state=state, token=token, tls=tls, patience=patience, deadline=deadline
        )
        return cls(Portal(), wrapped)

    @property
    def address(self) -> Address:
        return self.wrapped.address

    def close(self) -> None:
        """See `Client.close`."""
        self.portal.call(self.wrapped.close())
        self.portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def open_agent(
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
    ) -> SyncAgent:
        """See `Client.open_agent`."""
        opening = self.wrapped.open_agent(
            agent_id,
            surface=surface,
            label=label,
            cwd=cwd,
            env=env,
            max_running_calls=max_running_calls,
            max_active_tasks=max_active_tasks,
            hidden_tools=hidden_tools,
        )
        return SyncAgent(self.portal, self.portal.call(opening))

    def agent(self, agent_id: str) -> SyncAgent:
        """See `Client.agent`."""
        return SyncAgent(self.portal, self.wrapped.agent(agent_id))

    list_agents = _of_client(Client.list_agents)
    list_calls = _of_client(Client.list_calls)
    list_tasks = _of_client(Client.list_tasks)
    list_tools = _of_client(Client.list_tools)
    info = _of_client(Client.info)
    drain = _of_client(Client.drain)
    stop = _of_client(Client.stop)
    create_token = _of_client(Client.create_token)
    list_tokens = _of_client(Client.list_tokens)
    revoke_token = _of_client(Client.revoke_token)

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
    ) -> Iterator[watch_service_pb2.WatchResponse]:
        """See `Client.watch`."""
        return self.portal.iterate(
            self.wrapped.watch(
                start_revision,
                agents=agents,
                descendants=descendants,
                names=names,
                call_id=call_id,
                stop_at_end=stop_at_end,
                show_internal=show_internal,
                progress=progress,
            )
        )

    def events(
        self,
        start_revision: int,
        *,
        agents: Sequence[str] = (),
        descendants: bool = False,
        names: Sequence[str] = (),
        call_id: str = "",
        stop_at_end: bool = False,
        show_internal: bool = False,
    ) -> Iterator[watch_service_pb2.Event]:
        """See `Client.events`."""
        return self.portal.iterate(
            self.wrapped.events(
                start_revision,
                agents=agents,
                descendants=descendants,
                names=names,
                call_id=call_id,
                stop_at_end=stop_at_end,
                show_internal=show_internal,
            )
        )
