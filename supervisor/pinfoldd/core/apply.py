"""What each event does to the state. Total, deterministic, and free of decisions.

An event that does not fit the state raises `IllegalTransition`: replaying a log can then
never end in a state that no supervisor was ever in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinfoldd.core import apply_agents as agents
from pinfoldd.core import apply_calls as calls
from pinfoldd.core import apply_waits as waits
from pinfoldd.core import events as e
from pinfoldd.core.model import State
from pinfoldd.core.reasons import IllegalTransition
from pinfoldd.core.values import Stamp


def apply(state: State, event: e.Event, stamp: Stamp) -> None:
    """Bring the state past the event."""
    if stamp.revision != state.revision + 1:
        raise IllegalTransition(f"revision {stamp.revision} after {state.revision}")
    state.revision = stamp.revision
    _APPLY[type(event)](state, event, stamp)


def _supervisor_started(state: State, event: e.SupervisorStarted, stamp: Stamp) -> None:
    state.draining = False
    state.stopping = False


def _supervisor_draining(state: State, event: e.SupervisorDraining, stamp: Stamp) -> None:
    state.draining = True


def _supervisor_stopping(state: State, event: e.SupervisorStopping, stamp: Stamp) -> None:
    state.draining = True
    state.stopping = True


def _nothing(state: State, event: e.Event, stamp: Stamp) -> None:
    """Facts for the log alone."""


_APPLY: dict[type[e.Event], Callable[[State, Any, Stamp], None]] = {
    e.SupervisorStarted: _supervisor_started,
    e.SupervisorDraining: _supervisor_draining,
    e.SupervisorStopping: _supervisor_stopping,
    e.AgentOpened: agents.agent_opened,
    e.AgentStopping: agents.agent_stopping,
    e.AgentStopped: agents.agent_stopped,
    e.AgentForgotten: agents.agent_forgotten,
    e.TurnStarted: agents.turn_started,
    e.TurnEnded: agents.turn_ended,
    e.PromptQueued: agents.prompt_queued,
    e.PromptSuppressed: agents.prompt_suppressed,
    e.PromptCreated: agents.prompt_created,
    e.DeliveryAcknowledged: agents.delivery_acknowledged,
    e.PromptsReturned: agents.prompts_returned,
    e.MessageSent: agents.message_sent,
    e.WatchChanged: agents.watch_changed,
    e.StatusReported: agents.status_reported,
    e.ToolRecorded: agents.tool_recorded,
    e.WorkerStarting: agents.worker_starting,
    e.WorkerStarted: agents.worker_started,
    e.WorkerExited: agents.worker_exited,
    e.CallQueued: calls.call_queued,
    e.CallStarting: calls.call_starting,
    e.CallStarted: calls.call_started,
    e.CallBackgrounded: calls.call_backgrounded,
    e.CallPaused: calls.call_paused,
    e.OutputGrew: calls.output_grew,
    e.CancelRequested: calls.cancel_requested,
    e.Notice: _nothing,
    e.CallStopping: calls.call_stopping,
    e.LeaderExited: calls.leader_exited,
    e.CallEnded: calls.call_ended,
    e.LeftoversStopping: calls.leftovers_stopping,
    e.GroupEmptied: calls.group_emptied,
    e.CallsForgotten: calls.calls_forgotten,
    e.TaskReported: calls.task_reported,
    e.TaskRead: calls.task_read,
    e.WaitInstalled: waits.wait_installed,
    e.WaitSettled: waits.wait_settled,
}
