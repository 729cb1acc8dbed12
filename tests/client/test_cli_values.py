"""What the command line makes of messages."""

from __future__ import annotations

import json

import pytest
from google.protobuf.duration_pb2 import Duration

from pinfold.cli import show
from pinfold.cli.describe import describe, is_hidden
from pinfold.cli.plain import to_json, to_plain
from pinfold.v1 import agent_pb2, call_pb2, watch_service_pb2
from pinfold.values import duration

CallResult = call_pb2.CallResult
End = call_pb2.ProcessEnd


def test_plain() -> None:
    call = call_pb2.Call(
        call_id="c",
        state=call_pb2.CALL_STATE_TIMED_OUT,
        output=call_pb2.OutputExtent(size=1 << 40),
        result=CallResult(
            duration=Duration(seconds=1, nanos=500_000_000), process=End(exit_code=0)
        ),
    )
    call.started_at.FromSeconds(0)
    assert to_plain(call) == {
        "call_id": "c",
        "state": "timed_out",
        "output": {"size": 1 << 40},
        "started_at": "1970-01-01T00:00:00Z",
        "result": {"duration": 1.5, "process": {"exit_code": 0}},
    }
    assert json.loads(to_json(call))["output"]["size"] == 1 << 40


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (CallResult(cause=call_pb2.END_CAUSE_EXIT, process=End(exit_code=7)), 7),
        (CallResult(cause=call_pb2.END_CAUSE_SIGNAL, process=End(signal=9)), 137),
        (CallResult(cause=call_pb2.END_CAUSE_TIMEOUT, process=End(signal=15)), 124),
        (CallResult(cause=call_pb2.END_CAUSE_CANCELLED, process=End(exit_code=0)), 130),
        (CallResult(cause=call_pb2.END_CAUSE_START_ERROR, error="x: No such file"), 127),
        (CallResult(cause=call_pb2.END_CAUSE_START_ERROR, error="x: Permission denied"), 126),
        (CallResult(cause=call_pb2.END_CAUSE_UNKNOWN, state=call_pb2.CALL_STATE_LOST), 125),
        (CallResult(state=call_pb2.CALL_STATE_SUCCEEDED, answer="an agent's"), 0),
    ],
)
def test_exit_codes(result: call_pb2.CallResult, code: int) -> None:
    assert show.exit_code(result) == code


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, (0, 0)), (1.5, (1, 500_000_000)), (-0.25, (0, -250_000_000)), (2.999999999999, (3, 0))],
)
def test_durations(seconds: float, expected: tuple[int, int]) -> None:
    value = duration(seconds)
    assert value is not None
    assert (value.seconds, value.nanos) == expected


def test_every_event_has_words() -> None:
    bodies = watch_service_pb2.Event.DESCRIPTOR.oneofs_by_name["body"].fields
    for field in bodies:
        event = watch_service_pb2.Event(name="x")
        getattr(event, field.name).SetInParent()
        describe(event)


def test_internal_prompts_are_hidden_by_type() -> None:
    event = watch_service_pb2.Event()
    event.prompt_queued.prompt.text = "[tau-internal] looks like it"
    assert not is_hidden(event)
    event.prompt_queued.prompt.kind = agent_pb2.PROMPT_KIND_NOTICE
    event.prompt_queued.prompt.internal = True
    assert is_hidden(event)


def test_receipt() -> None:
    receipt = call_pb2.KillReceipt(ended=4, escaped=1, proof="subreaper")
    receipt.signals.add(signal=15, processes=3)
    receipt.signals.add(signal=9, processes=1).after.FromMilliseconds(2000)
    assert show.receipt_lines(receipt) == [
        "ended 4 processes, 1 of them outside of its process group, in 0 ms",
        "sent SIGTERM to 3 at 0 ms; SIGKILL to 1 at 2.0 s",
        "nothing is left (proof: subreaper)",
    ]
    receipt.survivors.add(pid=7, name="x", reason="operation not permitted")
    assert "still alive: 7 x: operation not permitted" in show.receipt_lines(receipt)


@pytest.mark.parametrize("agent_id", ["cli", "agent_61c7c18ed9c522ab"])
def test_ids_are_whole_on_a_narrow_terminal(
    agent_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    row = ("call_7c651bcdb55f", "running", "", "120 min", "1234567", "1023.9 KiB", "sleep " * 30)
    show.table(
        ("AGENT", "CALL", "STATE", "END", "TIME", "PID", "OUTPUT", "COMMAND"),
        [(agent_id, *row), (agent_id, *row)],
        empty="",
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for cell in (*row[:2], *row[3:6], "sleep"):
        assert sum(cell in line for line in lines) == 2, lines
    width = lines[0].index("CALL")
    assert "".join(line[:width].strip() for line in lines[2:]) == agent_id * 2


def test_what_does_not_fit_is_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    ids = ("a" * 50, "b" * 50)
    show.table(("AGENT", "CALL", "STATE", "LABEL"), [(*ids, "running, 2 left", "x")], empty="")
    shown = capsys.readouterr().out
    assert shown.count("a") == shown.count("b") == 50
