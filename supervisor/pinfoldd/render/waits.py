"""What a model reads of backgrounding and of `wait` (docs/contract.md, shell and wait)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinfoldd.core.model import Call
from pinfoldd.core.values import Surface, WaitMode
from pinfoldd.render.headers import INTERNAL, Header, document, one_line, wrapped
from pinfoldd.render.results import AGENT_TOOL, result_text
from pinfoldd.render.shell_output import Chunk
from pinfoldd.render.tasks import start_acknowledgement

ADVICE = (
    "Three waits in a row ended without input. If you have nothing left to do but wait, "
    "report it with status(waiting) and end your turn: events wake you."
)

_INTERRUPTED = (
    "New input for you came first. Nothing was consumed; once you have read it, "
    "wait again to collect the result."
)


def placeholder(call: Call, surface: Surface = Surface.TAU) -> str:
    """The answer of a call that went to the background.

    On the task tools' surface it is the acknowledgement that names the task.
    """
    if surface is Surface.TASKS:
        return start_acknowledgement(call)
    headers: list[Header] = [INTERNAL]
    if call.tool == AGENT_TOOL:
        headers += [("self_agent_id", call.agent), ("sub_agent_id", call.sub_agent)]
    return document(headers, f"Tool call `{one_line(call.id)}` is running in the background.")


def interrupted(mode: WaitMode) -> str:
    """Neither an id nor anything of the input: exactly these four headers."""
    headers = [
        INTERNAL,
        ("wait_outcome", "interrupted"),
        ("wait_reason", "activating_input"),
        ("wait_mode", mode.value),
    ]
    return document(headers, _INTERRUPTED)


def input_available() -> str:
    return document([("input_available", "true")])


def timed_out(*, advice: bool = False) -> str:
    """A normal answer. `advice`: the third input wait in a row without progress."""
    headers: list[Header] = [("timed_out", "true")]
    if advice:
        headers.append(("advice", ADVICE))
    return document(headers)


def wait_result(mode: WaitMode, results: Sequence[tuple[Call, Iterable[Chunk]]]) -> str:
    """The answer of a wait that has its result: the calls in the order of the answer, with the
    chunks of their output.

    An exact wait gets the call's own text. A bare wait, and one for any of a set, get it with
    `original_tool_call_id`. One for all of a set gets all of them like that, each in a
    `<result>`, errors among them.
    """
    if mode is WaitMode.EXACT_ALL:
        nested = [
            wrapped("result", result_text(call, chunks, collected=True)) for call, chunks in results
        ]
        return document([("results", str(len(nested)))], "\n".join(nested))
    ((call, chunks),) = results
    return result_text(call, chunks, collected=mode is not WaitMode.EXACT)


def wait_label(mode: WaitMode, calls: Sequence[str], seconds: float | None) -> str:
    """One line for people. `seconds`: what an input wait may take, as it is in force."""
    match mode:
        case WaitMode.ACTIVATING_INPUT:
            if seconds is None:
                return "wait for input"
            minutes, rest = divmod(round(seconds), 60)
            return f"wait {round(seconds)}s" if rest else f"wait {minutes}m"
        case WaitMode.ANY_BACKGROUND:
            return "wait"
        case _:
            return one_line("wait " + " ".join(calls), 100)
