"""The event log as one phase sees it: its agents and all below them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

from pinfold.client import Client
from pinfold.v1 import agent_pb2, watch_service_pb2

Event = watch_service_pb2.Event

TERMINALS = frozenset(
    {
        "tool.result",
        "tool.error",
        "tool.cancelled",
        "tool.background_result",
        "tool.background_error",
    }
)


class Missing(Exception):
    """An event that did not come."""


class Log:
    """`until` waits for an event, over a Watch stream; `read` reads all there is now."""

    def __init__(self, client: Client, start: int, agents: list[str], patience: float) -> None:
        self._client = client
        self._start = start
        self._agents = agents
        self._patience = patience
        self._events: list[Event] = []
        self._grew = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        events = self._client.events(
            self._start, agents=self._agents, descendants=True, show_internal=True
        )
        async for event in events:
            async with self._grew:
                self._events.append(event)
                self._grew.notify_all()

    async def until(
        self, matches: Callable[[Event], bool], what: str, *, patience: float | None = None
    ) -> Event:
        """The first event that matches. Raises Missing."""
        seen = 0
        try:
            async with asyncio.timeout(patience or self._patience), self._grew:
                while True:
                    for event in self._events[seen:]:
                        if matches(event):
                            return event
                    seen = len(self._events)
                    await self._grew.wait()
        except TimeoutError:
            last = ", ".join(_brief(event) for event in self._events[-6:])
            raise Missing(f"{what}; the last events: {last}") from None

    async def read(self, *, internal: bool = True) -> list[Event]:
        """All events up to now. With `internal` false, as people see them."""
        events = self._client.events(
            self._start,
            agents=self._agents,
            descendants=True,
            stop_at_end=True,
            show_internal=internal,
        )
        return [event async for event in events]


def _brief(event: Event) -> str:
    return f"{event.revision} {event.name} {event.call_id}".rstrip()


# ------------------------------------------------------------ picking


def named(events: Iterable[Event], name: str, *, agent: str = "", call: str = "") -> list[Event]:
    return [event for event in events if is_named(event, name, agent=agent, call=call)]


def is_named(event: Event, name: str, *, agent: str = "", call: str = "") -> bool:
    return (
        event.name == name
        and (not agent or event.agent_id == agent)
        and (not call or event.call_id == call)
    )


def terminals(events: Iterable[Event], agent: str, call: str) -> list[Event]:
    return [
        event
        for event in events
        if event.name in TERMINALS and event.agent_id == agent and event.call_id == call
    ]


def queued(
    events: Iterable[Event], agent: str, kind: agent_pb2.PromptKind.ValueType, *, call: str = ""
) -> list[Event]:
    """`prompt.queued` events of an agent, of one kind."""
    return [
        event
        for event in events
        if event.name == "prompt.queued"
        and event.agent_id == agent
        and event.prompt_queued.prompt.kind == kind
        and (not call or event.prompt_queued.prompt.call_id == call)
    ]


def notices(events: Iterable[Event], agent: str, call: str = "") -> list[Event]:
    return queued(events, agent, agent_pb2.PROMPT_KIND_NOTICE, call=call)


def delivered(events: Iterable[Event], agent: str, prompt_id: str) -> list[Event]:
    """The `agent.prompt_created` events that handed a prompt over."""
    return [
        event
        for event in named(events, "agent.prompt_created", agent=agent)
        if prompt_id in event.prompt_created.prompt_ids
    ]


def settled(events: Iterable[Event], agent: str, wait_id: str) -> list[Event]:
    return [
        event
        for event in named(events, "wait.settled", agent=agent)
        if event.wait_settled.wait_id == wait_id
    ]


def installed(events: Iterable[Event], agent: str, wait_id: str = "") -> list[Event]:
    return [
        event
        for event in named(events, "wait.installed", agent=agent)
        if not wait_id or event.wait_installed.wait_id == wait_id
    ]


def consumers(events: Iterable[Event], agent: str, call: str) -> int:
    """How many waits consumed the result of a call."""
    return sum(
        list(event.wait_settled.consumed_call_ids).count(call)
        for event in named(events, "wait.settled", agent=agent)
    )
