"""Keepers and daemons that die: facts stay, groups end, strangers live (K15, restart table)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from keeper.harness import ENV, Harness, Link, alive, eventually
from pinfoldd.keeper.client import KeeperError, find_keeper, start_keeper
from pinfoldd.keeper.messages import (
    Acknowledge,
    Discard,
    Empty,
    Exited,
    GroupReport,
    Shutdown,
    Spawn,
    SpawnFailed,
)

pytestmark = pytest.mark.timeout(60)


def reports(harness: Harness) -> dict[int, GroupReport]:
    return {report.group: report for report in harness.link.hello.groups}


def test_daemon_goes_and_comes_back(own: Harness, mark: str) -> None:
    running = own.started(f"echo begun; sleep {mark}")
    ending = own.started("sleep 0.3; echo late; exit 7")
    failing = own.spawn("true", cwd="/nonexistent")
    own.link.wait(SpawnFailed, failing)
    done = own.run("echo x; exit 3").group
    own.link.wait(Empty, done)
    own.link.send(Acknowledge([done]))
    own.link.close()
    time.sleep(0.6)
    own.reconnect()
    found = reports(own)
    assert set(found) == {running, ending, failing}
    assert found[running].started
    assert not found[running].exited
    assert found[running].size == 6
    report = found[ending]
    assert report.exited
    assert report.exited.code == 7
    assert report.exited.size == 5
    assert report.closed
    assert report.exited.end
    assert not report.lost
    failed = found[failing].failed
    assert failed is not None
    assert failed.reason.endswith("/nonexistent")
    own.link.send(Acknowledge([ending]), Acknowledge([failing]))
    assert set(reports(own)) >= {running}
    own.reconnect()
    assert set(reports(own)) == {running}
    own.stop(running, 0)
    assert not alive(mark)


def test_a_new_daemon_replaces_the_old(own: Harness) -> None:
    first = own.link
    second = Link(own.state)
    assert first.sock.recv(1) == b""
    own.link = second
    assert own.run("exit 5").code == 5


def test_repeated_orders_are_carried_out_once(own: Harness) -> None:
    order = Spawn(group=10**6, body=b"echo x >> f; exit 2", env=dict(ENV), cwd=own.state)
    own.link.send(order, order)
    own.link.wait(Empty, order.group)
    own.link.send(order, Acknowledge([order.group]), order)
    own.run("true")
    with open(os.path.join(own.state, "f")) as file:
        assert file.read() == "x\n"
    assert len(own.link.of(order.group, Exited)) == 1


@pytest.mark.parametrize(
    "script",
    [
        "sleep MARK",
        "trap '' TERM; sleep MARK; sleep MARK",
        "setsid sleep MARK & env -i setsid sh -c '(sleep MARK &) ; sleep MARK' & wait",
        "trap '' PIPE TERM; while :; do echo x; sleep MARK; done",
    ],
)
def test_killed_keeper(own: Harness, mark: str, script: str) -> None:
    """Its groups are found and ended by the next one, and reported lost, once."""
    group = own.started(f"echo out; {script.replace('MARK', mark)}")
    own.prints(group, b"out")
    eventually(lambda: alive(mark))
    time.sleep(0.1)
    stranger = subprocess.Popen(["sleep", mark], start_new_session=True)
    own.process.kill()
    own.restart()
    assert alive(mark) == [stranger.pid]
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    report = reports(own)[group]
    assert report.lost is not None
    assert report.exited is None
    output = own.output(group)
    assert output.startswith(b"out\n")
    assert (report.lost.size, report.lost.lines) == (len(output), output.count(b"\n"))
    receipt = report.lost.receipt
    assert receipt.ended >= 1
    assert receipt.proof
    assert not receipt.survivors
    own.reconnect()
    assert reports(own)[group].lost == report.lost  # until it is acknowledged
    own.link.send(Acknowledge([group]))
    own.run("true")
    own.reconnect()
    assert group not in reports(own)
    own.process.kill()
    own.restart()
    assert group not in reports(own)


def test_exit_before_the_kill_is_reported_as_it_was(own: Harness, mark: str) -> None:
    done = own.run("echo done; exit 6").group
    own.link.wait(Empty, done)
    left = own.run(f"(sleep {mark} &); exit 8").group
    own.process.kill()
    own.restart()
    assert not alive(mark)
    found = reports(own)
    exited = found[done].exited
    assert exited
    assert exited.code == 6
    assert exited.size == 5
    assert exited.end
    assert not found[done].lost
    exited = found[left].exited
    assert exited
    assert exited.code == 8
    assert exited.leftover == 1
    assert not found[left].lost
    empty = found[left].empty
    assert empty is not None
    assert empty.receipt is not None
    assert empty.receipt.ended == 1


def test_journal_with_a_torn_line(own: Harness) -> None:
    done = own.run("exit 6").group
    own.link.wait(Empty, done)
    own.process.kill()
    own.process.wait()
    with open(os.path.join(own.state, "keeper.journal"), "ab") as file:
        file.write(b'["begin",{"group":99')
    own.restart()
    exited = reports(own)[done].exited
    assert exited
    assert exited.code == 6
    again = own.run("exit 4").group
    own.link.wait(Empty, again)
    own.process.kill()
    own.restart()
    assert set(reports(own)) == {done, again}


def test_recorded_pid_that_is_someone_elses_now(own: Harness, mark: str) -> None:
    """A stored identity is more than a pid."""
    group = own.started("sleep 0.1")
    own.link.wait(Exited, group)
    own.process.kill()
    own.process.wait()
    stranger = subprocess.Popen(["sleep", mark], start_new_session=True)
    path = os.path.join(own.state, "keeper.journal")
    boot = own.link.hello.boot_id
    with open(path, "a") as file:
        file.write(f'["begin",{{"group":555,"boot":"{boot}","digest":""}}]\n')
        file.write(
            f'["Started",{{"group":555,"pid":{stranger.pid},"start_time":1,"at":0,"mono":0}}]\n'
        )
        file.write('["begin",{"group":556,"boot":"another","digest":""}]\n')
        file.write(
            f'["Started",{{"group":556,"pid":{stranger.pid},"start_time":1,"at":0,"mono":0}}]\n'
        )
    own.restart()
    assert stranger.poll() is None
    for number in (555, 556):
        lost = reports(own)[number].lost
        assert lost
        assert lost.receipt.ended == 0
    stranger.kill()
    stranger.wait()


def test_journal_is_compacted(own: Harness) -> None:
    """Also while a group is there that keeps it from being empty."""
    running = own.started("sleep 100")
    done = own.run("exit 6").group
    own.link.wait(Empty, done)
    own.process.kill()
    own.process.wait()
    path = os.path.join(own.state, "keeper.journal")
    with open(path, "ab") as file:
        file.write(b'["noise",{"group":1}]\n' * 300_000)
    own.restart()
    assert os.stat(path).st_size < 4000
    again = own.run("exit 3").group
    own.process.kill()
    own.restart()
    assert set(reports(own)) == {running, done, again}
    assert reports(own)[running].lost
    exited = reports(own)[done].exited
    assert exited is not None
    assert exited.code == 6


def test_second_keeper_is_refused(own: Harness) -> None:
    assert find_keeper(own.state) == own.process.pid
    with pytest.raises(KeeperError, match=f"another keeper .{own.process.pid}. is running"):
        start_keeper(own.state)
    assert own.run("exit 3").code == 3


def test_no_keeper_is_found(state: str) -> None:
    assert find_keeper(state) is None
    assert find_keeper(state + "/none") is None


def test_unusable_state_directory(state: str) -> None:
    os.makedirs(state + "/s")
    with open(state + "/s/spool", "w"):
        pass
    with pytest.raises(KeeperError, match="can't use the state directory"):
        start_keeper(state + "/s")


def test_very_long_path(make: Callable[..., Harness], state: str) -> None:
    long = os.path.join(state, "x" * 200, "y" * 100)
    harness = Harness(long)
    try:
        assert harness.run("exit 3").code == 3
        assert os.stat(os.path.join(long, "keeper.sock")).st_mode & 0o777 == 0o600
        assert os.stat(long).st_mode & 0o777 == 0o700
    finally:
        harness.close()


def test_linger(make: Callable[..., Harness], mark: str) -> None:
    keeper = make(linger=0.3)
    group = keeper.started(f"sleep {mark}")
    time.sleep(0.5)
    assert keeper.process.poll() is None  # a daemon is connected
    keeper.link.close()
    assert keeper.process.wait(10) == 0
    assert not alive(mark)
    keeper.settings = {}
    keeper.restart()
    exited = reports(keeper)[group].exited
    assert exited
    assert exited.signal == 15
    assert exited.stopping


def test_shutdown_reports_then_exits(own: Harness, mark: str) -> None:
    groups = [own.started(f"setsid sleep {mark} & sleep {mark}") for _ in range(5)]
    own.link.send(Shutdown(1.0))
    for group in groups:
        own.link.wait(Empty, group)
    late = own.spawn("true")
    assert own.process.poll() is None
    own.link.send(*[Acknowledge([group]) for group in groups])
    assert own.process.wait(5) == 0
    assert not alive(mark)
    # What came too late is for the next keeper, which has never heard of it.
    own.restart()
    assert late not in reports(own)


def test_terminated_keeper_ends_its_groups(own: Harness, mark: str) -> None:
    own.started(f"(trap '' TERM; setsid sleep {mark}) & sleep {mark}")
    eventually(lambda: alive(mark))
    own.link.close()
    own.process.send_signal(signal.SIGTERM)
    assert own.process.wait(15) == 0
    assert not alive(mark)


def test_nonsense_on_the_link_ends_the_connection_only(own: Harness, mark: str) -> None:
    group = own.started(f"sleep {mark}")
    own.link.sock.sendall(b"\0\0\0\5\0\0\0\0hello")
    assert own.link.sock.recv(1) == b""
    own.reconnect()
    assert group in reports(own)
    own.stop(group, 0)


def test_discard(own: Harness) -> None:
    group = own.run("echo x").group
    own.link.wait(Empty, group)
    own.link.send(Discard([group, 12345]))
    own.run("true")
    assert own.output(group) == b"x\n"  # not acknowledged yet
    own.link.send(Acknowledge([group]), Discard([group]))
    own.run("true")
    assert own.output(group) == b""


@pytest.mark.parametrize(
    "prefix",
    ["nohup", "trap '' CHLD;", "trap '' INT QUIT TERM PIPE HUP;", "ulimit -Sn 64;", "umask 0777;"],
)
def test_started_in_any_condition(state: str, prefix: str, mark: str) -> None:
    """Dispositions, limits, umask and descriptors of the starter don't reach the children."""
    command = f"{sys.executable} -m pinfoldd.keeper --state {state}/s"
    shell = subprocess.Popen(
        ["bash", "-c", f"exec 7</etc/passwd; {prefix} {command} & echo $!; wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    try:
        eventually(lambda: os.path.exists(f"{state}/s/keeper.sock"))
        link = Link(f"{state}/s")
        script = b"cat /proc/self/status; umask; ulimit -Sn; ls /proc/self/fd; exit 9"
        link.send(Spawn(group=1, body=script, env=dict(ENV), cwd="/"))
        assert link.wait(Exited, 1).code == 9
        with open(f"{state}/s/spool/1.out", "rb") as file:
            output = file.read()
        lines = [x.split() for x in output.decode().splitlines() if x.startswith("Sig")]
        masks = {name: int(value, 16) for name, value in lines if name != "SigQ:"}
        assert masks["SigBlk:"] == 0
        assert masks["SigIgn:"] & ~(3 << 31) == 0
        assert output.split()[-6:] == [b"0022", b"1024", b"0", b"1", b"2", b"3"]
        link.send(Spawn(group=2, body=f"sleep {mark}".encode(), env=dict(ENV), cwd="/"))
        link.close()
    finally:
        os.kill(pid, signal.SIGTERM)
        shell.wait(15)
        shell.stdout.close()
    assert not alive(mark)
