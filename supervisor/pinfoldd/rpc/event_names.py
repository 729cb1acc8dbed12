"""The public names of events: one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pinfoldd.core import events as e
from pinfoldd.core.values import CallState

_ERRORS = frozenset({CallState.FAILED, CallState.LOST})


def _end_name(event: e.CallEnded) -> str:
    state = event.result.state
    if event.background:
        failed = state in _ERRORS or state is CallState.CANCELLED
        return "tool.background_error" if failed else "tool.background_result"
    if state is CallState.CANCELLED:
        return "tool.cancelled"
    return "tool.error" if state in _ERRORS else "tool.result"


def _opened_name(event: e.AgentOpened) -> str:
    return "agent.started" if event.parent else "agent.opened"


def _stopped_name(event: e.AgentStopped) -> str:
    return "agent.failed" if event.failed else "agent.stopped"


def _paused_name(event: e.CallPaused) -> str:
    return "call.paused" if event.paused else "call.resumed"


NAMES: Final[dict[type[e.Event], str | Callable[[Any], str]]] = {
    e.SupervisorStarted: "supervisor.started",
    e.SupervisorDraining: "supervisor.draining",
    e.SupervisorStopping: "supervisor.stopping",
    e.AgentOpened: _opened_name,
    e.AgentStopping: "agent.stopping",
    e.AgentStopped: _stopped_name,
    e.AgentForgotten: "agent.forgotten",
    e.TurnStarted: "agent.turn_started",
    e.TurnEnded: "agent.turn_ended",
    e.PromptQueued: "prompt.queued",
    e.PromptSuppressed: "prompt.suppressed",
    e.PromptCreated: "agent.prompt_created",
    e.DeliveryAcknowledged: "prompt.acknowledged",
    e.PromptsReturned: "prompt.returned",
    e.MessageSent: "agent.message_sent",
    e.WatchChanged: "agent.watch_changed",
    e.StatusReported: "agent.status_reported",
    e.ToolRecorded: "tool.recorded",
    e.WorkerStarting: "worker.starting",
    e.WorkerStarted: "worker.started",
    e.WorkerExited: "worker.exited",
    e.CallQueued: "call.queued",
    e.CallStarting: "call.starting",
    e.CallStarted: "call.started",
    e.CallBackgrounded: "call.backgrounded",
    e.CallPaused: _paused_name,
    e.OutputGrew: "call.output",
    e.CancelRequested: "call.cancel_requested",
    e.Notice: "harness.notice",
    e.CallStopping: "call.stopping",
    e.LeaderExited: "call.exited",
    e.CallEnded: _end_name,
    e.LeftoversStopping: "call.leftovers_stopping",
    e.GroupEmptied: "call.empty",
    e.CallsForgotten: "call.forgotten",
    e.TaskReported: "task.reported",
    e.TaskRead: "task.read",
    e.WaitInstalled: "wait.installed",
    e.WaitSettled: "wait.settled",
}
"""The public name of each event, or what it depends on. Names are interface: clients filter
by them, so they are added to and never changed."""


def event_name(event: e.Event) -> str:
    name = NAMES[type(event)]
    return name if isinstance(name, str) else name(event)
