"""Calls seen as tasks: statuses that are true, lists, reads."""

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
    Survivor,
)
from pinfoldd.render import tasks
from pinfoldd.render.shell_output import Piece
from pinfoldd.render.task_output import HOLD_BYTES, delta, final_output, read_text
from unit.render.builders import build_call, exited

OUT, ERR = 1, 2


def ended(state: CallState, cause: Cause, **fields: object) -> Result:
    return Result(state, cause, **fields)  # type: ignore[arg-type]


CANCELLED = (CallState.CANCELLED, Cause.CANCELLED)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (exited(), "[status: completed]"),
        (exited(7), "[status: completed, exit code: 7]"),
        (
            ended(CallState.SUCCEEDED, Cause.SIGNAL, exit=Exit(signal=15)),
            "[status: killed, signal: SIGTERM]",
        ),
        (ended(*CANCELLED, exit=Exit(signal=15)), "[status: killed, signal: SIGTERM]"),
        (ended(*CANCELLED, exit=Exit(signal=9)), "[status: killed, signal: SIGKILL]"),
        (ended(*CANCELLED, exit=Exit(code=0)), "[status: killed, exit code: 0]"),
        (ended(*CANCELLED), "[status: killed]"),
        (
            ended(*CANCELLED, exit=Exit(signal=15), cancel_reason="superseded\nby"),
            "[status: killed, signal: SIGTERM, reason: superseded\\nby]",
        ),
        (ended(CallState.TIMED_OUT, Cause.TIMEOUT), "[status: killed, timed out after 1.5 s]"),
        (ended(CallState.LOST, Cause.UNKNOWN), "[status: failed, lost: supervisor restarted]"),
        (
            ended(CallState.LOST, Cause.UNKNOWN, error="machine restarted"),
            "[status: failed, lost: machine restarted]",
        ),
        (
            ended(CallState.FAILED, Cause.START_ERROR, error="no such directory: /x"),
            "[status: failed, failed to start: no such directory: /x]",
        ),
        (
            ended(
                CallState.FAILED,
                Cause.CANCELLED,
                receipt=Receipt(survivors=[Survivor(12, "", ""), Survivor(13, "", "")]),
            ),
            "[status: failed, could not be stopped: surviving pids 12, 13]",
        ),
        (ended(CallState.FAILED, Cause.EXIT, error="max-tokens"), "[status: failed, max-tokens]"),
        (ended(CallState.FAILED, Cause.EXIT), "[status: failed]"),
        (ended(CallState.SUCCEEDED, Cause.UNKNOWN), "[status: failed, exit status unknown]"),
    ],
)
def test_status_lines(result: Result, line: str) -> None:
    assert tasks.status_line(build_call(result, timeout=1.5)) == line


def test_an_agent_that_answered_is_completed_whatever_its_process_did() -> None:
    result = ended(CallState.SUCCEEDED, Cause.UNKNOWN, answer="a")
    call = build_call(result, tool="agent_start", kind="agent")
    assert tasks.status_line(call) == "[status: completed]"


def test_live_statuses() -> None:
    assert tasks.status_line(build_call()) == "[status: running]"
    assert tasks.status_line(build_call(state=CallState.QUEUED)) == "[status: running]"
    assert tasks.status_line(build_call(state=CallState.STOPPING)) == "[status: stopping]"


@pytest.mark.parametrize(("timeout", "shown"), [(100.0, "100"), (0.0, "0"), (0.25, "0.25")])
def test_the_timeout_is_shown_in_seconds(timeout: float, shown: str) -> None:
    call = build_call(ended(CallState.TIMED_OUT, Cause.TIMEOUT), timeout=timeout)
    assert tasks.task_detail(call) == f"timed out after {shown} s"


def test_the_reason_of_a_stop_is_shown() -> None:
    call = build_call(ended(*CANCELLED, exit=Exit(signal=15)), stop_reason="superseded")
    assert tasks.task_detail(call) == "signal: SIGTERM, reason: superseded"


def test_list() -> None:
    assert tasks.task_list([]) == "(no background tasks)"
    calls = [
        build_call(label="sleep\n60"),
        build_call(exited(), kind="agent", number=2, label="x" * 5000),
    ]
    first, second = tasks.task_list(calls).split("\n")
    assert first == "shell-1 [shell] running — sleep\\n60"
    assert second.startswith("agent-2 [agent] completed — xxx")
    assert len(second) < 200


def test_kill() -> None:
    assert tasks.kill_requested("shell-1") == "requested cancellation of task shell-1"
    assert tasks.kill_too_late(build_call(exited(1))) == (
        "task shell-1 had already finished [status: completed, exit code: 1]"
    )


def test_reads() -> None:
    live = build_call()
    assert read_text("line one\n", tasks.status_line(live)) == "line one\n[status: running]"
    assert read_text("", tasks.status_line(live)) == "(no new output)\n[status: running]"
    assert read_text("part", tasks.status_line(live)) == "part\n[status: running]"


def test_final_output() -> None:
    assert final_output(build_call(kind="agent")) == ""
    result = ended(CallState.SUCCEEDED, Cause.EXIT, answer="background answer")
    call = build_call(result, kind="agent", tool="agent_start")
    assert (
        read_text(final_output(call), tasks.status_line(call))
        == "background answer\n[status: completed]"
    )


