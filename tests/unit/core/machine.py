"""Random stories, told to the core and to the reference at once.

After each step both must be in the same place, and what must never happen has not happened.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core import model
from pinfoldd.core.apply import apply
from pinfoldd.core.engine import Engine
from pinfoldd.core.events import Event
from pinfoldd.core.model import State
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
    WaitMode,
)

from .reference import Agent, Call, Prompt, Reference

SETTINGS = Settings(
    active_tasks=1_000,
    finished_calls=6,
    roles={
        "worker": Role(),
        "sturdy": Role(restarts=1, restart_window=30.0, restart_delay=0.2),
    },
)
ROOTS = {"A": (Surface.TAU, 0), "B": (Surface.TAU, 2), "T": (Surface.TASKS, 0)}
MOST_CHILDREN = 5
SAID_ONCE = range(4)  # of the kinds of reports: what is said of a group before it has exited
MODES = [WaitMode.EXACT, WaitMode.EXACT, WaitMode.EXACT_ALL, WaitMode.EXACT_ANY]
MODES += [WaitMode.ANY_BACKGROUND, WaitMode.ANY_BACKGROUND, WaitMode.ACTIVATING_INPUT]

SUPERVISOR = ["restart", "restart", "crash", "keeper", "drain", "stop", "stop all"]

T = TypeVar("T")

encode = msgspec.msgpack.encode


class Group:
    """What the keeper knows of one group."""

    def __init__(self, agent: str, call: str) -> None:
        self.agent, self.call = agent, call
        self.started = self.exited = self.closed = self.gone = False
        self.leftover = 0
        self.size = 0


def pick(data: Any, values: Sequence[T]) -> T:
    if isinstance(data, random.Random):
        return data.choice(values)
    return data.draw(st.sampled_from(values))  # type: ignore[no-any-return]


class CoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(State(), SETTINGS)
        self.reference = Reference({"sturdy": 1}, 30.0, 0.2)
        self.log: list[tuple[Stamp, Event]] = []
        self.replica = State()
        self.groups: dict[int, Group] = {}
        self.mono = 100.0
        self.number = 0
        self.accepted: list[c.Command] = []
        self.readers: list[tuple[str, str]] = []
        self.terminals: Counter[tuple[str, str, int]] = Counter()

    # ------------------------------------------------------------ driving

    def fresh(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number}"

    def handle(self, command: c.Command) -> Reason | None:
        """Why it was refused, if it was; then nothing may have changed."""
        before = encode(self.engine.state)
        try:
            decided = self.engine.handle(command, Now(self.mono, self.mono))
        except Rejected as rejected:
            assert encode(self.engine.state) == before, "a refused command changed something"
            return rejected.reason
        self.log += decided
        for stamp, event in decided:
            apply(self.replica, msgspec.msgpack.decode(encode(event), type=e.AnyEvent), stamp)
            self.observe(event)
        return None

    def both(self, command: c.Command, expected: Reason | None) -> bool:
        reason = self.handle(command)
        assert reason == expected, f"{command}: {reason}, but the contract says {expected}"
        self.reference.settle()
        if reason is None:
            self.accepted.append(command)
        return reason is None

    def observe(self, event: Event) -> None:
        match event:
            case e.CallStarting(agent=agent, call=call, group=group) if group:
                assert group not in self.groups
                self.groups[group] = Group(agent, call)
            case e.WorkerStarting(agent=agent, group=group):
                assert group not in self.groups
                self.groups[group] = Group(agent, "")
            case e.CallEnded(agent=agent, call=call):
                number = self.engine.state.agents[agent].calls[call].number
                key = (agent, call, number)
                self.terminals[key] += 1
                assert self.terminals[key] == 1, f"two terminals of {key}"
            case e.CallsForgotten(agent=agent, calls=calls):
                dropped = self.reference.forget(agent, calls)
                assert dropped is None, f"retention dropped {dropped}"
            case _:
                pass

    def step(self) -> None:
        self.mono += 0.001
        self.reference.now = self.mono

    def any_agent(self, data: Any) -> Agent:
        """Mostly one that is live, and mostly the same: stories need to meet."""
        agents = list(self.reference.agents.values())
        live = [agent for agent in agents if agent.state == "live"]
        main = live[: 1 + self.number % 2]
        return pick(data, pick(data, [main or agents] * 5 + [live or agents] * 3 + [agents]))

    def busy_agent(self, data: Any) -> Agent:
        agents = self.reference.agents.values()
        busy = [agent for agent in agents if agent.state == "live" and agent.calls]
        return pick(data, busy) if busy else self.any_agent(data)

    def any_call(self, data: Any, agent: Agent, *, odd: bool = True) -> str:
        calls = [call.id for call in agent.calls.values() if call.state != "queued"]
        live = [call.id for call in agent.calls.values() if call.live]
        free = [i for i in agent.unconsumed() if agent.covering(i) is None]
        others = [w.id for w in agent.waits] + list(agent.answers)[-2:] + ["nothing", "X1"]
        kinds = [calls] * 2 + [live] * 4 + [free] * 3 + ([others] if odd else [])
        return pick(data, pick(data, [kind for kind in kinds if kind] or [others]))

    # ------------------------------------------------------------ beginnings

    @initialize()
    def roots(self) -> None:
        for id, (surface, places) in ROOTS.items():
            self.handle(c.OpenAgent(id, surface, "d", max_running=places))
            self.reference.agents[id] = Agent(id, surface=surface.value, places=places)

    def start(self, data: Any, background: bool, exclusive: bool, timeout: float | None) -> None:
        self.step()
        agent, id = self.any_agent(data), self.fresh("X")
        command = c.StartCall(
            agent.id,
            id,
            id,
            id,
            b"",
            exclusive=exclusive,
            background=background,
            timeout=timeout,
        )
        expected = self.reference.start(
            agent.id, id, background=background, exclusive=exclusive, timeout=timeout
        )
        if self.both(command, expected) and pick(data, [True] * 4 + [False]):
            self.spawned(agent.id, id)

    def spawned(self, agent: str, call: str) -> None:
        """The keeper is quick."""
        for number, group in self.groups.items():
            if (group.agent, group.call) == (agent, call) and not group.started:
                self.step()
                self.tell_started(number, group)

    def start_agent(self, data: Any, as_call: bool, sturdy: bool) -> None:
        self.step()
        agent, id, child = self.any_agent(data), self.fresh("D"), self.fresh("kid")
        role = "sturdy" if sturdy and not as_call else "worker"
        command = c.StartAgent(agent.id, id, id, child, "go", role, "", as_call=as_call)
        if as_call:
            expected = self.reference.start(agent.id, id, background=True, child=child)
        else:
            expected = self.reference.start_child(agent.id, child, role)
        self.both(command, expected)

    # ------------------------------------------------------------ the keeper

    def standing(self, data: Any, *, started: bool | None = None) -> tuple[int, Group] | None:
        groups = [
            (number, group)
            for number, group in self.groups.items()
            if not group.gone and (started is None or group.started is started)
        ]
        return pick(data, groups) if groups else None

    def owner(self, group: Group) -> tuple[Agent, Call | None]:
        agent = self.reference.agents[group.agent]
        return agent, agent.calls.get(group.call) if group.call else None

    def report(self, command: c.Command) -> None:
        assert self.handle(command) is None
        self.reference.settle()

    def group_started(self, data: Any) -> None:
        self.step()
        found = self.standing(data, started=False)
        if found is None:
            return
        self.tell_started(*found)

    def tell_started(self, number: int, group: Group) -> None:
        group.started = True
        agent, call = self.owner(group)
        if call is not None:
            call.began = self.mono
        elif not group.call and agent.worker == "started":
            agent.worker = "runs"
        self.report(c.GroupStarted(number, 1, self.mono, self.mono))

    def group_failed(self, data: Any) -> None:
        self.step()
        found = self.standing(data, started=False)
        if found is None:
            return
        number, group = found
        group.gone = True
        agent, call = self.owner(group)
        if call is not None:
            self.reference.end(agent, call, "cancelled" if call.why else "failed")
        else:
            self.reference.worker_gone(agent, clean=False)
        self.report(c.GroupFailed(number, "no"))

    def output(self, data: Any, size: int, closed: bool) -> None:
        self.step()
        found = self.standing(data, started=True)
        if found is None:
            return
        number, group = found
        if closed:
            if not group.closed:
                group.closed = True
                self.report(c.GroupClosed(number, Extent(group.size)))
        elif not group.closed:
            group.size += size
            self.report(c.GroupGrew(number, Extent(group.size)))

    def group_exited(self, data: Any, code: int | None, leftover: int, empty: bool) -> None:
        self.step()
        found = self.standing(data, started=True)
        if found is None or found[1].exited:
            return
        number, group = found
        group.exited, group.leftover = True, leftover
        agent, call = self.owner(group)
        if call is not None:
            if call.state == "running":
                call.leftover = leftover > 0
                self.reference.end(agent, call, "succeeded")
        elif not leftover:
            self.reference.worker_gone(agent, clean=code == 0)
        self.report(c.GroupExited(number, Exit(code, leftover=leftover), Extent(), self.mono))
        if empty:
            self.empty(number, group, code)

    def group_empty(self, data: Any) -> None:
        self.step()
        found = self.standing(data, started=True)
        if found is not None:
            number, group = found
            _, call = self.owner(group)
            # Out of turn it can only come of a group that is being ended.
            if group.exited or (call is not None and call.state == "stopping"):
                self.empty(number, group, None)

    def empty(self, number: int, group: Group, code: int | None) -> None:
        group.gone = True
        agent, call = self.owner(group)
        if call is not None:
            if call.state == "stopping":
                how = "timed_out" if call.why == "timeout" else "cancelled"
                self.reference.end(agent, call, how)
            call.leftover = False
        elif not group.call and group.leftover and agent.worker in ("started", "runs"):
            known = self.engine.memory.worker_exits.get(number)
            self.reference.worker_gone(agent, clean=known is not None and known.code == 0)
        self.report(c.GroupEmpty(number, Receipt(), self.mono))

    def group_survived_or_lost(self, data: Any, lost: bool) -> None:
        self.step()
        found = self.standing(data, started=True)
        if found is None:
            return
        number, group = found
        agent, call = self.owner(group)
        if not lost and (call is None or call.state == "running"):
            return  # nobody has tried to end it
        was_worker = agent.worker in ("started", "runs")
        group.gone = True
        if call is not None:
            if call.live:
                self.reference.end(agent, call, "lost" if lost else "failed")
            call.leftover = False
        elif not group.call and was_worker and not (group.exited and not group.leftover):
            known = self.engine.memory.worker_exits.get(number)
            self.reference.worker_gone(agent, clean=known is not None and known.code == 0)
        if lost:
            self.report(c.GroupLost(number, Extent(), None, "lost"))
        else:
            self.report(c.GroupSurvived(number, Receipt(), self.mono))

    def late_or_unknown_report(self, data: Any, kind: int) -> None:
        """Of a group that is gone or never was: it says nothing new."""
        self.step()
        gone = [number for number, group in self.groups.items() if group.gone]
        over = [number for number, group in self.groups.items() if group.exited]
        number = pick(data, [9999, *gone, *(over if kind in SAID_ONCE else [])])
        now = self.mono
        commands: list[c.Command] = [
            c.GroupStarted(number, 1, now, now),
            c.GroupFailed(number, "no"),
            c.GroupExited(number, Exit(0), Extent(), now),
            c.GroupExited(number, Exit(0, leftover=1), Extent(), now),
            c.GroupGrew(number, Extent(10**6)),
            c.GroupPaused(number, True),
            c.GroupEmpty(number, None, now),
            c.GroupSurvived(number, Receipt(), now),
            c.GroupLost(number, Extent(), None, "lost"),
        ]
        before = len(self.log)
        self.report(commands[kind])
        told = [event for _, event in self.log[before:]]
        # Streams may be open longer than a group is there.
        assert all(isinstance(event, e.OutputGrew) for event in told), told

    # ------------------------------------------------------------ time

    def time_passes(self, seconds: float) -> None:
        until = self.mono + seconds
        while True:
            due = self.engine.next_deadline()
            if due is None or due > until:
                break
            self.mono = max(self.mono, due)
            self.reference.time_passes(self.mono)
            self.report(c.Tick())
        self.mono = until
        self.reference.time_passes(until)
        self.reference.settle()

    # ------------------------------------------------------------ waits

    def wait(self, data: Any, mode: WaitMode, timeout: float | None) -> None:
        self.step()
        agent, id = self.busy_agent(data), self.fresh("w")
        calls: list[str] = []
        if mode is WaitMode.EXACT:
            calls = [self.any_call(data, agent)]
        elif mode in (WaitMode.EXACT_ALL, WaitMode.EXACT_ANY):
            size = pick(data, [1, 2, 2, 3])
            calls = list(dict.fromkeys(self.any_call(data, agent) for _ in range(size)))
        if timeout:
            timeout += self.number / 65536  # no two deadlines at once
        command = c.StartWait(agent.id, id, mode, calls, id, timeout)
        self.both(command, self.reference.wait(agent.id, id, mode.value, calls, timeout))

    def many_waits(self, data: Any) -> None:
        """Several forms of one agent at once: where they meet is where it is hard."""
        for mode in (WaitMode.EXACT_ALL, WaitMode.EXACT_ANY, WaitMode.ANY_BACKGROUND):
            self.wait(data, mode, None)

    def cancel_wait(self, data: Any) -> None:
        self.step()
        agent = self.busy_agent(data)
        ids = [wait.id for wait in agent.waits] + list(agent.answers)[-2:] + ["nothing"]
        id = pick(data, ids)
        self.reference.cancel_wait(agent.id, id)
        self.report(c.CancelWait(agent.id, id))

    # ------------------------------------------------------------ cancels and stops

    def cancel(self, data: Any, report: bool) -> None:
        self.step()
        agent = self.busy_agent(data)
        id = self.any_call(data, agent)
        expected = self.reference.cancel(agent.id, id, report=report)
        self.both(c.CancelCall(agent.id, id, report=report), expected)

    def cancel_turn(self, data: Any) -> None:
        self.step()
        agent = self.any_agent(data)
        self.both(c.CancelTurn(agent.id), self.reference.cancel_turn(agent.id))

    def stop_agent(self, data: Any) -> None:
        self.step()
        agent = pick(data, list(self.reference.agents.values()))
        self.reference.stop_agent(agent.id)
        self.both(c.StopAgent(agent.id), None)

    def open_again(self, data: Any) -> None:
        self.step()
        id = pick(data, list(ROOTS))
        agent = self.reference.agents[id]
        surface, places = ROOTS[id]
        expected = None
        if agent.state == "stopping":
            expected = Reason.AGENT_STOPPED
        elif agent.state == "stopped" and self.reference.draining:
            expected = Reason.DRAINING
        command = c.OpenAgent(id, surface, "d", max_running=places)
        if agent.state == "stopped" and expected is None:
            old = {member.id for member in self.reference._tree(agent)}
            self.terminals = Counter(
                {key: n for key, n in self.terminals.items() if key[0] not in old}
            )
            self.both(command, None)
            for member in old:
                del self.reference.agents[member]
            self.readers = [(a, i) for a, i in self.readers if a not in old]
            for group in list(self.groups.values()):
                if group.agent in old:
                    assert group.gone or group.exited
                    group.gone = True
            self.reference.agents[id] = Agent(id, surface=surface.value, places=places)
        else:
            self.both(command, expected)

    # ------------------------------------------------------------ prompts and turns

    def prompt(self, data: Any, activating: bool) -> None:
        self.step()
        agent, text = self.any_agent(data), self.fresh("u")
        expected = self.reference.prompt(agent.id, text, activating=activating)
        self.both(c.SendPrompt(agent.id, text, text, text, activating), expected)

    def message(self, data: Any) -> None:
        self.step()
        agent, other, body = self.any_agent(data), self.any_agent(data), self.fresh("m")
        expected = self.reference.message(agent.id, other.id, body)
        self.both(c.SendMessage(agent.id, body, body, other.id, body), expected)

    def watch(self, data: Any, enable: bool) -> None:
        self.step()
        agent, other, request = self.any_agent(data), self.any_agent(data), self.fresh("v")
        expected = self.reference.watch(agent.id, other.id, enable=enable)
        self.both(c.WatchAgent(agent.id, other.id, enable, request, request), expected)

    def status(self, data: Any, state: ReportedState) -> None:
        self.step()
        agent, request = self.any_agent(data), self.fresh("s")
        expected = self.reference.report_status(agent.id, f"status {state}")
        self.both(c.ReportStatus(agent.id, state, "t", request, request), expected)

    def acknowledged(self, agent: Agent, wanted: bool) -> str:
        core = self.engine.state.agents[agent.id]
        delivery = core.delivery or core.unconfirmed
        return delivery.id if wanted and delivery else ""

    def next_turn(self, data: Any, acknowledge: bool) -> None:
        self.step()
        agent = self.any_agent(data)
        command = c.NextTurn(agent.id, self.acknowledged(agent, acknowledge))
        expected = self.reference.next_turn(agent.id, acknowledge=bool(command.acknowledge))
        self.both(command, expected)

    def take(self, data: Any, acknowledge: bool) -> None:
        self.step()
        agent = self.any_agent(data)
        command = c.TakePrompts(agent.id, self.acknowledged(agent, acknowledge))
        expected = self.reference.take(agent.id, acknowledge=bool(command.acknowledge))
        self.both(command, expected)

    def end_turn(self, data: Any, acknowledge: bool) -> None:
        self.step()
        agent, answer = self.any_agent(data), self.fresh("a")
        turn = self.engine.state.agents[agent.id].turn
        delivery = self.acknowledged(agent, acknowledge) if turn else ""
        expected = self.reference.end_turn(agent.id, answer, acknowledge=bool(delivery))
        self.both(c.EndTurn(agent.id, turn, answer, delivery), expected)

    # ------------------------------------------------------------ tasks

    def read_task(self, data: Any) -> None:
        self.step()
        agent = self.busy_agent(data)
        if not agent.calls:
            return
        id = pick(data, list(agent.calls))
        call = self.engine.state.agents[agent.id].calls[id]
        end = call.result.output.size if call.result else call.output.size
        self.reference.read_all(agent.id, id)
        command = c.ReadTask(agent.id, id, self.fresh("r"), call.cursor, max(end, call.cursor))
        self.both(command, None)

    def reader_comes(self, data: Any) -> None:
        self.step()
        agent = self.busy_agent(data)
        if agent.calls:
            id = pick(data, list(agent.calls))
            self.readers.append((agent.id, id))
            self.reference.reader_comes(agent.id, id)
            self.report(c.BeginTaskWait(agent.id, id))

    def reader_goes(self, data: Any) -> None:
        self.step()
        agent, id = pick(data, self.readers)
        self.readers.remove((agent, id))
        if id in self.reference.agents[agent].calls:
            self.reference.reader_goes(agent, id)
        self.report(c.EndTaskWait(agent, id))

    # ------------------------------------------------------------ repeats

    def repeat(self, data: Any) -> None:
        """What was accepted is sent again: it is known, and nothing happens."""
        self.step()
        command = pick(data, self.accepted[-30:])
        agent = self.reference.agents.get(getattr(command, "agent", ""))
        if agent is None:
            return
        match command:
            case c.StartCall(call=id):
                known = id in agent.calls
            case c.StartWait(wait=id):
                answer = agent.answers.get(id)
                known = any(w.id == id for w in agent.waits) or (
                    answer is not None and answer.outcome != "cancelled"
                )
            case c.SendPrompt() | c.SendMessage() | c.WatchAgent() | c.ReportStatus():
                known = command.request in self.engine.state.agents[agent.id].records
            case _:
                return
        if known:
            before = self.engine.state.revision
            assert self.handle(command) is None
            assert self.engine.state.revision == before

    # ------------------------------------------------------------ the supervisor

    def drain(self) -> None:
        self.step()
        self.reference.draining = True
        self.report(c.Drain("drain"))

    def stop_and_keep(self) -> None:
        self.step()
        self.reference.draining = self.reference.stopping = True
        self.report(c.StopSupervisor("stop", keep_groups=True))

    def stop_all(self) -> None:
        self.step()
        self.reference.stop_everything()
        self.report(c.StopSupervisor("stop", keep_groups=False))

    def restart(self, data: Any, *, losses: bool) -> None:
        """The daemon is replaced, and perhaps the keeper too."""
        self.step()
        state = msgspec.msgpack.decode(encode(self.engine.state), type=State)
        assert state == self.engine.state, "a snapshot is not the state"
        self.engine = Engine(state, SETTINGS)
        self.readers.clear()
        self.reference.restarted()
        known = self.lose(data) if losses else self.present()
        self.reference.start_waiting_workers()
        self.report(c.Recover("v", known))

    def keeper_replaced(self, data: Any) -> None:
        self.step()
        self.report(c.Reconcile(self.lose(data)))

    def present(self) -> frozenset[int]:
        return frozenset(n for n, group in self.groups.items() if not group.gone)

    def lose(self, data: Any) -> frozenset[int]:
        """Some groups are no more. Returns the others."""
        lost = [n for n in sorted(self.present()) if pick(data, [True, False, False])]
        known = self.present() - set(lost)
        for number in lost:
            self.reference.stop_what_is_empty()
            group = self.groups[number]
            agent, call = self.owner(group)
            if call is not None:
                if call.state == "running" and not group.started:
                    continue  # its spawn is still to be done
                group.gone = True
                if call.live:
                    self.reference.end(agent, call, "lost" if group.started else "cancelled")
                call.leftover = False
                continue
            group.gone = True
            if group.call or (group.exited and not group.leftover) or not agent.worker:
                continue
            if agent.state == "live" and not group.started:
                self.reference.start_again(agent)
            else:
                known_exit = self.engine.memory.worker_exits.get(number)
                clean = known_exit is not None and known_exit.code == 0
                self.reference.worker_gone(agent, clean=clean)
        return known

    # ------------------------------------------------------------ the rules
    #
    # Few, with the kinds drawn inside: Hypothesis switches whole rules off in each story.

    @rule(data=st.data())
    def a_call(self, data: Any) -> None:
        background = pick(data, [False, False, True])
        exclusive = pick(data, [False] * 9 + [True])
        self.start(data, background, exclusive, pick(data, [None] * 8 + [0.0, 3.0]))

    @rule(data=st.data(), as_call=st.booleans(), sturdy=st.booleans())
    def a_sub_agent(self, data: Any, as_call: bool, sturdy: bool) -> None:
        if len(self.reference.agents) < len(ROOTS) + MOST_CHILDREN:
            self.start_agent(data, as_call, sturdy)

    @rule(data=st.data(), kind=st.sampled_from(["started"] * 2 + ["exited"] * 8 + ["empty"] * 4))
    def the_keeper(self, data: Any, kind: str) -> None:
        match kind:
            case "started":
                self.group_started(data)
            case "exited":
                code, leftover = pick(data, [0, 0, 7, None]), pick(data, [0, 0, 0, 2])
                self.group_exited(data, code, leftover, pick(data, [True, False]))
            case "empty":
                self.group_empty(data)

    @rule(data=st.data(), kind=st.sampled_from(["failed", "output", "output", "late", "late"]))
    def the_keeper_seldom(self, data: Any, kind: str) -> None:
        match kind:
            case "failed":
                self.group_failed(data)
            case "output":
                self.output(data, pick(data, range(10)), pick(data, [True, False]))
            case "late":
                self.late_or_unknown_report(data, pick(data, range(9)))

    @rule(data=st.data(), lost=st.sampled_from([False, False, True]))
    def the_keeper_fails(self, data: Any, lost: bool) -> None:
        self.group_survived_or_lost(data, lost)

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.0, 2.0, 2.0, 4.0, 70.0]))
    def the_clock(self, seconds: float) -> None:
        self.time_passes(seconds)

    @rule(data=st.data(), mode=st.sampled_from(MODES))
    def a_wait(self, data: Any, mode: WaitMode) -> None:
        self.wait(data, mode, pick(data, [None] * 5 + [0.0, 3.0]))

    @rule(data=st.data())
    def some_waits(self, data: Any) -> None:
        self.many_waits(data)

    @rule(data=st.data(), kind=st.sampled_from(["call"] * 4 + ["wait"] * 2 + ["turn"]))
    def a_cancel(self, data: Any, kind: str) -> None:
        match kind:
            case "call":
                self.cancel(data, pick(data, [False, False, True]))
            case "wait":
                self.cancel_wait(data)
            case "turn":
                self.cancel_turn(data)

    @rule(data=st.data(), kind=st.sampled_from(["stop"] + ["again"] * 3))
    def an_end(self, data: Any, kind: str) -> None:
        if kind == "stop":
            self.stop_agent(data)
        else:
            self.open_again(data)

    @rule(data=st.data(), kind=st.sampled_from(["prompt", "message", "watch", "status"]))
    def talk(self, data: Any, kind: str) -> None:
        match kind:
            case "prompt":
                self.prompt(data, pick(data, [True, False]))
            case "message":
                self.message(data)
            case "watch":
                self.watch(data, pick(data, [True, False]))
            case "status":
                self.status(data, pick(data, list(ReportedState)))

    @rule(data=st.data(), kind=st.sampled_from(["next"] * 3 + ["take"] * 2 + ["end"] * 2))
    def a_turn(self, data: Any, kind: str) -> None:
        acknowledge = pick(data, [True, True, False])
        match kind:
            case "next":
                self.next_turn(data, acknowledge)
            case "take":
                self.take(data, acknowledge)
            case "end":
                self.end_turn(data, acknowledge)

    @rule(data=st.data(), kind=st.sampled_from(["read"] * 2 + ["comes", "goes"]))
    def a_task_tool(self, data: Any, kind: str) -> None:
        match kind:
            case "read":
                self.read_task(data)
            case "comes":
                self.reader_comes(data)
            case "goes":
                if self.readers:
                    self.reader_goes(data)

    @rule(data=st.data())
    def a_repeat(self, data: Any) -> None:
        if self.accepted:
            self.repeat(data)

    @rule(data=st.data(), kind=st.sampled_from(["nothing"] * 7 + SUPERVISOR))
    def the_supervisor(self, data: Any, kind: str) -> None:
        match kind:
            case "restart":
                self.restart(data, losses=False)
            case "crash":
                self.restart(data, losses=True)
            case "keeper":
                self.keeper_replaced(data)
            case "drain" | "stop" | "stop all" if self.reference.draining:
                self.restart(data, losses=False)
            case "drain":
                self.drain()
            case "stop":
                self.stop_and_keep()
            case "stop all":
                self.stop_all()

    # ------------------------------------------------------------ what must hold

    @invariant()
    def holds(self) -> None:
        self.the_same_place()
        self.the_log_gives_the_state()
        self.consumed_at_most_once()
        self.nothing_waits_for_ever()
        self.places_are_kept()
        self.notices_fit()
        self.groups_fit()

    def the_same_place(self) -> None:
        core = self.engine.state.agents
        assert set(core) == set(self.reference.agents)
        for agent in self.reference.agents.values():
            compare(core[agent.id], agent)

    def the_log_gives_the_state(self) -> None:
        assert self.replica == self.engine.state
        assert msgspec.msgpack.decode(encode(self.replica), type=State) == self.replica

    def consumed_at_most_once(self) -> None:
        for agent in self.engine.state.agents.values():
            for call_id in agent.completed:
                assert not agent.calls[call_id].consumed
                assert not agent.calls[call_id].live

    def nothing_waits_for_ever(self) -> None:
        state = self.engine.state
        for agent in state.agents.values():
            for wait in agent.waits.values():
                assert can_end(agent, wait), f"{wait} hangs"
            for call_id in agent.live:
                call = agent.calls[call_id]
                if call.state == "queued":
                    assert agent.running() or state.stopping, f"{call_id} is stuck"
                elif call.sub_agent:
                    assert state.agents[call.sub_agent].state in ("live", "stopping")
                else:
                    assert state.groups[call.group].call == call_id
            if agent.state == "stopping":
                live_below = any(state.agents[i].stopped_wall is None for i in agent.children)
                worker = agent.worker is not None and agent.worker.running
                assert agent.live or agent.leftovers or worker or live_below

    def places_are_kept(self) -> None:
        for agent in self.engine.state.agents.values():
            if agent.max_running:
                assert agent.running() <= agent.max_running
            if agent.exclusive:
                assert agent.running() == 1

    def notices_fit(self) -> None:
        for agent in self.engine.state.agents.values():
            if not agent.is_live:
                continue
            pending = [p.call for p in agent.prompts if p.kind is PromptKind.NOTICE]
            assert len(pending) == len(set(pending)), "a notice is doubled"
            for call_id in pending:
                assert not agent.calls[call_id].consumed, "a notice of a consumed result"
            named = {call.id for call in agent.calls.values() if call.notice}
            assert named == set(pending)

    def groups_fit(self) -> None:
        state = self.engine.state
        for number, owner in state.groups.items():
            agent = state.agents[owner.agent]
            if owner.call:
                call = agent.calls[owner.call]
                assert call.group == number
                assert call.live or call.group_live or not call.closed
            else:
                assert agent.worker is not None
                assert (agent.worker.group, agent.worker.running) == (number, True)


def can_end(agent: model.Agent, wait: model.Wait) -> bool:
    if not agent.is_live:
        return False
    members = [agent.calls[call_id] for call_id in wait.calls]
    match wait.mode:
        case WaitMode.ACTIVATING_INPUT:
            return True
        case WaitMode.ANY_BACKGROUND:
            if any(agent.calls[i].reserved is None for i in agent.completed):
                return False  # it should have been given that
            return bool(agent.completed) or any(agent.calls[i].background for i in agent.live)
        case WaitMode.EXACT_ALL:
            return any(call.live for call in members)
        case _:
            return all(call.live for call in members)


def compare(core: model.Agent, agent: Agent) -> None:
    assert core.state.value == agent.state
    assert list(core.calls) == list(agent.calls)
    for call in agent.calls.values():
        mine = core.calls[call.id]
        seen = (mine.state.value, mine.background, mine.consumed, mine.reported)
        assert seen == (call.state, call.background, call.consumed, call.reported), call.id
        assert mine.group_live == call.leftover or mine.live
    assert list(core.completed) == agent.unconsumed(), "not in the order of the ends"
    assert core.queue == [call.id for call in agent.queue()]
    waits = [(wait.id, wait.mode.value, wait.calls) for wait in core.waits.values()]
    assert waits == [(wait.id, wait.mode, wait.calls) for wait in agent.waits]
    for id, answer in agent.answers.items():
        if answer.outcome == "cancelled":
            assert id not in core.settled
        else:
            settled = core.settled[id]
            seen_answer = (settled.outcome.value, settled.calls, settled.reason)
            assert seen_answer == (answer.outcome, answer.calls, answer.reason), id
    assert bool(core.turn) == agent.turn
    assert core.watching == agent.watching
    same_prompts(core.prompts, agent.mail)
    same_prompts(core.delivery.prompts if core.delivery else None, agent.handed)
    same_prompts(core.unconfirmed.prompts if core.unconfirmed else None, agent.doubtful)
    same_prompts(core.taken, agent.kept)


def same_prompts(core: list[model.Prompt] | None, reference: list[Prompt] | None) -> None:
    """Notices that come back together may do so in any order."""
    assert (core is None) == (reference is None)
    mine = [(p.kind.value, _text(p), p.activating) for p in core or []]
    theirs = [(p.kind, p.text, p.activating) for p in reference or []]
    assert [p for p in mine if p[0] != "notice"] == [p for p in theirs if p[0] != "notice"]
    assert sorted(mine) == sorted(theirs)


def _text(prompt: model.Prompt) -> str:
    if prompt.kind is PromptKind.NOTICE:
        return prompt.call
    if prompt.kind is PromptKind.WATCH_STATE:
        return prompt.detail.split(":")[0]
    return prompt.body
