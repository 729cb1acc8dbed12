"""Sections for a system prompt, Markdown: how to live with background work on a surface."""

from __future__ import annotations

from pinfoldd.core.values import Surface

TAU = (
    "A tool call that takes longer than about two seconds goes on in the background: you get a "
    "placeholder that names it. You are told when it has completed, so keep working on "
    "independent steps, and do not poll, sleep, or repeat its work meanwhile. Collect its "
    "result once, with wait and its tool_call_id; wait without arguments takes the oldest "
    "completed result. If new input interrupts a wait, nothing is lost: read the input, then "
    "wait again. End what stopped mattering with cancel, and collect every result that still "
    "matters before you give a final answer."
)

TASKS = (
    "Track every background task id you start. You are notified in-session when a task "
    "finishes — do not busy-poll or sleep on one; keep working on independent steps and do not "
    "duplicate a running task's work. Before giving a final answer, collect every "
    "still-relevant task with task_output (set wait: true only when you are genuinely blocked "
    "on it), and task_kill tasks that stopped mattering."
)


def guidance(surface: Surface | None) -> str:
    """The section of one surface; of both for None; empty where nothing goes to the
    background. It stays the same when a filter hides tools from an agent."""
    match surface:
        case Surface.TAU:
            return TAU
        case Surface.TASKS:
            return TASKS
        case Surface.NONE:
            return ""
        case None:
            return f"{TAU}\n\n{TASKS}"
