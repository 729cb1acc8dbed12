"""Standard input and terminals: the end at once unless input was asked for."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from integration.harness import Shells
from pinfold.errors import StateError


async def test_the_end_at_once(shells: Shells) -> None:
    begun = time.monotonic()
    result = await shells.run("cat; read x; echo rc=$?")
    assert result.text == "status: 0\n\nout rc=1"
    assert time.monotonic() - begun < 1.0


async def test_there_is_no_terminal(shells: Shells) -> None:
    begun = time.monotonic()
    result = await shells.run("echo hi >/dev/tty")
    assert result.exit_code != 0
    assert time.monotonic() - begun < 1.0
    assert "/dev/tty" in result.text


async def test_input_that_is_given_with_the_call(shells: Shells) -> None:
    data = os.urandom(3_000_000)
    result = await shells.run("cat", input=data)
    assert await shells.output(result.call_id) == data
    result = await shells.run(["cat"], input=b"for argv")
    assert await shells.output(result.call_id) == b"for argv"


async def test_input_that_nobody_reads(shells: Shells) -> None:
    result = await shells.run("exec true", input=bytes(3_000_000))
    assert result.ok


async def test_a_pipe(shells: Shells) -> None:
    call_id = await shells.detach(
        'while read line; do echo "got $line"; done; echo end', stdin=True
    )
    await shells.agent.write_input(call_id, b"one\n")
    await shells.until_output(call_id, b"got one\n")
    await shells.agent.write_input(call_id, b"tw")
    await shells.agent.write_input(call_id, b"o\n")
    await shells.until_output(call_id, b"got two\n")
    await shells.agent.close_input(call_id)
    result = await shells.ended(call_id)
    assert result.text.endswith("out got two\nout end")


async def test_given_input_and_then_a_pipe(shells: Shells) -> None:
    call_id = await shells.detach(["cat"], stdin=True, input=b"first ")
    await shells.agent.write_input(call_id, b"second")
    await shells.agent.close_input(call_id)
    assert await shells.output(call_id) == b"first second"


async def test_a_slow_reader_gets_all_of_it(shells: Shells) -> None:
    call_id = await shells.detach("sleep 0.5; cat | wc -c", stdin=True)
    await shells.agent.write_input(call_id, bytes(5_000_000))
    await shells.agent.close_input(call_id)
    assert (await shells.ended(call_id)).text.endswith("out 5000000")


async def test_a_writer_to_a_program_that_ends(shells: Shells) -> None:
    call_id = await shells.detach("sleep 0.3; exit 3", stdin=True)
    with pytest.raises(StateError) as caught:
        await shells.agent.write_input(call_id, bytes(50_000_000))
    assert caught.value.reason == "CALL_HAS_NO_INPUT"
    assert (await shells.ended(call_id)).exit_code == 3


async def test_no_input_was_asked_for(shells: Shells) -> None:
    call_id = await shells.start("echo up; sleep 1000", grace=0.1)
    await shells.until_output(call_id)
    with pytest.raises(StateError) as caught:
        await shells.agent.write_input(call_id, b"x")
    assert caught.value.reason == "CALL_HAS_NO_INPUT"
    done = await shells.run("true", stdin=True)
    with pytest.raises(StateError, match="takes no input"):
        await shells.agent.write_input(done.call_id, b"x")


async def test_a_terminal(shells: Shells) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size </dev/tty && echo $TERM"
    result = await shells.run(script, terminal=(30, 100))
    assert result.exit_code == 0
    data = await shells.output(result.call_id)
    assert data.startswith(b"30 100\r\n")


async def test_a_terminal_is_resized(shells: Shells) -> None:
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done"
    call_id = await shells.start(script, terminal=(24, 80), grace=0.2)
    await shells.until_output(call_id, b"up")
    await shells.agent.resize(call_id, 50, 132)
    await shells.until_output(call_id, b"50 132\r\n")
    await shells.cancel(call_id)
    await shells.gone(1.5)


async def test_keys_of_a_terminal(shells: Shells) -> None:
    call_id = await shells.detach("echo up; cat; echo after", terminal=(24, 80))
    await shells.until_output(call_id, b"up")
    await shells.agent.write_input(call_id, b"typed\n\x04")
    result = await shells.ended(call_id)
    assert result.exit_code == 0
    data = await shells.output(call_id)
    # Once as the terminal's echo, once from cat.
    assert data.count(b"typed\r\n") == 2
    assert data.endswith(b"after\r\n")
    call_id = await shells.detach("echo up; sleep 1000", terminal=(24, 80))
    await shells.until_output(call_id, b"up")
    await shells.agent.write_input(call_id, b"\x03")
    result = await shells.ended(call_id)
    assert result.signal == 2 or result.exit_code == 130
    await shells.gone(1.0)


async def test_what_a_terminal_loses_with_its_leader(shells: Shells) -> None:
    call_id = await shells.detach(
        "(trap '' HUP; echo in; sleep 1000) & sleep 0.3", terminal=(24, 80)
    )
    result = await asyncio.wait_for(shells.ended(call_id), 3.0)
    assert result.exit_code == 0
    assert b"in\r\n" in await shells.output(call_id)
