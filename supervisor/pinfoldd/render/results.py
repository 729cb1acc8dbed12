"""The text of what a call ended with (docs/contract.md, How a result reads, shell, Agents).

A shell that exits non-zero, ends by a signal or runs out of time is a result. What is an
error: it was cancelled, could not be started, could not be stopped, or was lost. The output
so far is part of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pinfoldd.core.model import Call
from pinfoldd.core.values import CallState, Cause, Exit, Result
from pinfoldd.render.headers import ERROR, Header, document, duration, one_line
from pinfoldd.render.receipts import pids, receipt_headers, survivor_headers
from pinfoldd.render.shell_output import Body, Chunk, render_output

CANCELED = "Tool call canceled"
RESTARTED = "supervisor restarted"

AGENT_TOOL = "agent_start"


def error_message(tool: str, result: Result) -> str:
    """What stands after `error: `; empty for a result that is no error."""
    match result.state:
        case CallState.CANCELLED:
            return CANCELED
        case CallState.LOST:
            return f"Tool call lost: {one_line(result.error) or RESTARTED}"
        case CallState.FAILED:
            return _failure(tool, result)
        case CallState.TIMED_OUT if tool == AGENT_TOOL:
            return "Tool call timed out"
        case _:
            return ""


def _failure(tool: str, result: Result) -> str:
    why = one_line(result.error)
    if result.receipt is not None and result.receipt.survivors:
        return f"Tool call could not be stopped: surviving pids {pids(result.receipt.survivors)}"
    if result.cause is Cause.START_ERROR:
        what = "agent" if tool == AGENT_TOOL else "shell command"
        return f"failed to start {what}: {why or 'unknown reason'}"
    return f"Tool call failed: {why}" if why else "Tool call failed"


def result_text(call: Call, chunks: Iterable[Chunk] = (), *, collected: bool = False) -> str:
    """The text of an ended call.

    `chunks`: for a shell, what `shell_output.ranges` asks for, in the order of offsets.
    `collected`: by a wait that did not name it, so that `original_tool_call_id` says which
    call this is: the first header, or the first detail of an error.
    """
    result = call.result
    if result is None:
        raise ValueError(f"call {call.id} has not ended")
    origin = [("original_tool_call_id", call.id)] if collected else []
    message = error_message(call.tool, result)
    headers: list[Header] = [(ERROR, message), *origin] if message else origin
    if call.tool == AGENT_TOOL:
        return document([*headers, *_agent_headers(call, result, message)], result.answer)
    body = render_output(chunks, result.output.size)
    return document([*headers, *_shell_headers(call, result, body)], body.text)


def _agent_headers(call: Call, result: Result, message: str) -> list[Header]:
    """An answer stands alone; an error says whose it is, and how long it took."""
    if not message:
        return []
    headers = [("self_agent_id", call.agent), ("sub_agent_id", call.sub_agent)]
    return headers + duration(result.seconds) + _cancellation(call, result)


def _shell_headers(call: Call, result: Result, body: Body) -> list[Header]:
    headers: list[Header] = []
    if not body.valid_utf8:
        headers.append(("valid_utf8", "false"))
    if result.cause is Cause.TIMEOUT:
        headers.append(("timed_out", "true"))
    exit_ = result.exit or Exit()
    if not (result.cause is Cause.EXIT and exit_.code == 0):
        headers.append(("termination_reason", result.cause.value))
    if body.truncated:
        headers += _truncation(result, body)
    headers += _status(result, exit_)
    headers += duration(result.seconds)
    if exit_.leftover:
        headers.append(("leftover_processes", str(exit_.leftover)))
    return headers + _cancellation(call, result)


def _truncation(result: Result, body: Body) -> list[Header]:
    """The lines as the text counts them. What was not read has been counted by its newlines."""
    output = result.output
    lines = body.lines if body.lines is not None else output.lines + body.unended
    headers = [
        ("truncated", "true"),
        ("total_lines", str(lines)),
        ("total_bytes", str(output.size)),
    ]
    if output.dropped:
        headers.append(("dropped_bytes", str(output.dropped)))
    # An RPC and not a path: models don't learn where the supervisor keeps its files.
    headers.append(("full_output", "ReadOutput offset 0"))
    return headers


def _status(result: Result, exit_: Exit) -> list[Header]:
    """How the leader ended, as the kernel said it; nothing where that is not known.

    A cancelled program that handles TERM and exits with 0 shows no `status: 0`: nobody
    should take it for a normal end. The typed result has its exit code.
    """
    if exit_.signal is not None:
        return [("signal", str(exit_.signal))]
    if exit_.code is None or (exit_.code == 0 and result.state is CallState.CANCELLED):
        return []
    return [("status", str(exit_.code))]


def cancel_reason(call: Call) -> str:
    """As it was given with the cancel, on one line; empty if none was."""
    given = call.result.cancel_reason if call.result is not None else ""
    return one_line(given or call.stop_reason)


def _cancellation(call: Call, result: Result) -> list[Header]:
    if result.state is not CallState.CANCELLED:
        return survivor_headers(result.receipt)
    headers: list[Header] = []
    if reason := cancel_reason(call):
        headers.append(("cancel_reason", reason))
    return headers + receipt_headers(result.receipt)
