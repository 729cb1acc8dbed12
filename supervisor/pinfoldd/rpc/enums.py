"""The core's enumerations on the wire, and back."""

from __future__ import annotations

from pinfold.v1 import agent_pb2, call_pb2, call_service_pb2, task_service_pb2
from pinfoldd.core.values import (
    CallState,
    Cause,
    PromptKind,
    ReportedState,
    Surface,
    TaskStatus,
    WaitOutcome,
)

CALL_STATES: dict[CallState, call_pb2.CallState.ValueType] = {
    CallState.QUEUED: call_pb2.CALL_STATE_QUEUED,
    CallState.RUNNING: call_pb2.CALL_STATE_RUNNING,
    CallState.STOPPING: call_pb2.CALL_STATE_STOPPING,
    CallState.SUCCEEDED: call_pb2.CALL_STATE_SUCCEEDED,
    CallState.FAILED: call_pb2.CALL_STATE_FAILED,
    CallState.CANCELLED: call_pb2.CALL_STATE_CANCELLED,
    CallState.TIMED_OUT: call_pb2.CALL_STATE_TIMED_OUT,
    CallState.LOST: call_pb2.CALL_STATE_LOST,
}

CAUSES: dict[Cause, call_pb2.EndCause.ValueType] = {
    Cause.EXIT: call_pb2.END_CAUSE_EXIT,
    Cause.SIGNAL: call_pb2.END_CAUSE_SIGNAL,
    Cause.TIMEOUT: call_pb2.END_CAUSE_TIMEOUT,
    Cause.CANCELLED: call_pb2.END_CAUSE_CANCELLED,
    Cause.UNKNOWN: call_pb2.END_CAUSE_UNKNOWN,
    Cause.START_ERROR: call_pb2.END_CAUSE_START_ERROR,
}

SURFACES: dict[Surface, agent_pb2.Surface.ValueType] = {
    Surface.TAU: agent_pb2.SURFACE_TAU,
    Surface.TASKS: agent_pb2.SURFACE_TASKS,
    Surface.NONE: agent_pb2.SURFACE_NONE,
}

PROMPT_KINDS: dict[PromptKind, agent_pb2.PromptKind.ValueType] = {
    PromptKind.USER: agent_pb2.PROMPT_KIND_USER,
    PromptKind.MESSAGE: agent_pb2.PROMPT_KIND_MESSAGE,
    PromptKind.NOTICE: agent_pb2.PROMPT_KIND_NOTICE,
    PromptKind.WATCH_ANSWER: agent_pb2.PROMPT_KIND_WATCH_ANSWER,
    PromptKind.WATCH_PROMPT: agent_pb2.PROMPT_KIND_WATCH_PROMPT,
    PromptKind.WATCH_STATE: agent_pb2.PROMPT_KIND_WATCH_STATE,
    PromptKind.START: agent_pb2.PROMPT_KIND_START,
}

INTERNAL_PROMPTS = frozenset(PromptKind) - {PromptKind.USER, PromptKind.START}
"""What the supervisor puts to an agent by itself. People see them only if they ask."""

REPORTED_STATES: dict[ReportedState, agent_pb2.ReportedState.ValueType] = {
    ReportedState.WORKING: agent_pb2.REPORTED_STATE_WORKING,
    ReportedState.WAITING: agent_pb2.REPORTED_STATE_WAITING,
    ReportedState.BLOCKED: agent_pb2.REPORTED_STATE_BLOCKED,
    ReportedState.DONE: agent_pb2.REPORTED_STATE_DONE,
}

TASK_STATUSES: dict[TaskStatus, task_service_pb2.TaskStatus.ValueType] = {
    TaskStatus.RUNNING: task_service_pb2.TASK_STATUS_RUNNING,
    TaskStatus.STOPPING: task_service_pb2.TASK_STATUS_STOPPING,
    TaskStatus.COMPLETED: task_service_pb2.TASK_STATUS_COMPLETED,
    TaskStatus.KILLED: task_service_pb2.TASK_STATUS_KILLED,
    TaskStatus.FAILED: task_service_pb2.TASK_STATUS_FAILED,
}

WAIT_OUTCOMES: dict[WaitOutcome, call_service_pb2.WaitOutcome.ValueType] = {
    WaitOutcome.RESULT: call_service_pb2.WAIT_OUTCOME_RESULT,
    WaitOutcome.INTERRUPTED: call_service_pb2.WAIT_OUTCOME_INTERRUPTED,
    WaitOutcome.TIMED_OUT: call_service_pb2.WAIT_OUTCOME_TIMED_OUT,
    WaitOutcome.INPUT_AVAILABLE: call_service_pb2.WAIT_OUTCOME_INPUT_AVAILABLE,
}
"""An outcome that is not here (cancelled, error) is a status of the RPC, not an answer."""

SURFACES_BACK = {wire: core for core, wire in SURFACES.items()}
"""Without the unspecified value: what that stands for is the caller's to say."""

REPORTED_STATES_BACK = {wire: core for core, wire in REPORTED_STATES.items()}
