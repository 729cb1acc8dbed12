"""What the contract says, as plainly as it can be said: slow, without events, for tests only.

The rules are stated over whole agents ("a result that nobody has, that no wait covers and
that was not announced is announced now") and applied until nothing changes, where the core
follows each single fact to what depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfoldd.core.reasons import Reason

R = Reason
BUDGET = 2.0


@dataclass
class Call:
    id: str
    background: bool
    exclusive: bool
    timeout: float | None
    child: str = ""
    state: str = "queued"  # queued | running | stopping | or what it ended with
    why: str = ""  # cancelled | timeout
    asked: bool = False  # somebody asked for its cancel
    began: float | None = None
    leftover: bool = False
    consumed: bool = False
    refused: bool = False  # a wait was told that it returned in the foreground
    reported: bool = False
    announced: bool = False
    passive: bool = False
    readers: int = 0

    @property
    def live(self) -> bool:
        return self.state in ("queued", "running", "stopping")


@dataclass
class Wait:
    id: str
    mode: str
    calls: list[str]
    deadline: float | None


@dataclass
class Prompt:
    kind: str
    text: str
    activating: bool
    told: bool = False  # its watchers know of it


@dataclass
class Answer:
    outcome: str
    calls: list[str] = field(default_factory=list)
    reason: Reason | None = None


@dataclass
class Agent:
    id: str
    parent: str = ""
    surface: str = "tau"
    places: int = 0
    role: str = ""
    call: str = ""
    state: str = "live"  # live | stopping | stopped | failed
    failing: bool = False
    worker: str = ""  # "" | started | runs | waits (to be started again)
    restarts: list[float] = field(default_factory=list)
    restart_at: float = 0.0
    calls: dict[str, Call] = field(default_factory=dict)
    ends: list[str] = field(default_factory=list)  # of background calls, in their order
    waits: list[Wait] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    mail: list[Prompt] = field(default_factory=list)
    handed: list[Prompt] | None = None
    doubtful: list[Prompt] | None = None  # handed in the turn before, not acknowledged
    kept: list[Prompt] = field(default_factory=list)  # acknowledged in this turn
    turn: bool = False
    cancelled: bool = False
    status: str = ""
    watching: list[str] = field(default_factory=list)

    def unconsumed(self) -> list[str]:
        return [i for i in self.ends if not self.calls[i].consumed]

    def covering(self, call: str) -> Wait | None:
        return next((wait for wait in self.waits if call in wait.calls), None)

    def of_mode(self, mode: str) -> Wait | None:
        return next((wait for wait in self.waits if wait.mode == mode), None)

    def queue(self) -> list[Call]:
        return [call for call in self.calls.values() if call.state == "queued"]

    def working(self) -> list[Call]:
        return [call for call in self.calls.values() if call.state in ("running", "stopping")]

    def live_calls(self) -> list[Call]:
        return [call for call in self.calls.values() if call.live]


class Reference:
    def __init__(self, restarts: dict[str, int], window: float, delay: float) -> None:
        self.agents: dict[str, Agent] = {}
        self.restarts, self.window, self.delay = restarts, window, delay
        self.draining = False
        self.stopping = False
        self.now = 0.0

    # ------------------------------------------------------------ rules that always hold

    def settle(self) -> None:
        """Let follow what follows. To be called at the end of each step."""
        while self._stop_what_is_empty() or self._fill_places():
            pass

    def stop_what_is_empty(self) -> None:
        """For a step that ends several things: each with what follows, before the next."""
        while self._stop_what_is_empty():
            pass

    def _fill_places(self) -> bool:
        if self.stopping:
            return False
        for agent in self.agents.values():
            queue, working = agent.queue(), agent.working()
            if agent.state != "live" or not queue:
                continue
            first = queue[0]
            blocked = first.exclusive or any(call.exclusive for call in working)
            full = agent.places and len(working) >= agent.places
            if working and (blocked or full):
                continue
            if first.timeout is not None and first.timeout <= 0:
                self.end(agent, first, "timed_out")
            else:
                first.state = "running"
                if first.child:
                    first.began = self.now
                    self._born(agent, first.child, "worker", call=first.id)
            return True
        return False

    def _stop_what_is_empty(self) -> bool:
        for agent in self.agents.values():
            if agent.state != "stopping" or agent.live_calls():
                continue
            below = [a for a in self.agents.values() if a.parent == agent.id]
            if (
                any(call.leftover for call in agent.calls.values())
                or agent.worker in ("started", "runs")
                or any(a.state in ("live", "stopping") for a in below)
            ):
                continue
            agent.state = "failed" if agent.failing else "stopped"
            agent.mail, agent.handed, agent.doubtful, agent.kept = [], None, None, []
            agent.turn = False
            agent.ends = []
            agent.watching = []
            for watcher in self._watchers(agent):
                watcher.watching.remove(agent.id)
                self._put(watcher, Prompt("watch_state", agent.state, agent.failing))
            if agent.call:
                parent = self.agents[agent.parent]
                call = parent.calls.get(agent.call)
                if call is not None and call.live:
                    failed = agent.failing and call.why != "cancelled"
                    self.end(parent, call, "failed" if failed else "cancelled")
            return True
        return False

    def _announce(self, agent: Agent, *, quietly: bool = False) -> None:
        """A bare wait takes what is free; what is then without a taker has its notice."""
        while agent.state == "live":
            bare = agent.of_mode("any_background")
            free = [i for i in agent.unconsumed() if not self._reserved(agent, i)]
            if bare is not None and free:
                self._answer(agent, bare, Answer("result", [free[0]]))
                continue
            if bare is not None and not self._something_left(agent):
                self._answer(agent, bare, Answer("error", [], R.NOTHING_TO_WAIT_FOR))
                continue
            owed = [
                call
                for call in (agent.calls[i] for i in agent.unconsumed())
                if not (call.reported or call.announced or call.readers)
                and agent.covering(call.id) is None
            ]
            if not owed:
                return
            call = owed[0]
            call.announced = True
            loud = agent.surface == "tau" and not (call.passive or quietly)
            self._put(agent, Prompt("notice", call.id, loud))

    def _reserved(self, agent: Agent, call: str) -> bool:
        return agent.covering(call) is not None

    def _something_left(self, agent: Agent) -> bool:
        running = any(call.background for call in agent.live_calls())
        return running or bool(agent.unconsumed())

    def _put(self, agent: Agent, prompt: Prompt) -> None:
        if agent.state != "live":
            return
        agent.mail.append(prompt)
        if prompt.activating or prompt.kind == "watch_state":
            self._give_up(agent, "interrupted")

    def _give_up(self, agent: Agent, outcome: str, *, quietly: bool = False) -> None:
        """All waits of the agent end without a result."""
        waits, agent.waits = agent.waits, []
        for wait in waits:
            how = outcome
            if outcome == "interrupted" and wait.mode == "activating_input":
                how = "input_available"
            agent.answers[wait.id] = Answer(how)
        self._announce(agent, quietly=quietly)

    def _answer(self, agent: Agent, wait: Wait, answer: Answer) -> None:
        agent.waits = [other for other in agent.waits if other is not wait]
        agent.answers[wait.id] = answer
        for call in answer.calls:
            self._consume(agent, call)

    def _consume(self, agent: Agent, call: str) -> None:
        agent.calls[call].consumed = True
        agent.mail = [p for p in agent.mail if (p.kind, p.text) != ("notice", call)]

    def _watchers(self, agent: Agent) -> list[Agent]:
        return [a for a in self.agents.values() if agent.id in a.watching]

    def _tell(self, agent: Agent, kind: str, text: str) -> None:
        for watcher in self._watchers(agent):
            self._put(watcher, Prompt(kind, text, kind != "watch_state"))

    # ------------------------------------------------------------ calls

    def known_id(self, agent: Agent, id: str) -> bool:
        return id in agent.calls or id in agent.answers or any(w.id == id for w in agent.waits)

    def start(
        self,
        agent_id: str,
        id: str,
        *,
        background: bool = False,
        exclusive: bool = False,
        timeout: float | None = None,
        child: str = "",
    ) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        if self.draining:
            return R.DRAINING
        agent.calls[id] = Call(id, background, exclusive, timeout, child)
        return None

    def end(self, agent: Agent, call: Call, state: str) -> None:
        call.state = state
        if state == "cancelled":
            call.why = "cancelled"
        if call.background:
            agent.ends.append(call.id)
        wait = agent.covering(call.id)
        if wait is not None:
            if wait.mode != "exact_all":
                self._answer(agent, wait, Answer("result", [call.id]))
            elif not any(agent.calls[i].live for i in wait.calls):
                self._answer(agent, wait, Answer("result", list(wait.calls)))
        if not call.background:
            call.consumed = True
        self._announce(agent)

    def stop_call(self, agent: Agent, call: Call, why: str) -> None:
        if call.state == "queued":
            self.end(agent, call, "cancelled")
        elif call.state == "running":
            call.state, call.why = "stopping", why
            if call.child:
                self._stop_tree(self.agents[call.child])
                self.stop_what_is_empty()

    def cancel(self, agent_id: str, id: str, *, report: bool) -> Reason | None:
        agent = self.agents[agent_id]
        call = agent.calls.get(id)
        if call is None:
            if any(wait.id == id for wait in agent.waits):
                return R.CALL_NOT_CANCELLABLE
            answer = agent.answers.get(id)
            if answer is not None and answer.outcome != "cancelled":
                return R.CALL_ALREADY_DONE
            return R.CANCEL_TARGET_UNKNOWN
        if report and call.state == "stopping":
            call.reported = True
            return None
        if call.why == "cancelled" or (call.live and call.asked):
            return R.CALL_ALREADY_CANCELED
        if not call.live:
            return R.CALL_ALREADY_DONE
        call.asked = True
        if call.state == "stopping":
            return None
        call.reported = call.reported or report
        self.stop_call(agent, call, "cancelled")
        return None

    def cancel_turn(self, agent_id: str) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        self._give_up(agent, "cancelled", quietly=True)
        for call in agent.live_calls():
            call.passive = call.asked = True
        for call in agent.live_calls():
            self.stop_call(agent, call, "cancelled")
        if agent.turn:
            agent.turn, agent.cancelled = False, True
            self._close_turn(agent)
            self._tell(agent, "watch_state", "turn stopped")
        return None

    def time_passes(self, now: float) -> None:
        """One deadline is due at most."""
        self.now = now
        for agent in list(self.agents.values()):
            due = agent.worker == "waits" and agent.restart_at <= now
            if due and agent.state == "live" and not self.stopping:
                self.start_again(agent)
            for call in agent.live_calls():
                if call.began is None or call.child:
                    continue
                if call.began + BUDGET <= now:
                    call.background = True
                late = call.timeout is not None and call.began + call.timeout <= now
                if late and call.state == "running":
                    self.stop_call(agent, call, "timeout")
            for wait in list(agent.waits):
                if wait.deadline is not None and wait.deadline <= now and wait in agent.waits:
                    self._answer(agent, wait, Answer("timed_out"))
                    self._announce(agent)

    # ------------------------------------------------------------ waits

    def wait(
        self, agent_id: str, id: str, mode: str, calls: list[str], timeout: float | None
    ) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        bad = self._bad_members(agent, calls)
        if bad is R.CALL_RETURNED_NORMALLY and mode == "exact":
            agent.calls[calls[0]].refused = True
            agent.answers[id] = Answer("error", calls, bad)
            return None
        if bad is not None:
            return bad
        wait = Wait(id, mode, calls, None if timeout is None else self.now + timeout)
        done = [i for i in agent.ends if i in calls]
        ready: list[str] = []
        match mode:
            case "any_background":
                if agent.of_mode(mode):
                    return R.BARE_WAIT_IN_PROGRESS
                ready = [i for i in agent.unconsumed() if not self._reserved(agent, i)][:1]
                if not ready and not self._something_left(agent):
                    return R.NOTHING_TO_WAIT_FOR
            case "activating_input":
                if agent.of_mode(mode):
                    return R.INPUT_WAIT_IN_PROGRESS
            case "exact_any":
                ready = done[:1]
            case _:
                ready = calls if len(done) == len(calls) else []
        if ready:
            self._answer(agent, wait, Answer("result", list(ready)))
        elif any(p.activating and not _own(wait, p) for p in agent.mail):
            agent.answers[id] = Answer(
                "input_available" if mode == "activating_input" else "interrupted"
            )
        elif timeout is not None and timeout <= 0:
            agent.answers[id] = Answer("timed_out")
        else:
            agent.waits.append(wait)
        return None

    def _bad_members(self, agent: Agent, calls: list[str]) -> Reason | None:
        returned = False
        for i in calls:
            call = agent.calls.get(i)
            if call is None:
                return R.CALL_UNKNOWN
            if call.consumed and (call.background or call.refused):
                return R.RESULT_CONSUMED
            if agent.covering(i) is not None:
                return R.WAIT_IN_PROGRESS
            returned = returned or call.consumed
        return R.CALL_RETURNED_NORMALLY if returned else None

    def cancel_wait(self, agent_id: str, id: str) -> None:
        agent = self.agents[agent_id]
        for wait in agent.waits:
            if wait.id == id:
                self._answer(agent, wait, Answer("cancelled"))
                self._announce(agent)
                return

    # ------------------------------------------------------------ agents

    def _born(self, parent: Agent, id: str, role: str, *, call: str = "") -> None:
        child = Agent(id, parent.id, role=role, call=call, worker="started")
        self.agents[id] = child
        self._put(child, Prompt("start", "go", True))

    def start_child(self, agent_id: str, child: str, role: str) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        if self.draining:
            return R.DRAINING
        self._born(agent, child, role)
        agent.watching.append(child)
        return None

    def _tree(self, agent: Agent) -> list[Agent]:
        below = [a for a in self.agents.values() if a.parent == agent.id]
        return [agent, *(member for a in below for member in self._tree(a))]

    def stop_agent(self, agent_id: str) -> None:
        if self.agents[agent_id].state == "live":
            self._stop_tree(self.agents[agent_id])

    def _stop_tree(self, agent: Agent, *, failing: bool = False) -> None:
        tree = [member for member in self._tree(agent) if member.state == "live"]
        for member in tree:
            member.state = "stopping"
            member.failing = failing and member is agent
        for member in tree:
            self._end_work(member)

    def _end_work(self, agent: Agent) -> None:
        self._give_up(agent, "cancelled")
        for call in agent.live_calls():
            self.stop_call(agent, call, "cancelled")

    def worker_gone(self, agent: Agent, *, clean: bool) -> None:
        agent.worker = ""
        if agent.state != "live":
            return
        mine = self.agents[agent.parent].calls.get(agent.call) if agent.call else None
        if clean and not agent.turn and not (mine is not None and mine.live):
            self._stop_tree(agent)
            return
        recent = [t for t in agent.restarts if self.now - self.window < t <= self.now]
        if self.draining or len(recent) >= self.restarts.get(agent.role, 0):
            self._stop_tree(agent, failing=True)
            return
        agent.worker, agent.restart_at = "waits", self.now + self.delay
        for child in list(self.agents.values()):
            if child.parent == agent.id and child.state == "live":
                self._stop_tree(child)
                self.stop_what_is_empty()
        self._end_work(agent)
        self._tell(agent, "watch_state", "restarting")

    # ------------------------------------------------------------ prompts, messages, watches

    def prompt(self, agent_id: str, text: str, *, activating: bool) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        self._put(agent, Prompt("user", text, activating))
        return None

    def _root(self, agent: Agent) -> str:
        return self._root(self.agents[agent.parent]) if agent.parent else agent.id

    def _relative(self, agent: Agent, id: str) -> Agent | None:
        other = self.agents.get(id)
        if other is None or self._root(other) != self._root(agent):
            return None
        return other

    def message(self, agent_id: str, recipient: str, body: str) -> Reason | None:
        sender = self.agents[agent_id]
        if sender.state != "live":
            return R.AGENT_STOPPED
        agent = self._relative(sender, recipient)
        if agent is None:
            return R.RECIPIENT_UNKNOWN
        if agent.state != "live":
            return R.RECIPIENT_STOPPED
        self._put(agent, Prompt("message", body, True))
        working = agent.working()
        if working and all(call.background for call in working):
            for call in agent.queue():
                if not call.background:
                    self.end(agent, call, "cancelled")
        return None

    def watch(self, agent_id: str, watched: str, *, enable: bool) -> Reason | None:
        watcher = self.agents[agent_id]
        if watcher.state != "live":
            return R.AGENT_STOPPED
        if watched == agent_id:
            return R.WATCH_SELF
        other = self._relative(watcher, watched)
        if other is None:
            return R.WATCH_TARGET_UNKNOWN
        if enable and other.state != "live":
            return R.WATCH_TARGET_STOPPED
        if enable and agent_id in self._reached(other):
            return R.WATCH_CYCLE
        if enable and watched not in watcher.watching:
            watcher.watching.append(watched)
        elif not enable and watched in watcher.watching:
            watcher.watching.remove(watched)
        return None

    def _reached(self, agent: Agent) -> set[str]:
        found = {agent.id}
        for _ in self.agents:
            found |= {w for i in found for w in self.agents[i].watching}
        return found

    def report_status(self, agent_id: str, status: str) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        if agent.status != status:
            agent.status = status
            self._tell(agent, "watch_state", status)
        return None

    # ------------------------------------------------------------ turns

    def acknowledge(self, agent: Agent) -> None:
        if agent.handed is None:
            agent.doubtful = None
            return
        if self.restarts.get(agent.role, 0):
            agent.kept += agent.handed
        agent.handed = None

    def start_again(self, agent: Agent) -> None:
        """A worker that knows nothing of the turn that is open."""
        agent.worker = "started"
        agent.restarts.append(self.now)
        of_turn = agent.kept + (agent.handed or [])
        agent.mail = [p for p in of_turn if not self._stale(agent, p)] + agent.mail
        agent.kept, agent.handed = [], None

    def _close_turn(self, agent: Agent) -> None:
        agent.doubtful, agent.handed, agent.kept = agent.handed, None, []

    def next_turn(self, agent_id: str, *, acknowledge: bool) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        if agent.turn:
            return self.take(agent_id, acknowledge=acknowledge)
        if acknowledge:
            self.acknowledge(agent)
        again = [p for p in agent.doubtful or [] if not self._stale(agent, p)]
        reasons = agent.mail if agent.cancelled else again + agent.mail
        if any(p.activating for p in reasons):
            agent.turn, agent.cancelled, agent.doubtful = True, False, None
            agent.mail = again + agent.mail
            self._hand_over(agent)
            self._tell(agent, "watch_state", "turn started")
        return None

    def _stale(self, agent: Agent, prompt: Prompt) -> bool:
        if prompt.kind != "notice":
            return False
        call = agent.calls.get(prompt.text)
        return call is None or call.consumed or call.reported

    def _hand_over(self, agent: Agent) -> None:
        if agent.turn and agent.handed is None and agent.mail:
            agent.handed, agent.mail = agent.mail, []
            fresh = [p for p in agent.handed if p.kind == "user" and not p.told]
            for prompt in fresh:
                prompt.told = True
                self._tell(agent, "watch_prompt", prompt.text)

    def take(self, agent_id: str, *, acknowledge: bool) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state != "live":
            return R.AGENT_STOPPED
        if acknowledge:
            self.acknowledge(agent)
        self._hand_over(agent)
        return None

    def end_turn(self, agent_id: str, answer: str, *, acknowledge: bool) -> Reason | None:
        agent = self.agents[agent_id]
        if agent.state == "stopping" and agent.call and agent.turn:
            # the last words of a call that is being ended: kept, and told to nobody
            agent.turn, agent.cancelled = False, False
            self._close_turn(agent)
            return None
        if agent.state != "live":
            return R.AGENT_STOPPED
        if not agent.turn:
            return R.TURN_UNKNOWN
        if acknowledge:
            self.acknowledge(agent)
        agent.turn, agent.cancelled = False, False
        self._close_turn(agent)
        self._tell(agent, "watch_answer", answer)
        self._tell(agent, "watch_state", "turn stopped")
        if agent.call:
            parent = self.agents[agent.parent]
            call = parent.calls[agent.call]
            if call.state == "running":
                self.end(parent, call, "succeeded")
                self._stop_tree(agent)
        return None

    # ------------------------------------------------------------ tasks

    def read_all(self, agent_id: str, id: str) -> None:
        """The owner reads to the end of what there is."""
        agent = self.agents[agent_id]
        call = agent.calls[id]
        if not call.live:
            call.reported = True
            wait = agent.covering(id)
            agent.mail = [p for p in agent.mail if (p.kind, p.text) != ("notice", id)]
            if wait is None:
                self._consume(agent, id)
            self._announce(agent)

    def reader_comes(self, agent_id: str, id: str) -> None:
        self.agents[agent_id].calls[id].readers += 1

    def reader_goes(self, agent_id: str, id: str) -> None:
        agent = self.agents[agent_id]
        agent.calls[id].readers -= 1
        self._announce(agent)

    # ------------------------------------------------------------ the supervisor

    def restarted(self) -> None:
        self.draining = self.stopping = False
        for agent in list(self.agents.values()):
            for call in agent.calls.values():
                call.readers = 0
        for agent in list(self.agents.values()):
            self._give_up(agent, "cancelled")

    def start_waiting_workers(self) -> None:
        for agent in list(self.agents.values()):
            if agent.worker == "waits" and agent.state == "live":
                self.start_again(agent)

    def stop_everything(self) -> None:
        self.draining = self.stopping = True
        for agent in list(self.agents.values()):
            if agent.parent and agent.state == "live":
                self._stop_tree(agent)
                self.stop_what_is_empty()
        for agent in list(self.agents.values()):
            for call in agent.live_calls():
                self.stop_call(agent, call, "cancelled")

    def forget(self, agent_id: str, calls: list[str]) -> str | None:
        """Retention has forgotten them. What it must not have, if anything."""
        agent = self.agents[agent_id]
        for id in calls:
            call = agent.calls[id]
            needed = agent.state == "live" and call.background
            if call.live or call.leftover or agent.covering(id) is not None:
                return id
            if needed and not (call.consumed or call.reported):
                return id
            del agent.calls[id]
            agent.ends = [i for i in agent.ends if i != id]
        return None


def _own(wait: Wait, prompt: Prompt) -> bool:
    """A notice of what the wait is for."""
    return prompt.kind == "notice" and (wait.mode == "any_background" or prompt.text in wait.calls)