def pieces(*parts: tuple[int, bytes], start: int = 0) -> list[Piece]:
    chunks = []
    for stream, data in parts:
        chunks.append(Piece(stream, start, data))
        start += len(data)
    return chunks


def test_stderr_follows_its_mark() -> None:
    assert delta(pieces((OUT, b"out"), (ERR, b"err\n")), 0, final=True).text == (
        "out\n[stderr]\nerr\n"
    )
    assert delta(pieces((ERR, b"err\n")), 0, final=True).text == "[stderr]\nerr\n"
    mixed = pieces((OUT, b"a\n"), (ERR, b"e\n"), (OUT, b"b\n"))
    assert delta(mixed, 0, final=True).text == "a\nb\n[stderr]\ne\n"


def test_an_incomplete_character_waits() -> None:
    chunks = pieces((OUT, b"a\xe2\x94"), start=10)
    assert delta(chunks, 10, final=False) == (11, "a")
    assert delta(chunks, 10, final=True) == (13, "a\ufffd")
    assert delta([], 10, final=False) == (10, "")


def test_binary_output_does_not_hide_the_other_stream_for_ever() -> None:
    few = pieces((OUT, b"\xe2"), (ERR, b"e" * 100))
    assert delta(few, 0, final=False) == (0, "")
    many = pieces((OUT, b"\xe2"), (ERR, b"e" * HOLD_BYTES))
    assert delta(many, 0, final=False).end == 1 + HOLD_BYTES


def test_a_repeated_read_gives_the_same_text() -> None:
    chunks = pieces((OUT, b"a"), (ERR, b"e\xe2"), (OUT, b"\xe2\x94"), (ERR, b"\x94\x80"))
    first = delta(chunks, 0, final=False)
    assert first == (2, "a\n[stderr]\ne")
    assert delta(pieces((OUT, b"a"), (ERR, b"e")), 0, final=True) == first


def test_bytes_that_are_not_kept_are_named() -> None:
    chunks = [Piece(OUT, 0, b"a"), Piece(0, 1, b"", 500), Piece(OUT, 501, b"b\n")]
    assert delta(chunks, 0, final=False) == (503, "a\n[500 bytes not kept]\nb\n")


TEXTS = st.text(st.sampled_from("aé€😀\n"), max_size=12)


@given(
    parts=st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.integers(1, 3)), max_size=40),
    out=TEXTS,
    err=TEXTS,
    steps=st.lists(st.integers(1, 8), min_size=60, max_size=60),
)
def test_reads_never_split_a_character(
    parts: list[tuple[int, int]], out: str, err: str, steps: list[int]
) -> None:
    """Two streams of valid text, interleaved anywhere, read as they grow."""
    left = {OUT: out.encode(), ERR: err.encode()}
    arrivals: list[tuple[int, bytes]] = []
    for stream, size in [*parts, (OUT, 99), (ERR, 99)]:
        if left[stream]:
            arrivals.append((stream, left[stream][:size]))
            left[stream] = left[stream][size:]
    total = sum(len(data) for _, data in arrivals)
    seen = {OUT: "", ERR: ""}
    cursor = available = 0
    for step in steps:
        available = min(available + step, total)
        offset, chunks = 0, []
        for stream, data in arrivals:
            low, high = max(cursor, offset), min(available, offset + len(data))
            if low < high:
                chunks.append(Piece(stream, low, data[low - offset : high - offset]))
            offset += len(data)
        read = delta(chunks, cursor, final=available == total)
        assert cursor <= read.end <= available
        assert "\ufffd" not in read.text
        before, mark, after = read.text.partition("[stderr]\n")
        if mark:
            before = before.removesuffix("\n") if not _ends(chunks, read.end) else before
        seen[OUT] += before
        seen[ERR] += after
        cursor = read.end
    assert cursor == total
    assert seen == {OUT: out, ERR: err}


def _ends(chunks: list[Piece], end: int) -> bool:
    """Whether the standard output of a read ended in a newline of its own."""
    data = b"".join(c.data[: max(end - c.offset, 0)] for c in chunks if c.stream == OUT)
    return not data or data.endswith(b"\n")


@given(st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.binary(max_size=6)), max_size=20))
def test_any_bytes_make_progress_at_the_end(parts: list[tuple[int, bytes]]) -> None:
    chunks = pieces(*parts)
    total = sum(len(data) for _, data in parts)
    assert delta(chunks, 0, final=True).end == total
    assert 0 <= delta(chunks, 0, final=False).end <= total


@given(
    label=st.text(),
    reason=st.text(st.characters(exclude_categories=[])),
    error=st.text(st.characters(exclude_categories=[])),
    state=st.sampled_from([CallState.CANCELLED, CallState.FAILED, CallState.LOST]),
)
def test_a_task_is_one_line(label: str, reason: str, error: str, state: CallState) -> None:
    result = Result(state, Cause.START_ERROR, output=Extent(), error=error, cancel_reason=reason)
    call = build_call(result, label=label)
    for text in (tasks.task_line(call), tasks.status_line(call), tasks.task_notice(call)):
        assert len(text.splitlines()) == 1
        assert len(text) < 700
        text.encode()
