"""WatchService: streams over the log. Every watcher reads at its own pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from pinfold.v1 import agent_pb2, call_pb2, watch_service_pb2
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.rpc import checks, convert, wire
from pinfoldd.rpc.answers import Answers
from pinfoldd.rpc.door import Door, caller
from pinfoldd.rpc.errors import Invalid
from pinfoldd.rpc.operations import Operations
from pinfoldd.store import Record, Row

_MAX_BYTES = 256 * 1024  # of one response

Seen = Callable[[str, str, str], bool]


def _everyone(agent: str, call: str, name: str) -> bool:
    return True


class WatchService:
    def __init__(self, operations: Operations, answers: Answers, door: Door) -> None:
        self._do = operations
        self._answers = answers
        self._door = door
        # What the last watcher at the end of the log got: from, up to before, response.
        self._shared = (0, 0, b"")

    async def Watch(
        self, request: watch_service_pb2.WatchRequest
    ) -> AsyncIterator[watch_service_pb2.WatchResponse | bytes]:
        loop = self._do.loop
        start = checks.count(request.start_revision, "start_revision", 2**62)
        interval = None
        if request.HasField("progress_interval"):
            interval = checks.seconds(request.progress_interval, "progress_interval")
            if interval < 0.1:
                raise Invalid("progress_interval", "at least 100 ms")
        seen = self._filter(request.filter, named=True)
        show = request.show_internal
        if start == 0:
            # Both at once: while a part is on its way, more is decided.
            # A state has no name: of a filter for events only whose they are matters to it.
            shown = self._filter(request.filter, named=False)
            parts, start = self._snapshot(shown), loop.committed_revision + 1
            for part in parts:
                yield watch_service_pb2.WatchResponse(snapshot=part)
            bookmark = watch_service_pb2.Bookmark(revision=start - 1)
            yield watch_service_pb2.WatchResponse(bookmark=bookmark)
        elif start > loop.committed_revision + 1:
            raise Rejected(Reason.REVISION_IN_FUTURE, revision=str(loop.committed_revision))
        while True:
            news = loop.committed()
            while start <= loop.committed_revision:
                if seen is _everyone and not show:
                    start, response = self._everything(start)
                else:
                    start, response = self._some(start, seen, show=show)
                if response:
                    yield response
            if request.stop_at_end:
                yield _progress(start - 1)
                return
            try:
                await asyncio.wait_for(news, interval)
            except TimeoutError:
                yield _progress(start - 1)

    def _everything(self, start: int) -> tuple[int, bytes]:
        """The next response to a watcher without a filter, and where it goes on."""
        if not self._recent(start):
            return self._do.loop.store.log.wires(start, _MAX_BYTES)
        # Most watchers are at the end of the log, and get the same: it is made once.
        if self._shared[:2] != (start, self._do.loop.committed_revision + 1):
            self._shared = (start, *self._some(start, _everyone, show=False))
        return self._shared[1:]

    def _some(self, start: int, seen: Seen, *, show: bool) -> tuple[int, bytes]:
        """The same for a filter; no bytes if none of the next events pass it."""
        rows = self._read(start)
        kept = [
            (show and row.internal) or row.wire
            for row in rows
            if seen(row.agent, row.call, row.name)
        ]
        return rows[-1].revision + 1, b"".join(kept)

    def _recent(self, start: int) -> bool:
        """Whether the events from a revision on are in memory."""
        oldest = self._do.loop.store.log.oldest_revision()
        if start < oldest:
            # Asked for too late, or read too slowly: either way there would be a hole.
            raise Rejected(Reason.REVISION_COMPACTED, oldest_revision=str(oldest))
        tail = self._do.loop.tail
        return bool(tail) and tail[0].revision <= start

    def _read(self, start: int) -> list[Row] | list[Record]:
        """Events from a revision on, whole decisions: from memory if they are recent."""
        if self._recent(start):
            tail = self._do.loop.tail
            first = start - tail[0].revision
            rows: list[Record] = []
            size = 0
            for index in range(first, len(tail)):
                record = tail[index]
                if size > _MAX_BYTES and record.decision == record.revision:
                    break
                size += len(record.internal or record.wire)
                rows.append(record)
            return rows
        return self._do.loop.store.log.read(start, 2_000, _MAX_BYTES)

    def _snapshot(self, seen: Seen) -> list[watch_service_pb2.Snapshot]:
        """The live state, in parts of which each is short enough for one response."""
        agents: deque[agent_pb2.Agent] = deque()
        calls: deque[call_pb2.Call] = deque()
        for agent in self._do.state.agents.values():
            if agent.stopped_wall is not None:
                continue
            if seen(agent.id, "", ""):
                agents.append(convert.agent(agent))
            calls += [
                self._answers.call(agent.calls[call_id])
                for call_id in (*agent.completed, *agent.live)
                if seen(agent.id, call_id, "")
            ]
        parts: list[watch_service_pb2.Snapshot] = []
        while agents:
            parts.append(watch_service_pb2.Snapshot(agents=wire.batch(agents, _MAX_BYTES)))
        while calls:
            parts.append(watch_service_pb2.Snapshot(calls=wire.batch(calls, _MAX_BYTES)))
        return parts or [watch_service_pb2.Snapshot()]

    def _filter(self, wanted: watch_service_pb2.EventFilter, *, named: bool) -> Seen:
        who = caller.get()
        state = self._do.state
        for agent_id in wanted.agent_ids:
            self._door.check(who, agent_id)
        agents = frozenset(wanted.agent_ids)
        asked = wanted.names if named else ()
        names = frozenset(name for name in asked if not name.endswith("*"))
        prefixes = tuple(name[:-1] for name in asked if name.endswith("*"))
        call_id = wanted.call_id
        if who.operator and not agents and not asked and not call_id:
            return _everyone

        def below(agent_id: str) -> bool:
            while agent_id:
                if agent_id in agents:
                    return True
                agent = state.agents.get(agent_id)
                agent_id = agent.parent if agent is not None else ""
            return False

        def seen(agent: str, call: str, name: str) -> bool:
            if not who.operator and not (agent and who.may(state, agent)):
                return False
            if agents and agent not in agents and not (wanted.descendants and below(agent)):
                return False
            if asked and name not in names and not (prefixes and name.startswith(prefixes)):
                return False
            return not call_id or call == call_id

        return seen


def _progress(revision: int) -> watch_service_pb2.WatchResponse:
    return watch_service_pb2.WatchResponse(progress=watch_service_pb2.Progress(revision=revision))
