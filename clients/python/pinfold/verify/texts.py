"""The texts of the contract, to the byte. Written down here a second time, on purpose: the
supervisor's own must agree with them."""

from __future__ import annotations

import re

from pinfold.verify.expect import like

CANCEL_REQUESTED = "Tool cancellation requested"
INPUT_AVAILABLE = "input_available: true"
TIMED_OUT = "timed_out: true"
CANCEL_NOTICE = "tool call cancellation request"

ALREADY_CANCELED = "error: Tool call already canceled"
ALREADY_DONE = "error: Tool call is already done"
NOT_CANCELLABLE = "error: Tool call is not a running cancellable tool call"
CANCELED = "error: Tool call canceled"

WAIT_IN_PROGRESS = "error: existing wait for this tool already in progress"
BARE_WAIT_IN_PROGRESS = (
    "error: existing wait for a background tool call in this conversation already in progress"
)
INPUT_WAIT_IN_PROGRESS = "error: existing input wait for this agent already in progress"
NOTHING_TO_WAIT_FOR = (
    "error: no background tool calls are running or completed in this conversation; "
    'use `wait({"timeout_minutes": N})` with a positive integer N to wait for new activating input'
)

NO_CONTROL_SURFACE = "error: background tasks unavailable: no control surface is attached"
NO_TASKS = "(no background tasks)"
NO_NEW_OUTPUT = "(no new output)"

TASK_GUIDANCE = (
    "Track every background task id you start. You are notified in-session when a task finishes "
    "— do not busy-poll or sleep on one; keep working on independent steps and do not duplicate "
    "a running task's work. Before giving a final answer, collect every still-relevant task with "
    "task_output (set wait: true only when you are genuinely blocked on it), and task_kill tasks "
    "that stopped mattering."
)


def placeholder(call_id: str) -> str:
    return f"tau_internal: true\n\nTool call `{call_id}` is running in the background."


def agent_placeholder(call_id: str, self_id: str, sub_id: str) -> str:
    return (
        f"tau_internal: true\nself_agent_id: {self_id}\nsub_agent_id: {sub_id}\n\n"
        f"Tool call `{call_id}` is running in the background."
    )


def notice(call_id: str) -> str:
    return (
        f"[tau-internal] Tool call `{call_id}` completed. "
        "Its result is queued; use `wait` to consume it."
    )


def consumed(call_id: str) -> str:
    return f"error: result for tool call `{call_id}` already consumed"


def unknown(call_id: str) -> str:
    return f"error: unknown tool call: `{call_id}`"


def unknown_target(call_id: str) -> str:
    return f"error: Unknown tool call id\ntool_call_id: {call_id}"


def returned_normally(call_id: str) -> str:
    return f"error: Tool call {call_id} returned normally, not backgrounded"


def interrupted(mode: str) -> str:
    """The headers; prose may follow after one empty line."""
    return (
        "tau_internal: true\nwait_outcome: interrupted\n"
        f"wait_reason: activating_input\nwait_mode: {mode}"
    )


def started(self_id: str, sub_id: str) -> str:
    return f"self_agent_id: {self_id}\nsub_agent_id: {sub_id}"


def message_prompt(sender: str, body: str) -> str:
    return (
        f"[tau-internal]: You have received a message from {sender}\n\n"
        f"<message>\n{body}\n</message>"
    )


def task_notice(task_id: str, kind: str, label: str, status: str) -> str:
    return (
        f"background task {task_id} ({kind}: {label}) finished [status: {status}]. "
        "Read its output with task_output."
    )


def out(line: str, headers: str = "status: 0") -> like:
    """The result of a command that printed one line; on a slow machine it took over 5 s."""
    return like(rf"{re.escape(headers)}(\nduration_seconds: \d+)?\n\nout {re.escape(line)}")
