"""`pinfold run` as a program: bytes, exit codes, signals, pipes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from fake_shell import FakeShell

from pinfold import Client
from pinfold.cli.run import _Foreground
from pinfold.errors import UnavailableError
from pinfold.v1 import call_pb2, call_service_pb2

# More than a pipe holds.
FLOOD = "head -c 3000000 /dev/zero | tr '\\0' a; sleep 100"


@pytest.fixture
async def shell() -> AsyncIterator[FakeShell]:
    server = FakeShell()
    await server.start()
    yield server
    await server.close()


class Cli:
    """Starts `pinfold` with the fake as its supervisor."""

    def __init__(self, shell: FakeShell) -> None:
        self.shell = shell

    async def start(
        self,
        *arguments: str,
        stdin: int = asyncio.subprocess.DEVNULL,
        stdout: int | None = None,
        before: Callable[[], object] | None = None,
    ) -> asyncio.subprocess.Process:
        env = {k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pinfold",
            "--address",
            f"unix:{self.shell.socket}",
            *arguments,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE if stdout is None else stdout,
            stderr=asyncio.subprocess.PIPE,
            env={
                **env,
                # Absolute: one test has no directory that it could begin at.
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PINFOLD_TOKEN": "secret",
                "ODD": "a b\udcff",
            },
            preexec_fn=before,
        )

    async def run(
        self,
        *arguments: str,
        input: bytes | None = None,
        stdout: int | None = None,
        before: Callable[[], object] | None = None,
    ) -> tuple[int, bytes, bytes]:
        stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
        process = await self.start(*arguments, stdin=stdin, stdout=stdout, before=before)
        out, err = await asyncio.wait_for(process.communicate(input), 30)
        assert process.returncode is not None
        return process.returncode, out, err


@pytest.fixture
def cli(shell: FakeShell) -> Cli:
    return Cli(shell)


async def test_exit_code_and_streams(cli: Cli) -> None:
    code, out, err = await cli.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (code, out, err) == (7, b"out\n", b"err\n")


async def test_signal(cli: Cli) -> None:
    code, out, err = await cli.run("run", "--", "sh", "-c", "kill -9 $$")
    assert (code, out, err) == (137, b"", b"pinfold: ended by signal 9 (SIGKILL)\n")


async def test_all_bytes(cli: Cli) -> None:
    for _ in range(3):
        code, out, _ = await cli.run("run", "-c", "seq 1 100000")
        assert (code, len(out)) == (0, 588895)
    code, out, _ = await cli.run("run", "-c", r"printf '\377\000\n\303'")
    assert (code, out) == (0, b"\xff\0\n\xc3")


async def test_here_and_its_environment(cli: Cli) -> None:
    code, out, _ = await cli.run("run", "-e", "A=b=c", "-c", 'pwd; echo "$A"; echo "$ODD"')
    assert code == 0
    assert out == os.fsencode(f"{os.getcwd()}\nb=c\na b") + b"\xff\n"
    code, out, _ = await cli.run("run", "--cwd", "/", "-c", 'pwd; echo "<$PINFOLD_TOKEN>"')
    assert out == b"/\n<>\n"


async def test_options_of_the_command_are_its_own(cli: Cli) -> None:
    code, out, _ = await cli.run("run", "echo", "--json", "-c", "x")
    assert (code, out) == (0, b"--json -c x\n")


async def test_stdin_is_forwarded_from_a_pipe(cli: Cli) -> None:
    data = bytes(range(256)) * 4000
    code, out, _ = await cli.run("run", "cat", input=data)
    assert code == 0
    assert out == data
    # A program that does not read to the end.
    code, out, err = await cli.run("run", "-c", "head -c 5; exit 3", input=data)
    assert (code, out, err) == (3, data[:5], b"")


async def test_no_stdin_without_a_pipe(cli: Cli, shell: FakeShell) -> None:
    code, out, _ = await cli.run("run", "cat")
    assert (code, out) == (0, b"")
    assert shell.sent("RunShell")[0].stdin == 0


async def test_cannot_be_started(cli: Cli) -> None:
    code, _, err = await cli.run("run", "/nonexistent/program")
    assert code == 127
    assert b"No such file" in err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_interrupt_cancels_and_shows_what_was_ended(
    cli: Cli, shell: FakeShell, number: int, code: int
) -> None:
    process = await cli.start("run", "-c", "echo started; sleep 100")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == code
    assert b"cancelled" in err
    assert b"ended 1 process" in err
    assert b"nothing is left" in err
    assert shell.sent("CancelCall")[0].reason == signal.Signals(number).name


async def test_a_reader_that_goes_ends_the_command(cli: Cli, shell: FakeShell) -> None:
    read, write = os.pipe()
    process = await cli.start("run", "-c", FLOOD, stdout=write)
    os.close(write)
    assert await asyncio.to_thread(os.read, read, 2) == b"aa"
    os.close(read)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, err) == (141, b"")
    assert shell.sent("CancelCall")[0].reason == "output closed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_a_signal_that_was_ignored_stays_so(cli: Cli, shell: FakeShell, number: int) -> None:
    """As under nohup, and in the background of a shell script."""
    process = await cli.start(
        "run",
        "-c",
        "echo started; sleep 0.7; echo ended",
        before=lambda: signal.signal(number, signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, out, err) == (0, b"ended\n", b"")
    assert not shell.sent("CancelCall")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
async def test_output_that_cannot_be_written_ends_the_command(
    cli: Cli, shell: FakeShell, arguments: tuple[str, ...]
) -> None:
    with open("/dev/full", "wb") as full:
        code, _, err = await cli.run("run", *arguments, "-c", FLOOD, stdout=full.fileno())
    assert code == 125
    assert err == (
        b"pinfold: the output cannot be written: No space left on device; the call is cancelled\n"
    )
    assert b"cannot be written" in shell.sent("CancelCall")[0].reason.encode()


async def test_closed_stdout(cli: Cli, shell: FakeShell) -> None:
    code, out, err = await cli.run("run", "-c", FLOOD, before=lambda: os.close(1))
    assert (code, out) == (125, b"")
    assert b"Bad file descriptor; the call is cancelled" in err
    assert err.count(b"\n") == 1
    assert len(shell.sent("CancelCall")) == 1
    # A command that says nothing misses nothing.
    code, _, err = await cli.run("run", "-c", "exit 3", before=lambda: os.close(1))
    assert (code, err) == (3, b"")


async def test_the_id_is_not_lost_with_stdout(cli: Cli, shell: FakeShell) -> None:
    with open("/dev/full", "wb") as full:
        code, _, err = await cli.run("run", "--background", "-c", "exit 0", stdout=full.fileno())
    assert code == 125
    assert err.startswith(f"pinfold: {shell.sent('RunShell')[0].call_id} runs, but ".encode())


async def test_lists_that_cannot_be_written(cli: Cli, shell: FakeShell) -> None:
    shell.on("ListCalls", lists_one)
    with open("/dev/full", "wb") as full:
        code, _, err = await cli.run("ps", stdout=full.fileno())
    assert (code, err) == (1, b"pinfold: the output cannot be written: No space left on device\n")
    code, _, err = await cli.run("ps", before=lambda: os.close(1))
    assert (code, err) == (1, b"pinfold: the output cannot be written: Bad file descriptor\n")


async def lists_one(request: Any, context: Any) -> Any:
    call = call_pb2.Call(call_id="c", agent_id="cli", state=call_pb2.CALL_STATE_RUNNING)
    return call_service_pb2.ListCallsResponse(calls=[call])


async def test_interrupt_while_the_reader_stalls(cli: Cli) -> None:
    read, write = os.pipe()
    process = await cli.start("run", "-c", FLOOD, stdout=write)
    os.close(write)
    await asyncio.to_thread(os.read, read, 2)
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.3)
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.wait(), 10)
    assert process.returncode == 130
    os.close(read)


async def test_background_prints_the_id(cli: Cli, shell: FakeShell) -> None:
    code, out, _ = await cli.run("run", "--background", "-c", "exit 0")
    request = shell.sent("RunShell")[0]
    assert request.background
    assert (code, out.decode()) == (0, f"{request.call_id}\n")


async def test_json(cli: Cli) -> None:
    code, out, _ = await cli.run("run", "--json", "-c", r"echo a; printf '\377'; exit 3")
    assert code == 3
    *chunks, result = [json.loads(line) for line in out.splitlines()]
    assert {chunk["type"] for chunk in chunks} == {"output"}
    assert result["type"] == "result"
    assert result["state"] == "succeeded"
    assert result["process"] == {"exit_code": 3}


async def test_nothing_to_run(cli: Cli) -> None:
    code, _, err = await cli.run("run")
    assert code == 2
    assert b"give either a command" in err


async def test_a_mistyped_option_is_not_a_program(cli: Cli, shell: FakeShell) -> None:
    code, _, err = await cli.run("run", "--backgroun", "sleep", "1")
    assert code == 2
    assert b"--backgroun" in err
    assert not shell.sent("RunShell")
    code, _, err = await cli.run("run", "--", "--backgroun")
    assert code == 127
    assert shell.sent("RunShell")[0].argv.args == [b"--backgroun"]


HUGE = "9999999999999999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--timeout", "nan", "true"),
        ("run", "--timeout", "inf", "true"),
        ("run", "--timeout", "1e30", "true"),
        ("run", "--grace", "nan", "true"),
        ("wait", "--timeout", "nan", "c"),
        ("cancel", "--grace", "inf", "c"),
        ("stop", "--grace", "nan"),
        ("token", "create", "--valid-for", "inf"),
        ("token", "create", "--valid-for", "nan"),
        ("events", "--since", HUGE),
        ("output", "--offset", HUGE, "c"),
        ("output", "--limit", HUGE, "c"),
        ("serve", "--log-level", "x"),
        ("serve", "--detach", "--log-level", "x"),
    ],
)
async def test_values_out_of_range(cli: Cli, shell: FakeShell, arguments: tuple[str, ...]) -> None:
    code, out, err = await cli.run(*arguments)
    assert (code, out) == (2, b"")
    assert err.splitlines()[-1].startswith(b"Error: Invalid value for")
    assert not shell.requests


async def test_in_a_directory_that_was_removed(cli: Cli, shell: FakeShell, tmp_path: Path) -> None:
    def leave_none() -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()

    code, _, err = await cli.run("run", "pwd", before=leave_none)
    assert code == 125
    assert err.startswith(b"pinfold: cannot run in the current directory: No such file")
    assert err.count(b"\n") == 1
    code, out, _ = await cli.run("run", "--cwd", "/", "pwd", before=leave_none)
    assert (code, out) == (0, b"/\n")


async def test_a_supervisor_that_goes_away(shell: FakeShell) -> None:
    async with Client.connect(f"unix:{shell.socket}", token="", patience=0.3) as client:
        foreground = _Foreground(client.agent("a"), as_json=False)
        running = asyncio.create_task(
            foreground.run("sleep 100", {}, interactive=False, with_tty=False)
        )
        while not shell.sent("ReadOutput"):
            await asyncio.sleep(0.01)
        await shell.stop()
        with pytest.raises(UnavailableError) as raised:
            await asyncio.wait_for(running, 10)
    call_id = shell.sent("RunShell")[0].call_id
    assert f"{call_id} runs on with its keeper" in str(raised.value)
    assert f"`pinfold serve --detach`, then `pinfold wait --agent a {call_id}`" in str(raised.value)


async def test_no_supervisor(cli: Cli, shell: FakeShell) -> None:
    await shell.stop()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pinfold",
        "ps",
        "--state",
        "/tmp/pf-nothing-here",
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"pinfold: no supervisor runs on /tmp/pf-nothing-here")
    assert err.count(b"\n") == 1
