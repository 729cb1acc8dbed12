"""Calls as tasks: statuses, status lines, lists, notices (docs/contract.md, Task tools)."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from pinfoldd.core.model import Call
from pinfoldd.core.values import CallState, Cause, Exit, Result, TaskStatus
from pinfoldd.render.headers import one_line
from pinfoldd.render.labels import MAX_LABEL
from pinfoldd.render.receipts import pids, signal_name
from pinfoldd.render.results import AGENT_TOOL, RESTARTED, cancel_reason

NO_TASKS = "(no background tasks)"

_MAX_DETAIL = 400


def task_status(call: Call) -> TaskStatus:
    """A non-zero exit is completed. A signal is killed, whoever sent it."""
    result = call.result
    if result is None:
        return TaskStatus.STOPPING if call.state is CallState.STOPPING else TaskStatus.RUNNING
    match result.state:
        case CallState.CANCELLED | CallState.TIMED_OUT:
            return TaskStatus.KILLED
        case CallState.SUCCEEDED if result.cause is Cause.SIGNAL:
            return TaskStatus.KILLED
        case CallState.SUCCEEDED if call.tool == AGENT_TOOL or result.cause is not Cause.UNKNOWN:
            return TaskStatus.COMPLETED
        case _:
            return TaskStatus.FAILED


def task_detail(call: Call) -> str:
    """What the status does not say, as it was; empty while live and for an ordinary end."""
    result = call.result
    return "" if result is None else one_line(_detail(call, result), _MAX_DETAIL)


def _detail(call: Call, result: Result) -> str:
    why = one_line(result.error, _MAX_DETAIL)
    match result.state:
        case CallState.LOST:
            return f"lost: {why or RESTARTED}"
        case CallState.FAILED:
            return _failure(result, why)
        case CallState.TIMED_OUT:
            return f"timed out after {_limit(call, result)} s"
        case CallState.CANCELLED:
            reason = cancel_reason(call)
            parts = [_end(result, with_zero=True), f"reason: {reason}" if reason else ""]
            return ", ".join(filter(None, parts))
        case _:
            if task_status(call) is TaskStatus.FAILED:
                return "exit status unknown"
            return _end(result, with_zero=False)


def _failure(result: Result, why: str) -> str:
    if result.receipt is not None and result.receipt.survivors:
        return f"could not be stopped: surviving pids {pids(result.receipt.survivors)}"
    if result.cause is Cause.START_ERROR:
        return f"failed to start: {why or 'unknown reason'}"
    return why


def _end(result: Result, *, with_zero: bool) -> str:
    """How the leader ended. After a kill also a 0: a program may handle TERM and exit so."""
    exit_ = result.exit or Exit()
    if exit_.signal is not None:
        return f"signal: {signal_name(exit_.signal).removeprefix('signal ')}"
    if exit_.code is None or (exit_.code == 0 and not with_zero):
        return ""
    return f"exit code: {exit_.code}"


def _limit(call: Call, result: Result) -> str:
    seconds = call.timeout if call.timeout is not None else ceil(result.seconds or 0)
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def status_line(call: Call) -> str:
    """`[status: S]` or `[status: S, detail]`."""
    detail = task_detail(call)
    status = task_status(call).value
    return f"[status: {status}, {detail}]" if detail else f"[status: {status}]"


def start_acknowledgement(call: Call) -> str:
    what = "background subagent task" if call.kind == "agent" else "background task"
    return f"started {what} {call.task_id}"


def task_line(call: Call) -> str:
    label = one_line(call.label, MAX_LABEL)
    return f"{call.task_id} [{call.kind}] {task_status(call).value} — {label}"


def task_list(calls: Iterable[Call]) -> str:
    """A line for each, in the order given (start order)."""
    return "\n".join(task_line(call) for call in calls) or NO_TASKS


def kill_requested(task_id: str) -> str:
    return f"requested cancellation of task {task_id}"


def kill_too_late(call: Call) -> str:
    """From a snapshot: nothing of its output is consumed."""
    return f"task {call.task_id} had already finished {status_line(call)}"


def task_notice(call: Call) -> str:
    """The completion notice on the task tools' surface."""
    return (
        f"background task {call.task_id} ({call.kind}: {one_line(call.label, MAX_LABEL)}) "
        f"finished {status_line(call)}. Read its output with task_output."
    )
