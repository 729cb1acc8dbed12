"""A core to tell stories with: agents, a keeper that does as it is told, and a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import msgspec
import pytest

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.apply import apply
from pinfoldd.core.engine import Engine
from pinfoldd.core.events import Event
from pinfoldd.core.model import Agent, Call, Prompt, State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.settings import Role, Settings
from pinfoldd.core.values import (
    Exit,
    Extent,
    Now,
    PromptKind,
    Receipt,
    ReportedState,
    Stamp,
    Surface,
    Survivor,
    WaitMode,
    WaitOutcome,
)

EPOCH = 1_700_000_000.0
ROLES = {
    "worker": Role(),
    "sturdy": Role(restarts=2, restart_window=60.0, restart_delay=0.2),
    "single": Role(max_running=1),
}
SETTINGS = Settings(roles=ROLES)

E = TypeVar("E", bound=Event)


class Answer(NamedTuple):
    """What a wait was answered with."""

    outcome: WaitOutcome
    calls: tuple[str, ...] = ()
    reason: Reason | None = None


INTERRUPTED = Answer(WaitOutcome.INTERRUPTED)
INPUT = Answer(WaitOutcome.INPUT_AVAILABLE)
TIMED_OUT = Answer(WaitOutcome.TIMED_OUT)
CANCELLED = Answer(WaitOutcome.CANCELLED)


def got(*calls: str) -> Answer:
    return Answer(WaitOutcome.RESULT, calls)


def failed_with(reason: Reason, *calls: str) -> Answer:
    return Answer(WaitOutcome.ERROR, calls, reason)


@contextmanager
def refused(reason: Reason, **details: str) -> Iterator[None]:
    with pytest.raises(Rejected) as caught:
        yield
    assert caught.value.reason is reason
    for name, value in details.items():
        assert caught.value.details[name] == value


class World:
    """Agent `A` is open. Calls are its own unless another agent is named."""

    def __init__(
        self,
        *,
        surface: Surface = Surface.TAU,
        max_running: int = 0,
        max_tasks: int = 0,
        settings: Settings = SETTINGS,
    ) -> None:
        self.engine = Engine(State(), settings)
        self.log: list[tuple[Stamp, Event]] = []
        self.mono = 1000.0
        self._waits = 0
        self._requests = 0
        self.open("A", surface=surface, max_running=max_running, max_tasks=max_tasks)

    # ------------------------------------------------------------ the core

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def now(self) -> Now:
        return Now(self.mono, EPOCH + self.mono)

    def do(self, command: c.Command) -> list[Event]:
        decided = self.engine.handle(command, self.now)
        self.log += decided
        return [event for _, event in decided]

    def after(self, seconds: float) -> None:
        """Time passes, and each deadline in it is seen to on time."""
        until = self.mono + seconds
        while (due := self.engine.next_deadline()) is not None and due <= until:
            self.mono = max(self.mono, due)
            self.do(c.Tick())
        self.mono = until

    def late_tick(self, seconds: float) -> None:
        """Time passes, and the deadlines in it are seen to at its end only."""
        self.mono += seconds
        self.do(c.Tick())

    def events(self, kind: type[E], call: str | None = None) -> list[E]:
        return [
            event
            for _, event in self.log
            if isinstance(event, kind) and (call is None or getattr(event, "call", None) == call)
        ]

    def order(self, *kinds: type[Event]) -> list[str]:
        """The names of the events of these kinds, as they stand in the log."""
        return [type(event).__name__ for _, event in self.log if isinstance(event, kinds)]

    def replayed(self) -> State:
        """The state that the log alone gives."""
        state = State()
        for stamp, event in self.log:
            again: Event = msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=e.AnyEvent)
            apply(state, again, stamp)
        return state

    def restart(self, *, known: set[int] | None = None, lost_seconds: float = 0.0) -> None:
        """The daemon dies and another one takes over. `known`: default, all that was started."""
        self.mono += lost_seconds
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(self.state), type=State)
        assert state == self.state
        if known is None:
            known = set(state.groups)
        self.engine = Engine(state, self.engine.settings)
        self.do(c.Recover("test", frozenset(known)))

    # ------------------------------------------------------------ agents

    def open(
        self,
        agent: str,
        *,
        surface: Surface = Surface.TAU,
        max_running: int = 0,
        max_tasks: int = 0,
        digest: str = "opened",
    ) -> None:
        self.do(c.OpenAgent(agent, surface, digest, max_running=max_running, max_tasks=max_tasks))

    def agent(self, agent: str = "A") -> Agent:
        return self.state.agents[agent]

    def child(
        self, child: str, *, of: str = "A", role: str = "worker", call: str | None = None
    ) -> None:
        """A sub-agent, with its worker running. With `call`: as a call of its starter."""
        as_call = call is not None
        name = call if call is not None else f"start-{child}"
        self.do(c.StartAgent(of, name, child, child, "do it", role, child, as_call=as_call))
        if child in self.state.agents:
            self.worker_runs(child)

    def worker(self, agent: str) -> int:
        worker = self.agent(agent).worker
        assert worker is not None
        return worker.group

    def worker_runs(self, agent: str) -> None:
        self.do(c.GroupStarted(self.worker(agent), 4000, self.mono, self.now.wall))

    def worker_exits(self, agent: str, code: int | None = 0, signal: int | None = None) -> None:
        group = self.worker(agent)
        status = Exit(None if signal else code, signal)
        self.do(c.GroupExited(group, status, Extent(), self.mono))
        self.do(c.GroupEmpty(group, None, self.mono))

    def stop(self, agent: str, reason: str = "no longer needed") -> None:
        self.do(c.StopAgent(agent, reason=reason))

    # ------------------------------------------------------------ calls

    def start(
        self,
        call: str,
        agent: str = "A",
        *,
        background: bool = False,
        exclusive: bool = False,
        timeout: float | None = None,
        kill_leftovers: bool = False,
        digest: str | None = None,
        budget: float | None = 2.0,
    ) -> None:
        self.do(
            c.StartCall(
                agent,
                call,
                call if digest is None else digest,
                call,
                b"spec",
                background=background,
                exclusive=exclusive,
                timeout=timeout,
                kill_leftovers=kill_leftovers,
                budget=budget,
            )
        )

    def call(self, call: str, agent: str = "A") -> Call:
        return self.agent(agent).calls[call]

    def runs(self, call: str, agent: str = "A") -> None:
        group = self.call(call, agent).group
        assert group, f"{call} was not started"
        self.do(c.GroupStarted(group, 1000 + group, self.mono, self.now.wall))

    def begin(self, call: str, agent: str = "A", *, timeout: float | None = None) -> None:
        """Started and running, in the foreground."""
        self.start(call, agent, timeout=timeout)
        self.runs(call, agent)

    def in_background(self, *calls: str, agent: str = "A") -> None:
        """Started, running, and past their budget."""
        for call in calls:
            self.begin(call, agent)
        self.after(2.0)
        assert all(self.call(call, agent).background for call in calls)

    def exits(
        self,
        call: str,
        agent: str = "A",
        *,
        code: int | None = 0,
        signal: int | None = None,
        leftover: int = 0,
        size: int = 0,
    ) -> None:
        """The leader ends. Without leftovers its group is empty at once."""
        group = self.call(call, agent).group
        status = Exit(None if signal else code, signal, leftover=leftover)
        self.do(c.GroupExited(group, status, Extent(size, size), self.mono))
        if not leftover:
            self.do(c.GroupClosed(group, Extent(size, size)))
            self.do(c.GroupEmpty(group, None, self.mono))

    def killed(self, call: str, agent: str = "A", *, size: int = 0) -> None:
        """What a stop comes to: the leader ends by a signal, then the group is empty."""
        group = self.call(call, agent).group
        self.do(c.GroupExited(group, Exit(signal=15), Extent(size, size), self.mono))
        self.do(c.GroupEmpty(group, Receipt(ended=1, proof="subreaper"), self.mono))

    def survives(self, call: str, agent: str = "A") -> None:
        receipt = Receipt(survivors=[Survivor(77, "stuck", "EPERM")])
        self.do(c.GroupSurvived(self.call(call, agent).group, receipt, self.mono))

    def cancel(
        self,
        call: str,
        agent: str = "A",
        *,
        by: str = "agent",
        reason: str = "",
        report: bool = False,
    ) -> None:
        self.do(c.CancelCall(agent, call, by=by, reason=reason, report=report))

    # ------------------------------------------------------------ waits

    def wait(
        self,
        *calls: str,
        agent: str = "A",
        any_of: bool = False,
        for_input: bool = False,
        timeout: float | None = None,
        id: str | None = None,
    ) -> str:
        """Begin a wait: exact, of a set, bare or for input. Returns its id."""
        if for_input:
            mode = WaitMode.ACTIVATING_INPUT
        elif not calls:
            mode = WaitMode.ANY_BACKGROUND
        elif any_of:
            mode = WaitMode.EXACT_ANY
        else:
            mode = WaitMode.EXACT if len(calls) == 1 else WaitMode.EXACT_ALL
        if id is None:
            self._waits += 1
            id = f"w{self._waits}"
        self.do(c.StartWait(agent, id, mode, list(calls), f"{mode}{calls}", timeout))
        return id

    def set_wait(self, *calls: str) -> str:
        """A set, also of one."""
        self._waits += 1
        id = f"w{self._waits}"
        self.do(c.StartWait("A", id, WaitMode.EXACT_ALL, list(calls), repr(calls)))
        return id

    def cancel_wait(self, wait: str, agent: str = "A") -> None:
        self.do(c.CancelWait(agent, wait))

    def answer(self, wait: str, agent: str = "A") -> Answer | None:
        """None: it is installed still."""
        settled = [s for s in self.events(e.WaitSettled) if (s.agent, s.wait) == (agent, wait)]
        if wait in self.agent(agent).waits:
            return None
        last = settled[-1]
        return Answer(last.outcome, tuple(last.calls), last.reason)

    def notices(self, agent: str = "A") -> list[str]:
        """Calls whose notices are pending, in order."""
        return [p.call for p in self.agent(agent).prompts if p.kind is PromptKind.NOTICE]

    def consumed(self, call: str, agent: str = "A") -> int:
        """How often the result went to somebody through a wait."""
        return sum(
            event.consumed.count(call)
            for event in self.events(e.WaitSettled)
            if event.agent == agent
        )

    # ------------------------------------------------------------ turns and prompts

    def _request(self) -> str:
        self._requests += 1
        return f"r{self._requests}"

    def prompt(self, text: str = "hello", agent: str = "A", *, activating: bool = True) -> None:
        self.do(c.SendPrompt(agent, self._request(), text, text, activating))

    def message(self, body: str = "hi", *, to: str = "A", by: str = "A") -> None:
        self.do(c.SendMessage(by, self._request(), body, to, body))

    def watch(self, watched: str, *, by: str = "A", enable: bool = True) -> None:
        self.do(c.WatchAgent(by, watched, enable, self._request(), "w"))

    def status(self, state: ReportedState, title: str = "busy", agent: str = "A") -> None:
        self.do(c.ReportStatus(agent, state, title, self._request(), "s"))

    def next_turn(self, agent: str = "A", ack: str = "") -> str:
        self.do(c.NextTurn(agent, ack))
        return self.agent(agent).turn

    def take(self, agent: str = "A", ack: str = "") -> None:
        self.do(c.TakePrompts(agent, ack))

    def end_turn(self, answer: str = "done", agent: str = "A", *, ack: bool = True) -> None:
        delivery = self.delivery(agent) if ack else ""
        self.do(c.EndTurn(agent, self.agent(agent).turn, answer, delivery))

    def delivery(self, agent: str = "A") -> str:
        delivery = self.agent(agent).delivery
        return delivery.id if delivery else ""

    def delivered(self, agent: str = "A") -> list[str]:
        """What the driver has been handed and has not acknowledged, in words."""
        delivery = self.agent(agent).delivery
        return [] if delivery is None else [_words(p) for p in delivery.prompts]

    def pending(self, agent: str = "A") -> list[str]:
        return [_words(p) for p in self.agent(agent).prompts]


def _words(prompt: Prompt) -> str:
    if prompt.kind is PromptKind.NOTICE:
        return f"notice {prompt.call}"
    return " ".join(part for part in (prompt.kind, prompt.body, prompt.detail) if part)
