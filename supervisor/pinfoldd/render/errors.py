"""What a model reads when a command is refused: one text for each reason, which says what is
wrong and, where that is not plain, what to do.

Texts that docs/contract.md fixes are there to the byte. Values are escaped and bounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from pinfoldd.core.reasons import Reason
from pinfoldd.render.headers import error, one_line

_TEXTS: dict[Reason, str] = {
    # agents
    Reason.AGENT_UNKNOWN: "unknown agent: `{agent_id}`",
    Reason.AGENT_STOPPED: "agent is not live: `{agent_id}`",
    Reason.AGENT_ID_REUSED: (
        "agent `{agent_id}` is already open with other settings; use another id"
    ),
    Reason.AGENT_LIMIT: "agent limit reached: {limit} agents are live; stop one first",
    Reason.AGENT_DEPTH_LIMIT: (
        "agent depth limit reached: agents may be nested {limit} deep; do this work yourself"
    ),
    Reason.ROLE_UNKNOWN: "unknown role: `{role}`; leave `role` out for the default",
    Reason.TURN_UNKNOWN: "this turn is not the current turn; get the current one with NextTurn",
    Reason.PROMPT_LIMIT: (
        "prompt limit reached: {limit} prompts are pending for the agent; "
        "try again when it has taken some"
    ),
    # calls
    Reason.CALL_UNKNOWN: "unknown tool call: `{tool_call_id}`",
    Reason.CALL_ID_REUSED: (
        "tool call id `{tool_call_id}` was already used with other arguments; use a new id"
    ),
    Reason.CALL_LIMIT: (
        "call limit reached: {limit} calls are live or have results that nobody collected; "
        "collect results or cancel calls first"
    ),
    Reason.GROUP_LIMIT: (
        "process group limit reached: {limit} groups are live in the supervisor; "
        "cancel calls or try again later"
    ),
    Reason.TASK_LIMIT: (
        "background task limit reached: {limit} tasks are active; wait for one with "
        "task_output or end one with task_kill first"
    ),
    Reason.NO_CONTROL_SURFACE: "background tasks unavailable: no control surface is attached",
    Reason.CALL_ALREADY_CANCELED: "Tool call already canceled",
    Reason.CALL_ALREADY_DONE: "Tool call is already done",
    Reason.CALL_NOT_CANCELLABLE: "Tool call is not a running cancellable tool call",
    Reason.CANCEL_TARGET_UNKNOWN: "Unknown tool call id",
    Reason.CALL_HAS_NO_INPUT: (
        "tool call `{tool_call_id}` takes no input; start it with a standard input or a terminal"
    ),
    # waits
    Reason.RESULT_CONSUMED: "result for tool call `{tool_call_id}` already consumed",
    Reason.CALL_RETURNED_NORMALLY: ("Tool call {tool_call_id} returned normally, not backgrounded"),
    Reason.WAIT_IN_PROGRESS: "existing wait for this tool already in progress",
    Reason.BARE_WAIT_IN_PROGRESS: (
        "existing wait for a background tool call in this conversation already in progress"
    ),
    Reason.INPUT_WAIT_IN_PROGRESS: "existing input wait for this agent already in progress",
    Reason.NOTHING_TO_WAIT_FOR: (
        "no background tool calls are running or completed in this conversation; "
        'use `wait({{"timeout_minutes": N}})` with a positive integer N '
        "to wait for new activating input"
    ),
    Reason.WAIT_ID_REUSED: (
        "wait id `{wait_id}` was already used with other arguments; use a new id"
    ),
    Reason.WAIT_CANCELLED: "the wait was cancelled; nothing was consumed",
    Reason.WAIT_LIMIT: "wait limit reached: {limit} waits are parked; try again later",
    # messages and watches
    Reason.RECIPIENT_UNKNOWN: "unknown message recipient: `{recipient_id}`",
    Reason.RECIPIENT_STOPPED: "stopped message recipient: `{recipient_id}`",
    Reason.WATCH_SELF: "`agent_id` must identify another agent",
    Reason.WATCH_TARGET_UNKNOWN: "unknown agent: `{agent_id}`",
    Reason.WATCH_TARGET_STOPPED: "agent is not live: `{agent_id}`",
    Reason.WATCH_CYCLE: "agent watch would create a cycle: `{watcher}` -> `{watched}`",
    Reason.REQUEST_ID_REUSED: (
        "request id `{request_id}` was already used with other arguments; use a new id"
    ),
    # tasks
    Reason.TASK_UNKNOWN: "unknown task {task_id}",
    Reason.TASK_EXPIRED: ("task {task_id} has expired: it ended, and its output is no longer kept"),
    # the supervisor
    Reason.DRAINING: "the supervisor is draining and takes no new calls; try again later",
    # at the door
    Reason.INVALID_ARGUMENT: "{reason}",
    Reason.UNAUTHENTICATED: "no valid token; send an operator's or this agent's token",
    Reason.PERMISSION_DENIED: "this token does not allow that; an operator's token does",
    Reason.REVISION_COMPACTED: (
        "that revision is no longer kept; start from revision {oldest_revision} or from 0"
    ),
    Reason.REVISION_IN_FUTURE: (
        "that revision does not exist yet; start from at most one after the latest"
    ),
    Reason.STORE_FAILING: (
        "the supervisor can't write its log, so that nothing new is accepted; "
        "check its disk and try again"
    ),
    Reason.KEEPER_UNAVAILABLE: "the keeper of processes is not available; try again",
    Reason.TOOL_UNKNOWN: "unknown tool: `{name}`; use one of the listed tools",
    Reason.TOKEN_UNKNOWN: "unknown token id; the list of tokens has the valid ones",
}

# Details that a model should see as headers too; the others are in the message already.
_ECHOED: dict[Reason, tuple[str, ...]] = {
    Reason.CANCEL_TARGET_UNKNOWN: ("tool_call_id",),
    Reason.RECIPIENT_UNKNOWN: ("recipient_id", "message"),
    Reason.RECIPIENT_STOPPED: ("recipient_id", "message"),
}


class _Values(dict[str, str]):
    """A detail that was left out is a `?`: a wrong text is better than no answer."""

    def __missing__(self, key: str) -> str:
        return "?"


def text(reason: Reason, details: Mapping[str, str]) -> str:
    """The message alone: one line, without `error: `."""
    values = _Values((key, one_line(value)) for key, value in details.items())
    return _TEXTS[reason].format_map(values)


def error_text(reason: Reason, details: Mapping[str, str]) -> str:
    """All of what a model reads: `error: <message>` and the details that are echoed."""
    headers = {key: details[key] for key in _ECHOED.get(reason, ()) if key in details}
    return error(text(reason, details), headers)
