"""Watching the log: every event once and in order, over any number of connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pinfold.connection import Connection
from pinfold.v1 import watch_service_pb2
from pinfold.values import duration


def make_filter(
    *,
    agents: Sequence[str] = (),
    descendants: bool = False,
    names: Sequence[str] = (),
    call_id: str = "",
) -> watch_service_pb2.EventFilter:
    return watch_service_pb2.EventFilter(
        agent_ids=agents, descendants=descendants, names=names, call_id=call_id
    )


async def watch(
    connection: Connection,
    start_revision: int,
    event_filter: watch_service_pb2.EventFilter | None,
    *,
    stop_at_end: bool,
    show_internal: bool,
    progress: float | None,
) -> AsyncIterator[watch_service_pb2.WatchResponse]:
    """See `Client.watch`."""
    resume = start_revision

    def request() -> watch_service_pb2.WatchRequest:
        return watch_service_pb2.WatchRequest(
            start_revision=resume,
            filter=event_filter,
            progress_interval=duration(progress),
            stop_at_end=stop_at_end,
            show_internal=show_internal,
        )

    async for response in connection.stream(connection.watches.Watch, request):
        # Until its bookmark a snapshot is not complete, and is asked for again.
        if response.events:
            resume = max(resume, response.events[-1].revision + 1)
        if response.HasField("bookmark"):
            resume = max(resume, response.bookmark.revision + 1)
        if response.HasField("progress") and resume:
            resume = max(resume, response.progress.revision + 1)
        yield response
