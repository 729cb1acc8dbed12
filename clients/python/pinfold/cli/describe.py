"""Events in a few words, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pinfold.cli import show
from pinfold.cli.plain import enum_name
from pinfold.v1 import agent_pb2, call_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.v1.watch_service_pb2 import Event

_LONGEST = 100


def is_hidden(event: Event) -> bool:
    """About a prompt that is for the model only, by its type."""
    return event.HasField("prompt_queued") and event.prompt_queued.prompt.internal


def describe(event: Event) -> str:
    """What the event says beyond its name."""
    body = event.WhichOneof("body")
    if body is None or body not in _WORDS:
        return ""
    text = _WORDS[body](getattr(event, body))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _call_ended(body: Any) -> str:
    result = body.result
    words = [enum_name(call_pb2.CallState.DESCRIPTOR, result.state)]
    if result.process.HasField("exit_code"):
        words.append(f"exit code {result.process.exit_code}")
    elif result.process.HasField("signal"):
        words.append(show.signal_name(result.process.signal))
    if result.HasField("receipt"):
        receipt = result.receipt
        words.append(f"{show.plural(receipt.ended, 'process')} ended")
        if receipt.escaped:
            words.append(f"{receipt.escaped} of them escaped")
        if receipt.survivors:
            words.append(f"{len(receipt.survivors)} alive")
    if result.leftover_processes:
        words.append(f"{result.leftover_processes} left")
    return ", ".join(words)


def _process_end(process: Any) -> str:
    if process.HasField("exit_code"):
        return f"exit code {process.exit_code}"
    if process.HasField("signal"):
        return show.signal_name(process.signal)
    return "exit status not known"


def _wait_settled(body: Any) -> str:
    taken = ", ".join(body.consumed_call_ids)
    return f"{body.wait_id} {body.outcome}" + (f": {taken}" if taken else "")


def _status(body: Any) -> str:
    state = enum_name(agent_pb2.ReportedState.DESCRIPTOR, body.status.state)
    return f"{state}: {body.status.title}"


_WORDS: dict[str, Callable[[Any], str]] = {
    "agent_opened": lambda body: body.label or body.role,
    "agent_stopped": lambda body: body.reason,
    "turn_started": lambda body: body.turn_id,
    "turn_ended": lambda body: "cancelled" if body.cancelled else body.answer,
    "call_queued": lambda body: body.label,
    "call_started": lambda body: f"pid {body.pid}" if body.pid else "",
    "call_ended": _call_ended,
    "call_paused": lambda body: "stopped" if body.paused else "goes on",
    "output_grew": lambda body: show.size(body.extent.size),
    "group_emptied": lambda body: f"{show.plural(body.receipt.ended, 'process')} ended",
    "cancel_requested": lambda body: f"by {body.by}" + (f": {body.reason}" if body.reason else ""),
    "wait_installed": lambda body: f"{body.wait_id} {body.mode} {', '.join(body.call_ids)}",
    "wait_settled": _wait_settled,
    "prompt_queued": lambda body: body.prompt.text or body.prompt.prompt_id,
    "prompt_suppressed": lambda body: body.prompt_id,
    "prompt_created": lambda body: ", ".join(body.prompt_ids),
    "message_sent": lambda body: f"to {body.recipient_id}: {body.body}",
    "watch_changed": lambda body: f"{'on' if body.enabled else 'off'} for {body.watched_agent_id}",
    "status_reported": _status,
    "notice": lambda body: body.text,
    "worker_started": lambda body: f"pid {body.pid}",
    "worker_exited": lambda body: _process_end(body.process),
    "supervisor_started": lambda body: body.version,
    "supervisor_stopping": lambda body: body.reason,
    "task_read": lambda body: f"{body.task_id} up to {body.cursor}",
    "delivery_acknowledged": lambda body: body.delivery_id,
}
