"""How a supervisor is started, and where: what it inherits must not reach the calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.harness import shells_of
from pinfold import Client, SyncClient
from pinfold.errors import UnauthenticatedError
from support import MARKER, Supervisor, processes_with

Make = Callable[..., Supervisor]


class Wrapped(Supervisor):
    """Started by a shell that has arranged things before."""

    def start_by(self, prefix: str, suffix: str = "") -> None:
        command = [sys.executable, "-m", "pinfoldd", "--state", str(self.state)]
        log = self.log.open("ab")
        self.process = subprocess.Popen(
            ["bash", "-c", f'{prefix} "$@" {suffix}', "bash", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=self.env,
            cwd=self.directory,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(b"pinfoldd ready"), self.log_text()

    def daemon(self) -> int:
        with self.sync_client() as client:
            return client.info().pid


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("exec nohup", ""),
        ("trap '' CHLD HUP INT QUIT TERM PIPE TTIN TTOU USR1; exec", ""),
        ("", "& wait"),  # a shell without job control ignores SIGINT for it
        ("umask 0; ulimit -Sn 256; exec 7</etc/passwd 8>/dev/null 9<&0; exec", ""),
    ],
)
async def test_what_it_inherits_does_not_reach_the_calls(prefix: str, suffix: str) -> None:
    supervisor = Wrapped()
    try:
        supervisor.start_by(prefix, suffix)
        async with supervisor.client() as client, shells_of(supervisor, client) as shells:
            assert (await shells.run("exit 7")).exit_code == 7
            assert (await shells.run("sleep 0.1 & wait; exit 8")).exit_code == 8
            for number in (1, 2, 10, 15):
                assert (await shells.run(f"kill -{number} $$; sleep 5")).signal == number
            trapped = await shells.run("trap 'echo got; exit 4' INT; kill -INT $$; sleep 5")
            assert (trapped.exit_code, "out got" in trapped.text) == (4, True)
            piped = await shells.run("yes | head -n 1; echo ${PIPESTATUS[0]}")
            assert piped.text.endswith("out y\nout 141")
            state = await shells.run("umask; ls /proc/self/fd; grep SigBlk /proc/self/status")
            assert state.text.endswith(
                "out 0022\nout 0\nout 1\nout 2\nout 3\nout SigBlk:\t0000000000000000"
            )
            stubborn = await shells.start("sleep 1000", grace=0.3)
            await shells.cancel(stubborn)
            assert (await shells.ended(stubborn)).signal == 15
        # Ctrl-C ends it, whatever it inherited.
        os.kill(supervisor.daemon(), signal.SIGINT)
        assert supervisor.process is not None
        await asyncio.to_thread(supervisor.process.wait, 10)
        assert not supervisor.marked()
    finally:
        if supervisor.process is not None and supervisor.process.stdout is not None:
            supervisor.process.stdout.close()
        supervisor.stop()


def test_two_on_one_state_directory(make_supervisor: Make) -> None:
    first = make_supervisor()
    first.start()
    second = subprocess.run(
        [sys.executable, "-m", "pinfoldd", "--state", str(first.state)],
        capture_output=True,
        text=True,
        env=first.env,
        timeout=20,
        check=False,
    )
    assert second.returncode == 3
    assert second.stdout == ""
    [line] = second.stderr.splitlines()
    assert line.startswith(f"pinfoldd: another supervisor (pid {first.pid}) has {first.state}; ")
    assert "pinfold stop" in line
    with first.sync_client() as client:
        assert client.info().pid == first.pid


def test_many_at_once_on_one_state_directory(make_supervisor: Make) -> None:
    owner = make_supervisor()
    starts = [
        subprocess.Popen(
            [sys.executable, "-m", "pinfoldd", "--state", str(owner.state)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=owner.env,
        )
        for _ in range(4)
    ]
    try:
        with owner.sync_client() as client:
            pid = client.info().pid
        codes = {start.pid: start.wait(20) for start in starts if start.pid != pid}
        assert len(codes) == 3
        assert set(codes.values()) == {3}
    finally:
        for start in starts:
            start.terminate()
            start.wait(20)
            assert start.stdout is not None
            start.stdout.close()


def test_a_stale_socket(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.state.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(supervisor.state / "pinfold.sock"))
    supervisor.start()
    with supervisor.sync_client() as client:
        assert client.open_agent().run("echo hi").text.endswith("out hi")


def test_files_in_the_place_of_the_socket_and_of_the_directory(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.state.mkdir(parents=True)
    (supervisor.state / "pinfold.sock").write_text("a file")
    supervisor.start()
    blocked = make_supervisor()
    blocked.directory.mkdir(exist_ok=True)
    blocked.state.write_text("a file")
    done = subprocess.run(
        [sys.executable, "-m", "pinfoldd", "--state", str(blocked.state)],
        capture_output=True,
        text=True,
        env=blocked.env,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"pinfoldd: cannot use {blocked.state}: ")


def test_a_directory_with_a_long_path(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.state = supervisor.directory / ("d" * 100) / ("e" * 100) / "state"
    supervisor.start()
    with supervisor.sync_client() as client:
        agent = client.open_agent("a")
        assert agent.run("echo hi; pwd").text.endswith(f"out hi\nout {supervisor.directory}")
        assert bytes(client.info().state_directory) == os.fsencode(supervisor.state)
    done = supervisor.cli("run", "-c", "echo by the command line; exit 3")
    assert (done.returncode, done.stdout) == (3, b"by the command line\n")
    supervisor.kill()
    supervisor.start()
    with supervisor.sync_client() as client:
        assert [call.call_id for call in client.list_calls()]


def test_the_state_is_private(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.state.mkdir(parents=True, mode=0o777)
    supervisor.state.chmod(0o777)
    supervisor.start()
    assert supervisor.state.stat().st_mode & 0o777 == 0o700
    for path in supervisor.state.rglob("*"):
        if not path.is_socket():
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("[shell]\nforeground_budget = -1\n", "shell.foreground_budget"),
        ("nonsense = 1\n", "nonsense"),
        ("not toml", "pinfold.toml"),
        ('address = "127.0.0.1:0"\n', "address: a TCP listener needs [tls]"),
        ("[tasks]\nwaitTimeoutMs = 100\nmaxWaitTimeoutMs = 50\n", "100"),
        ('default_role = "nope"\n', "default_role: none is nope (there are: scripted)"),
        ("require_token = true\n", "pinfold token create"),  # or all were locked out, for good
    ],
)
def test_settings_that_cannot_be_used(make_supervisor: Make, settings: str, says: str) -> None:
    supervisor = make_supervisor()
    supervisor.state.mkdir(parents=True)
    (supervisor.state / "pinfold.toml").write_text(settings)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pinfoldd",
            "--state",
            str(supervisor.state),
            "--log-level",
            "error",
        ],
        capture_output=True,
        text=True,
        env=supervisor.env,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert all(line.startswith("pinfoldd: ") for line in lines), lines
    assert says in lines[0]
    assert processes_with(MARKER, supervisor.marker) == []


async def test_a_signal_ends_it_and_all_calls() -> None:
    for signals in ([signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]):
        supervisor = Supervisor()
        supervisor.start()
        async with supervisor.client() as client:
            agent = await client.open_agent()
            for script in ("sleep 1000", "trap '' TERM; setsid sleep 1000 & sleep 1000"):
                await agent.run(script, background=True, grace=0.5)
        for number in signals:
            os.kill(supervisor.pid, number)
        assert supervisor.process is not None
        assert await asyncio.to_thread(supervisor.process.wait, 10) == 0
        assert supervisor.marked() == []
        assert not Path(supervisor.state / "pinfold.sock").exists()
        supervisor.stop()


async def test_sighup_is_not_for_it(make_supervisor: Make) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    os.kill(supervisor.pid, signal.SIGHUP)
    async with supervisor.client() as client:
        assert (await client.info()).pid == supervisor.pid


async def test_where_there_is_no_supervisor() -> None:
    with tempfile.TemporaryDirectory() as empty:
        client = Client.connect(f"unix:{empty}/pinfold.sock", token="", patience=0.0)
        with pytest.raises(Exception, match="^no supervisor at .*pinfold serve"):
            await client.info()
        await client.close()


async def test_a_signal_while_the_log_cannot_be_written(make_supervisor: Make) -> None:
    """Nobody is killed without a word in the log: it leaves, and the next one has the calls."""
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client:
        agent = await client.open_agent("a")
        await agent.run("echo up; sleep 2.5; echo on", background=True, call_id="X")
        with contextlib.closing(sqlite3.connect(supervisor.state / "log.db")) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody else can write
            refused = asyncio.ensure_future(agent.status("done", "not written"))
            while "cannot write the event log" not in supervisor.log_text():
                await asyncio.sleep(0.05)
            os.kill(supervisor.pid, signal.SIGTERM)
            assert supervisor.process is not None
            assert await asyncio.to_thread(supervisor.process.wait, 20) == 1
            other.rollback()
        supervisor.start()
        assert (await agent.wait_exact("X")).text.endswith("out up\nout on")
        assert await refused == "Status accepted: done — not written"


def test_a_token_is_asked_for_once_somebody_has_one() -> None:
    supervisor = Wrapped()
    try:
        supervisor.start_by("exec")
        with supervisor.sync_client() as client:
            token = client.create_token().token
        assert supervisor.process is not None
        supervisor.process.terminate()
        supervisor.process.wait(20)
        (supervisor.state / "pinfold.toml").write_text("require_token = true\n")
        supervisor.start_by("exec")
        with supervisor.sync_client() as client, pytest.raises(UnauthenticatedError):
            client.info()
        with SyncClient.connect(supervisor.address, token=token) as client:
            assert client.info().pid
    finally:
        supervisor.stop()
