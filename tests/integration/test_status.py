"""How a call ended: exit code, signal and cause are three facts, as the kernel gave them."""

from __future__ import annotations

import asyncio
import time

import pytest

from integration.harness import Shells
from pinfold.v1 import call_pb2

EXIT, SIGNAL, TIMEOUT = (
    call_pb2.END_CAUSE_EXIT,
    call_pb2.END_CAUSE_SIGNAL,
    call_pb2.END_CAUSE_TIMEOUT,
)


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [
        ("kill -9 $$", None, 9),
        ("kill -SEGV $$", None, 11),
        ("kill -TERM $$", None, 15),
        ("kill -INT $$", None, 2),
        ("bash -c 'kill -9 $$'; exit $?", 137, None),
        ("exit 256", 0, None),
        ("exit 300", 44, None),
        ("exit 255", 255, None),
        ("exec /bin/true", 0, None),
        ("no-such-command-at-all", 127, None),
    ],
)
async def test_exit_codes_and_signals(
    shells: Shells, script: str, code: int | None, signal: int | None
) -> None:
    result = await shells.run(script)
    assert (result.exit_code, result.signal) == (code, signal)
    assert result.state == call_pb2.CALL_STATE_SUCCEEDED
    assert result.cause == (EXIT if signal is None else SIGNAL)
    assert result.error == ""
    assert result.ok == (code == 0)
    if signal is not None:
        assert f"termination_reason: signal\nsignal: {signal}" in result.text
        assert "status:" not in result.text
    elif code:
        assert f"termination_reason: exit\nstatus: {code}" in result.text


async def test_argv_without_a_shell(shells: Shells) -> None:
    result = await shells.run(["printf", "%s|", "a b", "", "$HOME", b"\xff"])
    assert await shells.output(result.call_id) == b"a b||$HOME|\xff|"


async def test_a_hundred_at_once_while_orphans_are_adopted(shells: Shells) -> None:
    answers = await asyncio.gather(
        *(shells.run("(sleep 0.05 & sleep 0.01 &); exit 7") for _ in range(100))
    )
    assert [(answer.exit_code, answer.signal) for answer in answers] == [(7, None)] * 100
    await shells.gone()


async def test_partial_output_before_a_timeout(shells: Shells) -> None:
    begun = time.monotonic()
    result = await shells.run("echo partial; sleep 1000", timeout=1.0)
    assert time.monotonic() - begun < 2.0
    assert (result.state, result.cause) == (call_pb2.CALL_STATE_TIMED_OUT, TIMEOUT)
    assert result.text.startswith("timed_out: true\ntermination_reason: timeout\n")
    assert result.text.endswith("\n\nout partial")
    assert result.error == ""
    await shells.gone(0.1)


async def test_a_timeout_of_a_stubborn_tree(shells: Shells) -> None:
    script = "trap '' TERM; setsid sleep 1000 & echo up; sleep 1000"
    result = await shells.run(script, timeout=0.5, grace=0.3)
    assert result.state == call_pb2.CALL_STATE_TIMED_OUT
    assert result.receipt is not None
    assert result.receipt.escaped >= 1
    await shells.gone(0.1)


async def test_a_timeout_of_zero(shells: Shells, tmp_path: object) -> None:
    result = await shells.run(f"touch {tmp_path}/ran; sleep 1", timeout=0.0)
    assert result.state == call_pb2.CALL_STATE_TIMED_OUT
    assert "timed_out: true" in result.text


async def test_the_time_of_a_long_call_is_in_its_text(shells: Shells) -> None:
    call_id = await shells.start("echo out; sleep 1000", grace=0.3)
    answer = await shells.agent.wait_exact(call_id, timeout=5.2)
    assert answer.timed_out
    assert answer.text == "timed_out: true"
    await shells.cancel(call_id)
    answer = await shells.agent.wait_exact(call_id)
    assert "\nduration_seconds: 6\n" in answer.text
    result = await shells.run("sleep 0.2")
    assert "duration_seconds" not in result.text


async def test_usage_is_counted(shells: Shells) -> None:
    result = await shells.run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
    process = result.message.process
    assert process.user_time.ToTimedelta().total_seconds() > 0.02


async def test_the_state_that_children_start_with(shells: Shells) -> None:
    script = (
        "grep -E '^(SigBlk|SigIgn)' /proc/self/status; umask; ps -o pid=,pgid=,sid= $$;"
        "ls /proc/self/fd"
    )
    result = await shells.run(script)
    lines = (await shells.output(result.call_id)).decode().split("\n")
    assert "SigBlk:\t0000000000000000" in lines
    # But for the two that the C library keeps for itself and nobody else can set.
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
    assert ignored & ~(0b11 << 31) == 0
    assert "0022" in lines
    pid, pgid, sid = next(line for line in lines if len(line.split()) == 3).split()
    assert pid == pgid == sid
    # 0, 1, 2, and the one that `ls` itself has open.
    assert lines[-5:-1] == ["0", "1", "2", "3"]


async def test_what_the_supervisor_knows_is_not_in_the_environment(shells: Shells) -> None:
    result = await shells.run("env")
    names = {line.split(b"=")[0] for line in (await shells.output(result.call_id)).splitlines()}
    assert {b"PINFOLD_ADDRESS", b"PINFOLD_AGENT_ID", b"PINFOLD_CALL_ID"} <= names
    assert b"PINFOLD_TOKEN" not in names
    assert not [name for name in names if name.startswith(b"GRPC_")]
