"""`pinfold run` as a program: bytes, exit codes, signals, pipes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest
from fake_shell import FakeShell

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
        self, *arguments: str, stdin: int = asyncio.subprocess.DEVNULL, stdout: int | None = None
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
            env={**env, "PINFOLD_TOKEN": "secret", "ODD": "a b\udcff"},
        )

    async def run(
        self,
        *arguments: str,
        input: bytes | None = None,
    ) -> tuple[int, bytes, bytes]:
        stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
        process = await self.start(*arguments, stdin=stdin)
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
