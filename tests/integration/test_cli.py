"""The command line on a real supervisor and real processes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support import Supervisor, eventually, processes_with


def start(supervisor: Supervisor, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
    """`pinfold ARGUMENTS`, left running."""
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-m", "pinfold", *arguments],
        env=supervisor.cli_env(),
        cwd=supervisor.directory,
        **{**given, **options},  # type: ignore[arg-type]
    )


def test_run_is_as_the_command_itself(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    done = supervisor.cli("run", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert done.stderr == b"pinfold: ended by signal 9 (SIGKILL)\n"
    done = supervisor.cli("run", "-e", "A=1", "-c", "pwd; echo $A", cwd="/usr")
    assert (done.returncode, done.stdout) == (0, b"/usr\n1\n")


def test_every_byte_every_time(supervisor: Supervisor) -> None:
    for _ in range(10):
        done = supervisor.cli("run", "-c", "seq 1 100000")
        assert (done.returncode, len(done.stdout)) == (0, 588895)
    done = supervisor.cli("run", "-c", r"printf '\360\050\214\050a\000b\377'")
    assert done.stdout == b"\xf0\x28\x8c\x28a\x00b\xff"


def test_input(supervisor: Supervisor) -> None:
    data = os.urandom(3_000_000)
    done = supervisor.cli("run", "cat", input=data)
    assert done.returncode == 0
    assert done.stdout == data
    done = supervisor.cli("run", "-c", "read x; echo rc=$?")
    assert done.stdout == b"rc=1\n"


def test_longer_than_the_foreground_budget(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "-c", "echo a; sleep 2.6; echo b; exit 4")
    assert (done.returncode, done.stdout, done.stderr) == (4, b"a\nb\n", b"")
    listed = supervisor.cli("ps", "-a", "--json")
    calls = [json.loads(line) for line in listed.stdout.splitlines()]
    assert "background" not in calls[-1]


def test_trouble_of_its_own(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "/nonexistent/program")
    assert done.returncode == 127
    assert b"/nonexistent/program" in done.stderr
    done = supervisor.cli("run", "--cwd", "/nonexistent", "true")
    assert done.returncode in (125, 126, 127)
    assert b"/nonexistent" in done.stderr
    assert b"Traceback" not in done.stderr
    done = supervisor.cli("run", "-c", "")
    assert done.returncode == 125
    assert done.stderr.count(b"\n") == 1
    for command in (["output", "nothing"], ["wait", "nothing"], ["cancel", "nothing"]):
        done = supervisor.cli(*command)
        assert done.returncode == 1
        assert done.stderr.startswith(b"pinfold: ")
        assert done.stderr.count(b"\n") == 1


def test_timeout(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "--timeout", "0.5", "-c", "echo partial; sleep 1000")
    assert (done.returncode, done.stdout) == (124, b"partial\n")
    assert b"pinfold: timed out after" in done.stderr
    supervisor.assert_no_survivors()


TREE = "setsid sleep 1000 & (trap '' TERM; sleep 1000) & echo started; wait"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_everything_and_says_so(supervisor: Supervisor, number: int) -> None:
    running = start(supervisor, "run", "--grace", "0.5", "-c", TREE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"started\n"
    running.send_signal(number)
    _, err = running.communicate(timeout=15)
    assert running.returncode == 128 + number
    text = err.decode()
    assert "cancelled" in text
    assert re.search(r"ended \d+ processes, \d+ of them outside of its process group", text)
    assert "nothing is left" in text
    supervisor.assert_no_survivors(0.5)


def test_a_reader_that_goes_ends_the_command(supervisor: Supervisor) -> None:
    pipe = start(supervisor, "run", "-c", "yes; sleep 1000")
    assert pipe.stdout is not None
    assert pipe.stdout.read(2) == b"y\n"
    pipe.stdout.close()
    assert pipe.wait(timeout=15) == 141
    supervisor.assert_no_survivors()


def test_leftovers_are_counted_or_ended(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "-c", "(sleep 1000 &) ; echo done")
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert b"1 process left running" in done.stderr
    assert len(supervisor.survivors()) == 1
    done = supervisor.cli("agents", "--stop", "cli")
    assert done.returncode == 0
    supervisor.assert_no_survivors(0.5)


def test_kill_leftovers(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "--kill-leftovers", "-c", "(sleep 1000 &) ; echo done")
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert done.stderr == b"pinfold: 1 process outlived the command and was ended\n"
    supervisor.assert_no_survivors()


def test_background_wait_output_and_ps(supervisor: Supervisor) -> None:
    script = "echo a; echo b >&2; sleep 0.5; exit 3"
    call = supervisor.cli("run", "--background", "-c", script).stdout.decode().strip()
    listed = supervisor.cli("ps").stdout.decode()
    assert call in listed
    assert "running" in listed
    waited = supervisor.cli("wait", call)
    assert waited.returncode == 3
    assert b"out a" in waited.stdout
    assert b"err b" in waited.stdout
    again = supervisor.cli("wait", call)
    assert again.returncode == 1
    assert b"already consumed" in again.stderr
    shown = supervisor.cli("output", call)
    assert (shown.stdout, shown.stderr) == (b"a\n", b"b\n")
    assert supervisor.cli("output", "--stream", "err", "--offset", "2", call).stderr == b"b\n"
    assert supervisor.cli("ps").stdout == b""
    assert call in supervisor.cli("ps", "-a").stdout.decode()


def abandoned(supervisor: Supervisor, script: str) -> str:
    """The id of a foreground call whose client was killed."""
    client = start(supervisor, "run", "-c", f"echo started; {script}")
    assert client.stdout is not None
    assert client.stdout.readline() == b"started\n"
    client.kill()
    client.communicate()
    calls = supervisor.cli("ps", "-a", "--json").stdout.splitlines()
    return str(json.loads(calls[-1])["call_id"])


def test_wait_has_the_result_that_nobody_got(supervisor: Supervisor) -> None:
    call = abandoned(supervisor, "sleep 0.3; exit 6")
    eventually(lambda: not supervisor.survivors())
    waited = supervisor.cli("wait", call)
    assert waited.returncode == 6, waited.stderr
    assert b"out started" in waited.stdout
    assert supervisor.cli("wait", call).returncode == 1
    # It ends while it is waited for.
    call = abandoned(supervisor, "sleep 1.5; exit 7")
    assert supervisor.cli("wait", "--timeout", "0", call).returncode == 124
    assert supervisor.cli("wait", call).returncode == 7


def test_wait_for_several_of_which_one_had_a_client(supervisor: Supervisor) -> None:
    ended = abandoned(supervisor, "exit 6")
    other = supervisor.cli("run", "--background", "-c", "sleep 1; exit 3").stdout.decode().strip()
    first = supervisor.cli("wait", "--any", "--json", other, ended)
    assert first.returncode == 6
    assert [result["call_id"] for result in json.loads(first.stdout)["results"]] == [ended]
    both = supervisor.cli("wait", "--json", other, ended)
    assert both.returncode == 3
    assert [result["call_id"] for result in json.loads(both.stdout)["results"]] == [other, ended]


def test_wait_runs_out_of_time(supervisor: Supervisor) -> None:
    call = supervisor.cli("run", "--background", "-c", "sleep 1000").stdout.decode().strip()
    assert supervisor.cli("wait", "--timeout", "0.2", call).returncode == 124
    assert supervisor.cli("wait", "--timeout", "0.2").returncode == 124


def test_cancel_shows_the_receipt(supervisor: Supervisor) -> None:
    call = supervisor.cli("run", "--background", "-c", TREE).stdout.decode().strip()
    eventually(lambda: len(supervisor.survivors()) >= 3)
    done = supervisor.cli("cancel", "--grace", "0.3", "--reason", "enough", call)
    assert done.returncode == 0
    assert f"{call}: cancelled: enough" in done.stdout.decode()
    assert "nothing is left" in done.stdout.decode()
    supervisor.assert_no_survivors(0.5)
    again = supervisor.cli("cancel", call)
    assert again.returncode == 1
    assert b"already canceled" in again.stderr


def test_follow_output_until_the_end(supervisor: Supervisor) -> None:
    script = "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done"
    call = supervisor.cli("run", "--background", "-c", script).stdout.decode().strip()
    assert supervisor.cli("output", "-f", call).stdout == b"1\n2\n3\n4\n5\n"


def test_json(supervisor: Supervisor) -> None:
    done = supervisor.cli("run", "--json", "-c", "echo a; exit 3")
    assert done.returncode == 3
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["type"] == "output"
    assert lines[0]["text"] == "a\n"
    assert lines[-1]["type"] == "result"
    assert lines[-1]["process"]["exit_code"] == 3
    for command in ("info", "agents", "tasks", "ps", "events"):
        done = supervisor.cli(command, "--json")
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            assert isinstance(json.loads(line), dict)


def test_events_and_watch(supervisor: Supervisor) -> None:
    # With nobody there would be nothing to begin with.
    supervisor.cli("run", "true")
    watching = start(supervisor, "watch", "--json", bufsize=0)
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert first["agents"][0]["agent_id"] == "cli"
    supervisor.cli("run", "-c", "exit 5")
    names = []
    while "tool.result" not in names:
        assert select.select([watching.stdout], [], [], 10)[0]
        names.append(json.loads(watching.stdout.readline()).get("name", ""))
    watching.send_signal(signal.SIGINT)
    assert watching.wait(timeout=5) == 130
    log = supervisor.cli("events").stdout.decode().splitlines()
    assert any("\tcall.started\t" in line for line in log)
    assert any("exit code 5" in line for line in log)
    revisions = [int(line.split("\t")[0]) for line in log]
    assert revisions == sorted(set(revisions))


def test_a_terminal_of_its_own(supervisor: Supervisor) -> None:
    ours, theirs = pty.openpty()
    running = start(
        supervisor,
        "run",
        "--tty",
        "-c",
        "test -t 0 && test -t 1 && echo tty; read line; echo got:$line; exit 6",
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while b"tty" not in seen:
        assert select.select([ours], [], [], 15)[0], seen
        seen += os.read(ours, 4096)
    os.write(ours, b"hello\r")
    assert running.wait(timeout=15) == 6
    while select.select([ours], [], [], 0.2)[0]:
        try:
            seen += os.read(ours, 4096)
        except OSError:
            break
    assert b"got:hello" in seen
    os.close(ours)


def test_the_terminal_follows_ours(supervisor: Supervisor) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, 100))
    running = start(
        supervisor,
        "run",
        "--tty",
        "-c",
        "stty size; trap 'stty size; exit 0' WINCH; while :; do sleep 0.05; done",
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    seen = b""
    while b"30 100" not in seen:
        assert select.select([ours], [], [], 15)[0], seen
        seen += os.read(ours, 4096)
    time.sleep(0.2)
    termios.tcsetwinsize(theirs, (40, 120))
    running.send_signal(signal.SIGWINCH)
    while b"40 120" not in seen:
        assert select.select([ours], [], [], 15)[0], seen
        seen += os.read(ours, 4096)
    assert running.wait(timeout=15) == 0
    os.close(theirs)
    os.close(ours)


def test_run_starts_one_supervisor(make_supervisor: Callable[..., Supervisor]) -> None:
    absent = make_supervisor()
    running = [start(absent, "run", "-c", f"echo {number}") for number in range(6)]
    outputs = [process.communicate(timeout=40) for process in running]
    assert [process.returncode for process in running] == [0] * 6, outputs
    assert [out for out, _ in outputs] == [f"{number}\n".encode() for number in range(6)]
    info = json.loads(absent.cli("info", "--json").stdout)
    assert info["state_directory"] == str(absent.state)
    assert absent.cli("stop").returncode == 0
    assert eventually(lambda: not absent.marked())
    done = absent.cli("ps")
    assert done.returncode == 1
    assert b"no supervisor runs on" in done.stderr
    assert absent.cli("stop").returncode == 0


def test_stop_ends_everything(supervisor: Supervisor) -> None:
    supervisor.cli("run", "--background", "-c", TREE)
    eventually(lambda: len(supervisor.survivors()) >= 3)
    done = supervisor.cli("stop", "--grace", "0.3")
    assert done.returncode == 0, done.stderr
    assert b"stopped; ended 1 call" in done.stdout
    assert supervisor.survivors() == []
    assert eventually(lambda: not supervisor.marked())


def test_restart_keeps_calls(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    assert supervisor.cli("serve", "--detach").returncode == 0
    try:
        script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.7; done; exit 9"
        call = supervisor.cli("run", "--background", "-c", script).stdout.decode().strip()
        following = start(supervisor, "output", "-f", call)
        assert following.stdout is not None
        assert following.stdout.readline() == b"1\n"
        before = json.loads(supervisor.cli("info", "--json").stdout)
        done = supervisor.cli("restart")
        assert done.returncode == 0, done.stderr
        assert done.stdout == b"restarted; 1 call before, 1 now\n"
        after = json.loads(supervisor.cli("info", "--json").stdout)
        assert after["pid"] != before["pid"]
        assert after["keeper_pid"] == before["keeper_pid"]
        out, err = following.communicate(timeout=20)
        assert (out, err) == (b"2\n3\n4\n5\n6\n7\n8\n", b"")
        assert supervisor.cli("wait", call).returncode == 9
    finally:
        assert supervisor.cli("stop").returncode == 0


def test_serve_refuses_a_second(supervisor: Supervisor) -> None:
    done = supervisor.cli("serve")
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr
    done = supervisor.cli("serve", "--detach")
    assert done.returncode == 1
    assert b"already" in done.stderr


def test_killed_daemon_is_started_again_by_run(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    call = supervisor.cli("run", "--background", "-c", "sleep 1; exit 8").stdout.decode().strip()
    supervisor.kill()
    # The stale socket is no trouble.
    assert supervisor.cli("run", "-c", "echo hi").stdout == b"hi\n"
    try:
        assert supervisor.cli("wait", call).returncode == 8
    finally:
        assert supervisor.cli("stop").returncode == 0


def test_a_long_state_path(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    supervisor.state = supervisor.directory / ("long" * 30) / "a b%"
    done = supervisor.cli("run", "-c", "echo hi")
    assert (done.returncode, done.stdout) == (0, b"hi\n"), done.stderr
    assert supervisor.cli("stop").returncode == 0


@pytest.mark.timeout(120)
def test_demo(tmp_path: Path) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pinfold.demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert b"0 processes in all" in done.stdout
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGPIPE, 141)]
)
def test_a_demo_that_is_interrupted_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "pinfold.demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if b"went to the background" in line:
            break
    assert eventually(lambda: len(processes_with("TMPDIR", str(tmp_path))) > 5)
    if number == signal.SIGPIPE:
        demo.stdout.close()
        demo.wait(timeout=40)
    else:
        demo.send_signal(number)
    _, err = demo.communicate(timeout=40)
    assert (demo.returncode, err) == (code, b"")
    assert processes_with("TMPDIR", str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


async def test_sync_and_async_side_by_side(supervisor: Supervisor) -> None:
    async with supervisor.client() as client:
        agent = await client.open_agent("a")
        running = asyncio.create_task(agent.run("sleep 0.3; echo hi"))
        with supervisor.sync_client() as sync:
            handle = sync.agent("a")
            await asyncio.to_thread(handle.run, "true")
            assert len(await asyncio.to_thread(handle.list)) == 2
        await running
