"""The text of what a call ended with: header order, errors, receipts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfoldd.core.values import (
    CallState,
    Cause,
    Exit,
    Extent,
    Receipt,
    Result,
    Signalled,
    Survivor,
)
from pinfoldd.render.results import error_message, result_text
from pinfoldd.render.shell_output import Piece, ranges
from unit.render.builders import build_call, exited


def shell(result: Result, *data: bytes, collected: bool = False, **fields: object) -> str:
    offset, chunks = 0, []
    for part in data:
        chunks.append(Piece(1, offset, part))
        offset += len(part)
    result.output = Extent(offset, sum(part.count(b"\n") for part in data))
    return result_text(build_call(result, **fields), chunks, collected=collected)


def test_an_ordinary_end() -> None:
    assert shell(exited(), b"hi\n") == "status: 0\n\nout hi"
    assert shell(exited()) == "status: 0"


def test_a_non_zero_exit_is_a_result() -> None:
    assert shell(exited(7)) == "termination_reason: exit\nstatus: 7"


def test_a_signal() -> None:
    result = Result(CallState.SUCCEEDED, Cause.SIGNAL, exit=Exit(signal=15), seconds=0.0)
    assert shell(result) == "termination_reason: signal\nsignal: 15"


def test_a_timeout_keeps_the_output() -> None:
    result = Result(CallState.TIMED_OUT, Cause.TIMEOUT, exit=Exit(signal=15), seconds=1.0)
    result.receipt = Receipt(signals=[Signalled(15, 0.0, 1, "term")], ended=1)
    assert shell(result, b"before\n") == (
        "timed_out: true\ntermination_reason: timeout\nsignal: 15\n\nout before"
    )


def test_a_timeout_at_once() -> None:
    result = Result(CallState.TIMED_OUT, Cause.TIMEOUT, seconds=0.0)
    assert shell(result) == "timed_out: true\ntermination_reason: timeout"


def test_an_unknown_end_is_never_a_zero() -> None:
    result = Result(CallState.SUCCEEDED, Cause.UNKNOWN, exit=Exit(), seconds=1.0)
    assert shell(result) == "termination_reason: unknown"


def test_all_headers_in_their_order() -> None:
    result = Result(CallState.TIMED_OUT, Cause.TIMEOUT, exit=Exit(code=3, leftover=2), seconds=6.1)
    text = shell(result, b"\xff\n" * 2001)
    assert text.split("\n\n")[0].split("\n") == [
        "valid_utf8: false",
        "timed_out: true",
        "termination_reason: timeout",
        "truncated: true",
        "total_lines: 2001",
        "total_bytes: 4002",
        "full_output: ReadOutput offset 0",
        "status: 3",
        "duration_seconds: 7",
        "leftover_processes: 2",
    ]


def test_dropped_bytes_are_counted() -> None:
    result = exited()
    result.output = Extent(1000, 5, 900)
    chunks = [Piece(1, 0, b"a\n"), Piece(0, 2, b"", 900), Piece(1, 902, b"b" * 97 + b"\n")]
    text = result_text(build_call(result), chunks)
    assert text.startswith(
        "truncated: true\ntotal_lines: 5\ntotal_bytes: 1000\ndropped_bytes: 900\n"
        "full_output: ReadOutput offset 0\nstatus: 0\n\nout a\n...\nout(truncated) b"
    )


def test_a_start_error() -> None:
    result = Result(CallState.FAILED, Cause.START_ERROR, error="no such directory: /a\nb")
    assert shell(result) == (
        "error: failed to start shell command: no such directory: /a\\nb\n"
        "termination_reason: start_error"
    )


def cancelled(**fields: object) -> Result:
    values = {"exit": Exit(signal=9), "seconds": 6.5} | fields
    return Result(CallState.CANCELLED, Cause.CANCELLED, **values)  # type: ignore[arg-type]


def test_a_cancelled_call_has_its_receipt_and_its_output() -> None:
    receipt = Receipt(
        signals=[Signalled(15, 0.0, 3, "term"), Signalled(9, 2.004, 2, "kill")],
        ended=3,
        escaped=1,
        ended_by="kill",
        proof="subreaper",
    )
    result = cancelled(receipt=receipt, cancel_reason="superseded")
    assert shell(result, b"partial\n") == (
        "error: Tool call canceled\n"
        "termination_reason: cancelled\n"
        "signal: 9\n"
        "duration_seconds: 7\n"
        "cancel_reason: superseded\n"
        "kill_signals: TERM@0.00s KILL@2.00s\n"
        "killed_processes: 3\n"
        "killed_outside_group: 1\n"
        "kill_ended_by: kill\n"
        "kill_proof: subreaper\n"
        "\n"
        "out partial"
    )


def test_a_cancelled_call_never_shows_status_zero() -> None:
    assert "status" not in shell(cancelled(exit=Exit(code=0)))
    assert "\nstatus: 143" in shell(cancelled(exit=Exit(code=143)))


def test_a_call_cancelled_before_it_ran() -> None:
    result = Result(CallState.CANCELLED, Cause.CANCELLED)
    assert shell(result) == "error: Tool call canceled\ntermination_reason: cancelled"


def test_survivors_are_named() -> None:
    receipt = Receipt(
        survivors=[Survivor(12, "x\ny", "operation not permitted"), Survivor(13, "", "")]
    )
    result = Result(
        CallState.FAILED, Cause.CANCELLED, seconds=3.0, receipt=receipt, error="could not be ended"
    )
    assert shell(result) == (
        "error: Tool call could not be stopped: surviving pids 12, 13\n"
        "termination_reason: cancelled\n"
        "survivors: 12 (x\\ny: operation not permitted), 13"
    )


def test_many_survivors_are_bounded() -> None:
    receipt = Receipt(survivors=[Survivor(i, "n" * 1000, "r" * 1000) for i in range(1, 10_000)])
    receipt.signals = [Signalled(9, 0.1, 1, "sweep")] * 10_000
    text = shell(cancelled(receipt=receipt))
    assert len(text) < 6_000
    assert "+9983 more" in text


def test_a_lost_call() -> None:
    result = Result(CallState.LOST, Cause.UNKNOWN, seconds=1.0, error="keeper was killed")
    assert shell(result, b"so far\n") == (
        "error: Tool call lost: keeper was killed\ntermination_reason: unknown\n\nout so far"
    )
    result.error = ""
    assert error_message("shell", result) == "Tool call lost: supervisor restarted"


def test_a_collected_result_says_first_whose_it_is() -> None:
    assert shell(exited(), b"hi\n", collected=True) == (
        "original_tool_call_id: X\nstatus: 0\n\nout hi"
    )
    assert shell(cancelled(seconds=1.0), collected=True).startswith(
        "error: Tool call canceled\noriginal_tool_call_id: X\ntermination_reason"
    )


def agent(result: Result, *, collected: bool = False) -> str:
    call = build_call(result, tool="agent_start", kind="agent", sub_agent="a-2")
    return result_text(call, collected=collected)


def test_an_answer_stands_alone() -> None:
    result = Result(CallState.SUCCEEDED, Cause.EXIT, seconds=60.0, answer="the\n\nanswer")
    assert agent(result) == "the\n\nanswer"
    assert agent(result, collected=True) == "original_tool_call_id: X\n\nthe\n\nanswer"


def test_a_cancelled_agent() -> None:
    assert agent(Result(CallState.CANCELLED, Cause.CANCELLED, seconds=6.0)) == (
        "error: Tool call canceled\nself_agent_id: a-1\nsub_agent_id: a-2\nduration_seconds: 6"
    )
    assert agent(Result(CallState.CANCELLED, Cause.CANCELLED, seconds=2.0), collected=True) == (
        "error: Tool call canceled\noriginal_tool_call_id: X\nself_agent_id: a-1\nsub_agent_id: a-2"
    )


def test_a_failed_agent_keeps_its_partial_text() -> None:
    result = Result(CallState.FAILED, Cause.EXIT, error="worker exited", answer="half")
    assert agent(result) == (
        "error: Tool call failed: worker exited\nself_agent_id: a-1\nsub_agent_id: a-2\n\nhalf"
    )


def test_a_live_call_has_no_result() -> None:
    with pytest.raises(ValueError, match="not ended"):
        result_text(build_call())


@given(
    state=st.sampled_from(
        [state for state in CallState if state.value not in ("queued", "running", "stopping")]
    ),
    cause=st.sampled_from(Cause),
    tool=st.sampled_from(["shell", "agent_start"]),
    texts=st.lists(st.text(st.characters(exclude_categories=[])), min_size=6, max_size=6),
    code=st.none() | st.integers(0, 255),
    number=st.none() | st.integers(-5, 99),
)
def test_nothing_from_outside_makes_a_header(
    state: CallState,
    cause: Cause,
    tool: str,
    texts: list[str],
    code: int | None,
    number: int | None,
) -> None:
    result = Result(state, cause, exit=Exit(code, number), seconds=9.0)
    result.error, result.cancel_reason = texts[:2]
    result.receipt = Receipt(
        signals=[Signalled(9, 1.0, 1, "kill")], survivors=[Survivor(1, texts[2], texts[3])]
    )
    call = build_call(result, tool=tool, id=texts[4] or "X", sub_agent=texts[5])
    text = result_text(call, collected=True)
    text.encode()
    lines = text.splitlines()
    names = [line.split(": ")[0] for line in lines]
    assert all(name.replace("_", "").isalnum() and name.islower() for name in names)
    assert len(set(names)) == len(names)
    assert "original_tool_call_id" in names[:2]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"p\r" * 3000, 3000),
        (b"x\n" * 2000 + b"x", 2001),
        (b"x" * 60_000, 1),
        (b"x\n" * 60_000, 60_000),
        (b"x\n" * 60_000 + b"y", 60_001),
    ],
)
def test_lines_are_counted_as_the_text_shows_them(data: bytes, lines: int) -> None:
    result = exited()
    result.output = Extent(len(data), data.count(b"\n"), 0)
    chunks = [Piece(1, start, data[start:stop]) for start, stop in ranges(result.output)]
    head = result_text(build_call(result), chunks).partition("\n\n")[0]
    assert f"total_lines: {lines}" in head.split("\n")
