"""The one place where commands become events.

    handle(command, now) -> [(stamp, event), ...]     events are applied already
    restore(state)                                    after a replay

No I/O, no clock, no await. A command that is rejected has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfoldd.core import agents, calls, commands, recovery, retention, tasks, turns, waits
from pinfoldd.core import events as e
from pinfoldd.core.decision import Decision, Memory
from pinfoldd.core.events import Event
from pinfoldd.core.model import State
from pinfoldd.core.reasons import Rejected
from pinfoldd.core.settings import Settings
from pinfoldd.core.values import Now, Stamp


class Engine:
    """Holds the state and takes one command at a time."""

    def __init__(self, state: State, settings: Settings) -> None:
        self.state = state
        self.settings = settings
        self.memory = Memory()
        recovery.rearm(state, self.memory)

    def handle(self, command: commands.Command, now: Now) -> list[tuple[Stamp, Event]]:
        """Decide one command.

        Raises Rejected (nothing has changed) for a command that cannot be carried out, and
        tasks.CursorMoved for a read that was overtaken.
        """
        decision = Decision(self.state, self.memory, self.settings, now)
        try:
            _HANDLE[type(command)](decision, command)
            if decision.freed:
                calls.fill(decision)
        except (Rejected, tasks.CursorMoved) as error:
            if decision.events:
                raise AssertionError(f"{command} was rejected half-way") from error
            raise
        for stamp, event in decision.events:
            self._arm(stamp, event)
        return decision.events

    def next_deadline(self) -> float | None:
        """Monotonic seconds of the next Tick that may be needed."""
        memory = self.memory
        while (first := memory.first()) is not None:
            if recovery.needed(self.state, first):
                return first.mono
            # Of a call that ended in time, as most do: a wake-up for nothing.
            memory.drop_first()
        return None

    def _arm(self, stamp: Stamp, event: Event) -> None:
        if type(event) is e.CallStarted:
            call = self.state.call(event.agent, event.call)
            if call is not None and call.live:
                recovery.arm_call(self.memory, call)


def _tick(d: Decision, c: commands.Tick) -> None:
    while (timer := d.memory.due(d.now.mono)) is not None:
        match timer.kind:
            case "budget":
                calls.background_due(d, timer.agent, timer.id)
            case "timeout":
                calls.timeout_due(d, timer.agent, timer.id)
            case "wait":
                waits.timeout_due(d, timer.agent, timer.id)
            case "restart":
                agents.restart_due(d, timer.agent)
            case "sweep":
                again = retention.sweep(d)
                recovery.prune(d.state, d.memory)
                d.memory.arm(d.now.mono + again, "sweep", "", "")


_HANDLE: dict[type[commands.Command], Callable[[Decision, Any], None]] = {
    commands.StartCall: calls.start,
    commands.CancelCall: calls.cancel,
    commands.CancelTurn: turns.cancel_turn,
    commands.StartWait: waits.start,
    commands.CancelWait: waits.cancel,
    commands.OpenAgent: agents.open_root,
    commands.StartAgent: agents.start_child,
    commands.StopAgent: agents.stop_tree,
    commands.SendPrompt: turns.send_prompt,
    commands.SendMessage: turns.send_message,
    commands.WatchAgent: turns.watch,
    commands.ReportStatus: turns.report_status,
    commands.RecordTool: turns.record_tool,
    commands.NextTurn: turns.next_turn,
    commands.TakePrompts: turns.take,
    commands.EndTurn: turns.end_turn,
    commands.ReadTask: tasks.read,
    commands.BeginTaskWait: tasks.begin_wait,
    commands.EndTaskWait: tasks.end_wait,
    commands.GroupStarted: calls.started,
    commands.GroupFailed: calls.failed,
    commands.GroupGrew: calls.grew,
    commands.GroupPaused: calls.paused,
    commands.GroupExited: calls.exited,
    commands.GroupClosed: calls.closed,
    commands.GroupEmpty: calls.emptied,
    commands.GroupSurvived: calls.survived,
    commands.GroupLost: calls.lost,
    commands.Recover: recovery.recover,
    commands.Reconcile: recovery.reconcile,
    commands.Drain: recovery.drain,
    commands.StopSupervisor: recovery.stop_supervisor,
    commands.Tick: _tick,
}
