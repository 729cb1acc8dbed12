"""What must hold of every event log, checked from its events alone.

    faults = check(events)      # the whole log, with internal prompts; [] when all is well

It knows nothing of the supervisor but the contract: it makes its own picture of calls, waits,
prompts and agents from the public events, and looks at it after each decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pinfold.v1 import agent_pb2, watch_service_pb2

Event = watch_service_pb2.Event

NOTICE = agent_pb2.PROMPT_KIND_NOTICE
WATCH_STATE = agent_pb2.PROMPT_KIND_WATCH_STATE
WATCHED = (
    agent_pb2.PROMPT_KIND_WATCH_ANSWER,
    agent_pb2.PROMPT_KIND_WATCH_PROMPT,
    WATCH_STATE,
)
# An agent that is being stopped begins nothing.
BEGINNINGS = frozenset(
    {
        "agent.turn_started",
        "agent.message_sent",
        "agent.status_reported",
        "call.queued",
        "call.starting",
        "prompt.queued",
        "wait.installed",
        "worker.starting",
    }
)
# What may still be told of an agent that has stopped.
AFTERWARDS = frozenset(
    {"call.output", "call.forgotten", "call.empty", "agent.forgotten", "task.read"}
)


@dataclass
class Call:
    started: bool = False
    background: bool = False
    ended: bool = False
    consumed: bool = False
    reported: bool = False
    asked: bool = False  # a cancel was accepted
    pending: str = ""  # its notice
    told: bool = False  # its notice was delivered


@dataclass
class Wait:
    id: str
    mode: str
    calls: list[str]


@dataclass
class Agent:
    parent: str = ""
    surface: int = 0
    state: str = "live"  # live | stopping | stopped
    calls: dict[str, Call] = field(default_factory=dict)
    completed: list[str] = field(default_factory=list)  # background ends that nobody has, in order
    waits: dict[str, Wait] = field(default_factory=dict)
    turn: str = ""
    pending: dict[str, agent_pb2.Prompt] = field(default_factory=dict)
    delivery: str = ""
    delivered: dict[str, agent_pb2.Prompt] = field(default_factory=dict)  # not acknowledged
    of_turn: dict[str, agent_pb2.Prompt] = field(default_factory=dict)
    watching: set[str] = field(default_factory=set)
    worker: str = ""  # starting | running

    def covering(self, call: str) -> list[Wait]:
        return [wait for wait in self.waits.values() if call in wait.calls]

    def reserved(self, call: str) -> bool:
        return any(wait.mode == "exact_all" for wait in self.covering(call))


class Checker:
    """`readers`: agents that wait in task reads, which the log does not show: what such a read
    keeps back is looked for at the end only."""

    def __init__(
        self, readers: Collection[str] = (), background: Collection[tuple[str, str]] = ()
    ) -> None:
        self.faults: list[str] = []
        self.agents: dict[str, Agent] = {}
        self.readers = readers
        self._background = background  # calls that were started there
        self._revision = 0
        self._event = Event()

    def fault(self, text: str) -> None:
        event = self._event
        where = f"revision {event.revision} ({event.name} {event.agent_id} {event.call_id})"
        self.faults.append(f"{where}: {text}")

    def require(self, condition: object, text: str) -> None:
        if not condition:
            self.fault(text)

    # ------------------------------------------------------------ decisions

    def decide(self, events: Sequence[Event]) -> None:
        """Take the events of one decision."""
        touched: dict[str, None] = {}
        activated: dict[str, None] = {}
        for event in events:
            self._event = event
            self.require(event.revision == self._revision + 1, f"follows {self._revision}")
            self._revision = event.revision
            self.require(event.decision_revision == events[0].revision, "of another decision")
            if not event.agent_id:
                continue
            touched[event.agent_id] = None
            if event.name == "prompt.queued":
                prompt = event.prompt_queued.prompt
                if prompt.activating or prompt.kind == WATCH_STATE:
                    activated[event.agent_id] = None
            self._take(event)
        for agent_id in touched:
            agent = self.agents.get(agent_id)
            if agent is not None:
                self._settled(agent_id, agent, interrupted=agent_id in activated)

    def _settled(self, agent_id: str, agent: Agent, *, interrupted: bool) -> None:
        """After a decision nothing is left that should have happened in it."""
        if interrupted:
            self.require(not agent.waits, f"input left waits of {agent_id}: {list(agent.waits)}")
        if agent.state != "live":
            self.require(not agent.waits, f"{agent_id} is no longer live, and waits")
            return
        for wait in agent.waits.values():
            members = [agent.calls[call_id] for call_id in wait.calls]
            if wait.mode == "exact_all":
                stuck = all(call.ended for call in members)
            elif wait.mode == "any_background":
                free = [i for i in agent.completed if not agent.reserved(i)]
                live = any(c.background and not c.ended for c in agent.calls.values())
                stuck = bool(free) or not (agent.completed or live)
            else:
                stuck = any(call.ended for call in members)
            self.require(not stuck, f"wait {wait.id} ({wait.mode}) of {agent_id} is stuck")
        if agent_id not in self.readers:
            self._owed(agent_id, agent)

    def _owed(self, agent_id: str, agent: Agent) -> None:
        """Each result that nobody has is announced, or somebody waits for it."""
        if agent.state != "live":
            return
        for call_id in agent.completed:
            call = agent.calls[call_id]
            known = call.reported or call.pending or call.told or agent.covering(call_id)
            self.require(known, f"the notice of {call_id} of {agent_id} is lost")

    def finish(self, *, all_ended: bool = True) -> None:
        """The log is over. `all_ended`: no call is live any more."""
        for agent_id, agent in self.agents.items():
            self._owed(agent_id, agent)
            self.require(not agent.waits, f"{agent_id} waits at the end: {list(agent.waits)}")
            for call_id, call in agent.calls.items():
                if all_ended or agent.state == "stopped":
                    self.require(call.ended, f"{call_id} of {agent_id} has no end")
            self.require(agent.state != "stopping", f"{agent_id} never stopped")

    # ------------------------------------------------------------ events

    def _take(self, event: Event) -> None:
        if event.name in ("agent.opened", "agent.started"):
            self._opened(event)
            return
        agent = self.agents.get(event.agent_id)
        if agent is None:
            self.fault("of an agent that there is not")
            return
        if agent.state != "live":
            self.require(event.name not in BEGINNINGS, "begins something, but it is stopped")
        if agent.state == "stopped":
            self.require(event.name in AFTERWARDS, "after its end")
        if event.name in ("agent.stopping", "agent.stopped", "agent.failed"):
            self._stopped(event, agent)
        elif event.name == "agent.forgotten":
            del self.agents[event.agent_id]
        elif event.name.startswith("worker."):
            self._worker(event, agent)
        elif event.call_id and not event.name.startswith("prompt."):
            self._call(event, agent)
        elif event.name.startswith("wait."):
            self._wait(event, agent)
        else:
            self._words(event, agent)

    def _opened(self, event: Event) -> None:
        known = self.agents.get(event.agent_id)
        self.require(known is None, "is there already")
        opened = event.agent_opened
        if opened.parent_id:
            parent = self.agents.get(opened.parent_id)
            self.require(parent and parent.state == "live", "its parent is not live")
        self.agents[event.agent_id] = Agent(opened.parent_id, opened.surface)

    def _stopped(self, event: Event, agent: Agent) -> None:
        if event.name == "agent.stopping":
            self.require(agent.state == "live", "is stopping already")
            agent.state = "stopping"
            return
        self.require(agent.state == "stopping", "has not been stopping")
        agent.state = "stopped"
        live = [call_id for call_id, call in agent.calls.items() if not call.ended]
        self.require(not live, f"its calls have no end: {live}")
        self.require(not agent.worker, "its worker is there")
        for child_id, child in self.agents.items():
            if child.parent == event.agent_id:
                self.require(child.state == "stopped", f"its child {child_id} is {child.state}")
        agent.completed.clear()
        agent.pending.clear()
        agent.delivered.clear()
        agent.turn = ""

    def _worker(self, event: Event, agent: Agent) -> None:
        before = {"worker.starting": "", "worker.started": "starting"}.get(event.name)
        if event.name == "worker.exited":
            self.require(agent.worker, "no worker was there")
            agent.worker = ""
            return
        self.require(agent.worker == before, f"its worker is {agent.worker or 'not there'}")
        agent.worker = event.name.removeprefix("worker.").replace("started", "running")

    # ------------------------------------------------------------ calls

    def _call(self, event: Event, agent: Agent) -> None:
        if event.name == "call.queued":
            self.require(event.call_id not in agent.calls, "was queued before")
            background = (event.agent_id, event.call_id) in self._background
            agent.calls[event.call_id] = Call(background=background)
            return
        call = agent.calls.get(event.call_id)
        if call is None:
            if event.name not in ("tool.recorded", "call.output"):
                self.fault("of a call that there is not")
            return
        if event.HasField("call_ended"):
            self._ended(event, agent, call)
        elif event.name == "call.starting":
            self.require(not call.started and not call.ended, "was started before")
            call.started = True
        elif event.name in ("call.started", "call.stopping", "call.exited"):
            self.require(call.started and not call.ended, "is not running")
        elif event.name == "call.backgrounded":
            self.require(not call.background and not call.ended, "is in the background, or ended")
            call.background = True
        elif event.name == "call.cancel_requested":
            by_user = event.cancel_requested.by == "user"
            self.require(not call.ended, "a cancel was accepted after its end")
            self.require(by_user or not call.asked, "a second cancel was accepted")
            call.asked = True
        elif event.HasField("task_read"):
            self._read(event, agent, call)

    def _ended(self, event: Event, agent: Agent, call: Call) -> None:
        self.require(not call.ended, "a second terminal")
        call.ended = True
        background = event.call_ended.background
        self.require(background or not call.background, "left the background")
        call.background = background
        named = event.name.startswith("tool.background_")
        self.require(named == background, f"background is {background}")
        if background:
            agent.completed.append(event.call_id)

    def _read(self, event: Event, agent: Agent, call: Call) -> None:
        if not event.task_read.reported:
            return
        call.reported = True
        if event.name == "task.read":
            self.require(call.ended, "the end was read before it came")
            if not agent.reserved(event.call_id):
                self._consume(agent, event.call_id)

    def _consume(self, agent: Agent, call_id: str) -> None:
        agent.calls[call_id].consumed = True
        if call_id in agent.completed:
            agent.completed.remove(call_id)

    # ------------------------------------------------------------ waits

    def _wait(self, event: Event, agent: Agent) -> None:
        if event.name == "wait.installed":
            self._installed(agent, event.wait_installed)
        else:
            self._wait_settled(agent, event.wait_settled)

    def _installed(self, agent: Agent, body: watch_service_pb2.WaitInstalled) -> None:
        self.require(body.wait_id not in agent.waits, f"wait {body.wait_id} is installed already")
        for call_id in body.call_ids:
            call = agent.calls.get(call_id)
            self.require(call, f"a wait for {call_id}, which is not its call")
            self.require(not agent.covering(call_id), f"{call_id} has a wait already")
        if body.mode in ("any_background", "activating_input"):
            others = [wait.id for wait in agent.waits.values() if wait.mode == body.mode]
            self.require(not others, f"a second wait of mode {body.mode}")
        agent.waits[body.wait_id] = Wait(body.wait_id, body.mode, list(body.call_ids))

    def _wait_settled(self, agent: Agent, body: watch_service_pb2.WaitSettled) -> None:
        wait = agent.waits.pop(body.wait_id, None)
        taken = list(body.consumed_call_ids)
        self.require(not taken or body.outcome == "result", f"{body.outcome} has consumed {taken}")
        if body.mode == "any_background" and body.outcome == "result":
            free = [call_id for call_id in agent.completed if not agent.reserved(call_id)]
            self.require(taken == free[:1], f"took {taken}, the first was {free[:1]}")
        if body.mode == "exact_all" and wait is not None and taken:
            background = [i for i in wait.calls if agent.calls[i].background]
            self.require(
                [i for i in background if i in taken] == taken, "not in the order of the request"
            )
        for call_id in taken:
            call = agent.calls.get(call_id)
            if call is None:
                self.fault(f"took {call_id}, which is not its call")
                continue
            self.require(call.ended, f"took {call_id} before its end")
            self.require(call.background, f"took {call_id}, a foreground result")
            self.require(not call.consumed, f"took {call_id} again")
            if wait is not None and wait.calls:
                self.require(call_id in wait.calls, f"took {call_id}, which it was not for")
            self._consume(agent, call_id)

    # ------------------------------------------------------------ prompts and turns

    def _words(self, event: Event, agent: Agent) -> None:
        match event.name:
            case "agent.turn_started":
                self.require(not agent.turn, "is in a turn already")
                agent.turn = event.turn_started.turn_id
                agent.pending = agent.delivered | agent.pending
                agent.delivered, agent.of_turn, agent.delivery = {}, {}, ""
            case "agent.turn_ended":
                self.require(agent.turn == event.turn_ended.turn_id, "is not in that turn")
                agent.turn = ""
                agent.of_turn = {}
            case "prompt.queued":
                self._queued(event, agent, event.prompt_queued.prompt)
            case "prompt.suppressed":
                self._suppressed(event, agent)
            case "agent.prompt_created":
                self._created(event, agent, event.prompt_created)
            case "prompt.acknowledged":
                named = event.delivery_acknowledged.delivery_id
                self.require(agent.delivery == named, f"{named} is not its delivery")
                agent.delivery, agent.delivered = "", {}
            case "prompt.returned":
                self.require(agent.turn, "is in no turn")
                agent.pending = agent.of_turn | agent.pending
                agent.delivery, agent.delivered, agent.of_turn = "", {}, {}
            case "agent.message_sent":
                sent = event.message_sent
                recipient = self.agents.get(sent.recipient_id)
                live = recipient is not None and recipient.state == "live"
                self.require(live, "to an agent that is not live")
                same = recipient and self._root(event.agent_id) == self._root(sent.recipient_id)
                self.require(same, "to another tree")
            case "agent.watch_changed":
                changed = event.watch_changed
                if changed.enabled:
                    agent.watching.add(changed.watched_agent_id)
                else:
                    agent.watching.discard(changed.watched_agent_id)
            case _:
                pass

    def _root(self, agent_id: str) -> str:
        while (agent := self.agents.get(agent_id)) and agent.parent:
            agent_id = agent.parent
        return agent_id

    def _queued(self, event: Event, agent: Agent, prompt: agent_pb2.Prompt) -> None:
        agent.pending[prompt.prompt_id] = prompt
        if prompt.kind == NOTICE:
            call = agent.calls.get(prompt.call_id)
            if call is None:
                self.fault(f"the notice of {prompt.call_id}, which is not its call")
                return
            self.require(call.ended and call.background, "a notice of what has not ended")
            self.require(not call.pending, "a second notice")
            self.require(not call.told, "a notice of what it was told of")
            self.require(not call.consumed, "a notice of what it has")
            call.pending = prompt.prompt_id
        elif prompt.kind in WATCHED:
            source = self.agents.get(prompt.from_agent_id)
            self.require(prompt.from_agent_id in agent.watching, "of an agent it does not watch")
            if source is not None and source.state != "live":
                # Of an agent that is stopped its watchers hear that, and nothing else.
                last = prompt.kind == WATCH_STATE and source.state == "stopped"
                self.require(last, "of an agent that is stopped")
                agent.watching.discard(prompt.from_agent_id)

    def _suppressed(self, event: Event, agent: Agent) -> None:
        prompt_id = event.prompt_suppressed.prompt_id
        self.require(agent.pending.pop(prompt_id, None), f"{prompt_id} was not pending")
        call = agent.calls.get(event.prompt_suppressed.call_id)
        if call is not None:
            self.require(call.pending == prompt_id, "is not its notice")
            self.require(
                call.consumed or call.reported or agent.covering(event.prompt_suppressed.call_id),
                "its notice was taken back for nothing",
            )
            call.pending = ""

    def _created(
        self, event: Event, agent: Agent, created: watch_service_pb2.PromptCreated
    ) -> None:
        self.require(agent.turn == created.turn_id, "outside of its turn")
        self.require(not agent.delivery, "the one before is not acknowledged")
        agent.delivery = created.delivery_id
        for prompt_id in created.prompt_ids:
            prompt = agent.pending.pop(prompt_id, None)
            if prompt is None:
                self.fault(f"{prompt_id} was not pending: delivered twice, or never queued")
                continue
            agent.delivered[prompt_id] = agent.of_turn[prompt_id] = prompt
            if prompt.kind == NOTICE and (call := agent.calls.get(prompt.call_id)) is not None:
                call.told, call.pending = True, ""
        left = [p for p in agent.pending.values() if not self._known(agent, p)]
        self.require(not left, f"left {[p.prompt_id for p in left]} behind")
        agent.pending.clear()

    def _known(self, agent: Agent, prompt: agent_pb2.Prompt) -> bool:
        """A notice that is not given again: its result is collected by now."""
        if prompt.kind != NOTICE:
            return False
        call = agent.calls.get(prompt.call_id)
        return call is None or call.consumed or call.reported


def started_in_background(events: Iterable[Event]) -> set[tuple[str, str]]:
    """The log says so at their end only; those without one may be: that accuses nobody."""
    queued: set[tuple[str, str]] = set()
    for event in events:
        key = event.agent_id, event.call_id
        if event.name == "call.queued":
            queued.add(key)
            continue
        in_foreground = event.HasField("call_ended") and not event.call_ended.background
        if in_foreground or event.HasField("call_backgrounded"):
            queued.discard(key)
    return queued


def check(
    events: Iterable[Event], *, readers: Collection[str] = (), all_ended: bool = True
) -> list[str]:
    """Faults of a whole log, in its order."""
    events = list(events)
    checker = Checker(readers, started_in_background(events))
    for _, decision in groupby(events, key=lambda event: event.decision_revision):
        checker.decide(list(decision))
    checker.finish(all_ended=all_ended)
    return checker.faults
