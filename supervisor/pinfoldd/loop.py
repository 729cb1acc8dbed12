"""One writer: takes commands one at a time, lets the core decide, commits, then tells.

    queue -> core -> one transaction -> effects, replies, watchers

Nothing is seen by anyone before it is durable. Everything that is queued in one turn of the
event loop shares one commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NoReturn, Protocol

from pinfoldd.core import events as e
from pinfoldd.core.commands import Command, Tick
from pinfoldd.core.engine import Engine
from pinfoldd.core.events import Event
from pinfoldd.core.model import State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.tasks import CursorMoved
from pinfoldd.core.values import Now, Stamp
from pinfoldd.store import Record, Store, StoreError

log = logging.getLogger(__name__)

FAULT = 70  # exit status after a fault that left the state and the log apart

Events = list[tuple[Stamp, Event]]
_RETRY_SECONDS = 0.25
_SNAPSHOT_EVERY = 20_000  # events
_TAIL_EVENTS = 8192
_TAIL_BYTES = 32 << 20
_COMPACT_PAUSE = 0.02  # seconds between two steps of some milliseconds


class Wire(Protocol):
    """How an event looks to watchers: its public name, what they get, and what those get who
    ask for internal prompts, if it differs."""

    def __call__(
        self, stamp: Stamp, event: Event, state: State, /
    ) -> tuple[str, bytes, bytes | None]: ...


class Effects(Protocol):
    """What follows from an event outside of the state."""

    def perform(self, event: Event) -> None: ...

    def performed(self) -> None:
        """All events of a commit have been performed."""


_KEYS: dict[type[Event], Callable[[Any], tuple[Hashable, ...]]] = {
    e.CallEnded: lambda x: (("answer", x.agent, x.call), ("end", x.agent, x.call)),
    e.CallBackgrounded: lambda x: (("answer", x.agent, x.call),),
    e.WaitSettled: lambda x: (("wait", x.agent, x.wait),),
    e.PromptQueued: lambda x: (("input", x.agent),) if x.activating else (),
    e.AgentStopping: lambda x: (("input", x.agent),),
    e.TurnEnded: lambda x: (("input", x.agent),),
    e.AgentStopped: lambda x: (("stopped", x.agent),),
    e.GroupEmptied: lambda x: (("empty", x.agent, x.call),),
}
"""Who is told of an event: see `Loop.subscribe`."""


def clock() -> Now:
    return Now(time.monotonic(), time.time())


class Loop:
    """Owns the engine and the store. To be used on the thread of its event loop."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        wire: Wire,
        effects: Effects,
        now: Callable[[], Now] = clock,
        *,
        keep_events: int = 1_000_000,
    ) -> None:
        self.engine = engine
        self.store = store
        self._wire = wire
        self._effects = effects
        self._now = now
        self._aio = asyncio.get_running_loop()
        self._queue: deque[tuple[Command, Callable[[Events | BaseException], None] | None]]
        self._queue = deque()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = float("inf")
        self._subscribers: dict[Hashable, list[asyncio.Future[Event]]] = {}
        self._pending: list[Record] = []  # decided, but the store could not take it yet
        self._unanswered: list[Callable[[], None]] = []
        self.failing = False
        self._closed = False
        self.tail: deque[Record] = deque()  # the end of the log, for watchers that are there
        self._tail_bytes = 0
        self._watchers: list[asyncio.Future[None]] = []
        self.committed_revision = engine.state.revision
        self._keep_events = keep_events
        self._snapshot_every = min(_SNAPSHOT_EVERY, max(100, keep_events // 4))
        self._since_snapshot = 0
        self._snapshot: asyncio.Future[None] | None = None
        self._checkpoint: asyncio.Future[None] | None = None

    def engine_now(self) -> Now:
        """The clock that decisions are stamped with."""
        return self._now()

    @property
    def state(self) -> State:
        return self.engine.state

    # ------------------------------------------------------------ commands

    def submit(self, command: Command) -> asyncio.Future[Events]:
        """Queue a client's command. The future has its events once they are durable, or
        raises `Rejected`."""
        future: asyncio.Future[Events] = self._aio.create_future()
        if self.failing:
            future.set_exception(Rejected(Reason.STORE_FAILING))
            return future

        def answer(result: Events | BaseException) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._enqueue(command, answer)
        return future

    def post(
        self, command: Command, then: Callable[[Events | BaseException], None] | None = None
    ) -> None:
        """Queue a command that nobody waits for. `then` is called after its commit."""
        self._enqueue(command, then)

    def _enqueue(
        self, command: Command, then: Callable[[Events | BaseException], None] | None
    ) -> None:
        self._queue.append((command, then))
        if not self._scheduled:
            self._scheduled = True
            self._aio.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self.failing:
            return  # the retry takes the queue up again
        decided: Events = []
        answers = self._unanswered
        queue = self._queue
        while queue:
            command, then = queue.popleft()
            result: Events | BaseException
            recorded = len(self._pending)
            revision = self.engine.state.revision
            try:
                result = self.engine.handle(command, self._now())
                self._record(result)
            except (Rejected, CursorMoved) as error:
                result = error
            except Exception as error:
                # A fault of ours. If nothing has changed it is this command's alone.
                log.exception("%s failed", type(command).__name__)
                if self.engine.state.revision != revision:
                    del self._pending[recorded:]
                    self._commit(decided)
                    self._give_up()
                result = error
            else:
                decided += result
            if then is not None:
                answers.append(partial(then, result))
        self._commit(decided)

    def _give_up(self) -> NoReturn:
        """The state is ahead of the log, and nobody may see what is not in the log. The keeper
        has the groups, and the next daemon begins with what is durable."""
        log.critical("half of a decision was taken; ending, so that the log is read again")
        logging.shutdown()
        os._exit(FAULT)

    def _record(self, events: Events) -> None:
        for stamp, event in events:
            seen = self._wire(stamp, event, self.engine.state)
            self._pending.append(Record.of(stamp, event, *seen))

    def _commit(self, decided: Events) -> None:
        if self._pending:
            try:
                self.store.log.append(self._pending)
            except StoreError as error:
                log.error("cannot write the event log, trying again: %s", error)
                self.failing = True
                self._aio.call_later(_RETRY_SECONDS, self._retry, decided)
                return
            self._remember(self._pending)
            self.committed_revision = self._pending[-1].revision
            self._since_snapshot += len(self._pending)
            self._pending = []
        answers, self._unanswered = self._unanswered, []
        for _, event in decided:
            try:
                self._effects.perform(event)
            except Exception:
                # Whoever waits for an answer must not wait for ever because of it.
                log.exception("cannot carry out %s", event)
        if decided:
            self._effects.performed()
        for answer in answers:
            answer()
        for _, event in decided:
            self._tell(event)
        if decided and self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)
        self._arm()
        if self._since_snapshot >= self._snapshot_every:
            self._take_snapshot()
        if self.store.log.checkpoint_due():
            self._checkpoint_log()

    def _remember(self, records: list[Record]) -> None:
        """Bounded in bytes, too: eight thousand messages of a MiB are no tail."""
        tail = self.tail
        for record in records:
            self._tail_bytes += _size(record)
            tail.append(record)
        while tail and (len(tail) > _TAIL_EVENTS or self._tail_bytes > _TAIL_BYTES):
            self._tail_bytes -= _size(tail.popleft())

    def _retry(self, decided: Events) -> None:
        self.failing = False
        self._commit(decided)
        if not self.failing and self._queue:
            self._turn()

    # ------------------------------------------------------------ time

    def _arm(self) -> None:
        due = self.engine.next_deadline()
        if due is None or due >= self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._aio.call_later(max(0.0, due - self._now().mono), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_due = float("inf")
        self._enqueue(Tick(), None)

    # ------------------------------------------------------------ subscriptions

    def subscribe(self, key: Hashable) -> asyncio.Future[Event]:
        """A future for the next event of this key, after its commit:

        ("answer", agent, call): it ended or went to the background
        ("end", agent, call)   : it ended
        ("wait", agent, wait)  : it was settled
        ("input", agent)       : an activating prompt was queued, or the agent is stopping
        ("stopped", agent)     : it is stopped
        ("empty", agent, call) : what had outlived the call is gone
        """
        future: asyncio.Future[Event] = self._aio.create_future()
        self._subscribers.setdefault(key, []).append(future)
        return future

    def unsubscribe(self, key: Hashable, future: asyncio.Future[Event]) -> None:
        futures = self._subscribers.get(key)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._subscribers[key]

    def _tell(self, event: Event) -> None:
        keys = _KEYS.get(type(event))
        if keys is not None:
            for key in keys(event):
                self._resolve(key, event)

    def _resolve(self, key: Hashable, event: Event) -> None:
        futures = self._subscribers.pop(key, None)
        if futures is not None:
            for future in futures:
                if not future.done():
                    future.set_result(event)

    def committed(self) -> asyncio.Future[None]:
        """A future for the next commit with events."""
        future: asyncio.Future[None] = self._aio.create_future()
        self._watchers.append(future)
        return future

    # ------------------------------------------------------------ snapshots

    def _take_snapshot(self) -> None:
        if self._snapshot is not None and not self._snapshot.done():
            return
        self._since_snapshot = 0
        self._snapshot = self._aio.run_in_executor(None, self.store.take_snapshot)
        self._snapshot.add_done_callback(partial(_done, "write a snapshot"))
        self._snapshot.add_done_callback(lambda _: self._compact())

    def _compact(self) -> None:
        """Forget the events over the bound, a little at a time; never what a start needs."""
        try:
            more = self.store.compact(self.committed_revision - self._keep_events + 1)
        except StoreError as error:
            log.error("cannot compact the event log: %s", error)
        else:
            if more and not self._closed:
                self._aio.call_later(_COMPACT_PAUSE, self._compact)

    def _checkpoint_log(self) -> None:
        if self._checkpoint is None or self._checkpoint.done():
            self._checkpoint = self._aio.run_in_executor(None, self.store.log.checkpoint)
            self._checkpoint.add_done_callback(partial(_done, "checkpoint the log"))

    async def close(self) -> None:
        """Commit what is queued and write a last snapshot."""
        self._turn()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        under_way = [f for f in (self._snapshot, self._checkpoint) if f is not None]
        if under_way:
            await asyncio.wait(under_way)
        if not self.failing:
            try:
                self.store.snapshots.save(self.engine.state)
            except StoreError as error:
                log.error("%s", error)  # the log has it all; the next start takes longer


def _size(record: Record) -> int:
    return len(record.wire) + len(record.event) + len(record.internal or b"")


def _done(what: str, future: asyncio.Future[None]) -> None:
    if not future.cancelled() and future.exception() is not None:
        log.error("cannot %s: %s", what, future.exception())
