"""Why a command was refused: one name for each reason, used unchanged by the wire, logs and docs.

The core never writes prose. `render.errors` has the text that goes with a reason, and
`rpc.errors` its gRPC code.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    # agents
    AGENT_UNKNOWN = "AGENT_UNKNOWN"
    AGENT_STOPPED = "AGENT_STOPPED"
    AGENT_ID_REUSED = "AGENT_ID_REUSED"
    AGENT_LIMIT = "AGENT_LIMIT"
    AGENT_DEPTH_LIMIT = "AGENT_DEPTH_LIMIT"
    ROLE_UNKNOWN = "ROLE_UNKNOWN"
    TURN_UNKNOWN = "TURN_UNKNOWN"
    PROMPT_LIMIT = "PROMPT_LIMIT"
    # calls
    CALL_UNKNOWN = "CALL_UNKNOWN"
    CALL_ID_REUSED = "CALL_ID_REUSED"
    CALL_LIMIT = "CALL_LIMIT"
    GROUP_LIMIT = "GROUP_LIMIT"
    TASK_LIMIT = "TASK_LIMIT"
    NO_CONTROL_SURFACE = "NO_CONTROL_SURFACE"
    CALL_ALREADY_CANCELED = "CALL_ALREADY_CANCELED"
    CALL_ALREADY_DONE = "CALL_ALREADY_DONE"
    CALL_NOT_CANCELLABLE = "CALL_NOT_CANCELLABLE"
    CANCEL_TARGET_UNKNOWN = "CANCEL_TARGET_UNKNOWN"
    CALL_HAS_NO_INPUT = "CALL_HAS_NO_INPUT"
    # waits
    RESULT_CONSUMED = "RESULT_CONSUMED"
    CALL_RETURNED_NORMALLY = "CALL_RETURNED_NORMALLY"
    WAIT_IN_PROGRESS = "WAIT_IN_PROGRESS"
    BARE_WAIT_IN_PROGRESS = "BARE_WAIT_IN_PROGRESS"
    INPUT_WAIT_IN_PROGRESS = "INPUT_WAIT_IN_PROGRESS"
    NOTHING_TO_WAIT_FOR = "NOTHING_TO_WAIT_FOR"
    WAIT_ID_REUSED = "WAIT_ID_REUSED"
    WAIT_LIMIT = "WAIT_LIMIT"
    WAIT_CANCELLED = "WAIT_CANCELLED"
    # messages and watches
    RECIPIENT_UNKNOWN = "RECIPIENT_UNKNOWN"
    RECIPIENT_STOPPED = "RECIPIENT_STOPPED"
    WATCH_SELF = "WATCH_SELF"
    WATCH_TARGET_UNKNOWN = "WATCH_TARGET_UNKNOWN"
    WATCH_TARGET_STOPPED = "WATCH_TARGET_STOPPED"
    WATCH_CYCLE = "WATCH_CYCLE"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    # tasks
    TASK_UNKNOWN = "TASK_UNKNOWN"
    TASK_EXPIRED = "TASK_EXPIRED"
    # the supervisor
    DRAINING = "DRAINING"
    # at the door (raised by rpc, never by the core)
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    REVISION_COMPACTED = "REVISION_COMPACTED"
    REVISION_IN_FUTURE = "REVISION_IN_FUTURE"
    STORE_FAILING = "STORE_FAILING"
    KEEPER_UNAVAILABLE = "KEEPER_UNAVAILABLE"
    TOOL_UNKNOWN = "TOOL_UNKNOWN"
    TOKEN_UNKNOWN = "TOKEN_UNKNOWN"


class Rejected(Exception):
    """A command that cannot be carried out. Nothing has changed."""

    def __init__(self, reason: Reason, **details: str) -> None:
        super().__init__(reason, details)
        self.reason = reason
        self.details = details


class IllegalTransition(AssertionError):
    """An event that does not fit the state: a fault of ours, never of a client."""
