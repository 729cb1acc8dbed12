"""Every reason has a text; those that the contract fixes are there to the byte."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfoldd.core.reasons import Reason
from pinfoldd.render.errors import _TEXTS, error_text, text

EXACT = {
    Reason.CALL_UNKNOWN: "unknown tool call: `X`",
    Reason.RESULT_CONSUMED: "result for tool call `X` already consumed",
    Reason.CALL_RETURNED_NORMALLY: "Tool call X returned normally, not backgrounded",
    Reason.WAIT_IN_PROGRESS: "existing wait for this tool already in progress",
    Reason.BARE_WAIT_IN_PROGRESS: (
        "existing wait for a background tool call in this conversation already in progress"
    ),
    Reason.INPUT_WAIT_IN_PROGRESS: "existing input wait for this agent already in progress",
    Reason.NOTHING_TO_WAIT_FOR: (
        "no background tool calls are running or completed in this conversation; use "
        '`wait({"timeout_minutes": N})` with a positive integer N to wait for new activating input'
    ),
    Reason.CANCEL_TARGET_UNKNOWN: "Unknown tool call id",
    Reason.CALL_ALREADY_CANCELED: "Tool call already canceled",
    Reason.CALL_ALREADY_DONE: "Tool call is already done",
    Reason.CALL_NOT_CANCELLABLE: "Tool call is not a running cancellable tool call",
    Reason.RECIPIENT_UNKNOWN: "unknown message recipient: `R`",
    Reason.RECIPIENT_STOPPED: "stopped message recipient: `R`",
    Reason.WATCH_SELF: "`agent_id` must identify another agent",
    Reason.WATCH_TARGET_UNKNOWN: "unknown agent: `A`",
    Reason.WATCH_TARGET_STOPPED: "agent is not live: `A`",
    Reason.WATCH_CYCLE: "agent watch would create a cycle: `A` -> `B`",
    Reason.TASK_UNKNOWN: "unknown task shell-99",
    Reason.NO_CONTROL_SURFACE: "background tasks unavailable: no control surface is attached",
    Reason.AGENT_UNKNOWN: "unknown agent: `A`",
}

DETAILS = {
    "tool_call_id": "X",
    "agent_id": "A",
    "recipient_id": "R",
    "watcher": "A",
    "watched": "B",
    "task_id": "shell-99",
    "wait_id": "W",
    "request_id": "Q",
    "limit": "7",
    "name": "N",
    "role": "L",
    "reason": "why",
    "oldest_revision": "12",
}


@pytest.mark.parametrize("reason", EXACT)
def test_exact_texts(reason: Reason) -> None:
    assert text(reason, DETAILS) == EXACT[reason]


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_text_that_uses_known_details(reason: Reason) -> None:
    said = text(reason, DETAILS)
    assert said
    assert "?" not in said
    fields = {field for _, field, _, _ in string.Formatter().parse(_TEXTS[reason]) if field}
    assert fields <= DETAILS.keys()
    assert error_text(reason, DETAILS).splitlines()[0] == f"error: {said}"


@pytest.mark.parametrize("reason", Reason)
def test_a_detail_that_is_missing_still_gives_a_text(reason: Reason) -> None:
    assert text(reason, {})


def test_an_unknown_cancel_target_is_echoed() -> None:
    assert (
        error_text(Reason.CANCEL_TARGET_UNKNOWN, {"tool_call_id": "X"})
        == "error: Unknown tool call id\ntool_call_id: X"
    )


def test_a_recipient_is_echoed() -> None:
    details = {"recipient_id": "R", "message": "a\nb"}
    assert error_text(Reason.RECIPIENT_UNKNOWN, details) == (
        "error: unknown message recipient: `R`\nrecipient_id: R\nmessage: a\\nb"
    )


@given(
    reason=st.sampled_from(Reason),
    values=st.lists(st.text(st.characters(exclude_categories=[])), min_size=14, max_size=14),
)
def test_no_detail_makes_a_line(reason: Reason, values: list[str]) -> None:
    details = dict(zip(DETAILS, values))
    assert len(text(reason, details).splitlines()) <= 1
    echoed = {Reason.CANCEL_TARGET_UNKNOWN: 1, Reason.RECIPIENT_UNKNOWN: 1}
    echoed[Reason.RECIPIENT_STOPPED] = 1
    assert len(error_text(reason, details).splitlines()) == 1 + echoed.get(reason, 0)


def test_braces_in_a_value_are_only_text() -> None:
    assert text(Reason.CALL_UNKNOWN, {"tool_call_id": "{limit}{0}"}) == (
        "unknown tool call: `{limit}{0}`"
    )
