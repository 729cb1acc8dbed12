"""Python workers, forked from the warm zygote: leaders like any other."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keeper.harness import ENV, Harness, alive, descriptors, eventually
from pinfoldd.keeper.messages import Empty, Exited, Input, SpawnFailed, Started, Stop, TerminalSize

pytestmark = pytest.mark.timeout(60)

MODULE = """
import os, subprocess, sys, time, threading
loaded_in = os.getpid()

def hello():
    print("hello", os.environ["A"], os.getcwd(), sys.argv)
    print("err", file=sys.stderr)
    assert os.getpid() != loaded_in
    return 7

def nothing(): pass
def bad(): raise ValueError("broken on purpose")
def leaves(): sys.exit("a reason")
def echo(): print(sys.stdin.read().upper(), end="")
def sleeps(): time.sleep(1000)
def pid(): print(os.getpid(), os.getpgrp(), os.getsid(0), os.getppid(), time.time())
def status(): print(open("/proc/self/status").read(), os.listdir("/proc/self/fd"))
def writes_to_nobody():
    read, write = os.pipe()
    os.close(read)
    try: os.write(write, b"x")
    except BrokenPipeError: print("an exception")
def kills(): os.kill(os.getpid(), 9)
def family():
    subprocess.Popen(["setsid", "sleep", os.environ["MARK"]])
    two = "sleep %s & sleep %s" % ((os.environ["MARK"],) * 2)
    subprocess.Popen(["env", "-i", "setsid", "sh", "-c", two])
    subprocess.Popen(["sleep", os.environ["MARK"]]).wait()
class Deep:
    @staticmethod
    def inside(): return 3
"""


@pytest.fixture
def warm(make: Callable[..., Harness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    (tmp_path / "pf_sample.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    return make(preload=["pf_sample", "none_such"])


def worker(keeper: Harness, name: str, **fields: Any) -> int:
    return keeper.spawn(fields.pop("body", b""), zygote=f"pf_sample:{name}", **fields)


def test_result_streams_and_environment(warm: Harness, tmp_path: Path) -> None:
    group = worker(warm, "hello", env=dict(ENV, A="x\udcff"), cwd=str(tmp_path))
    exited = warm.link.wait(Exited, group)
    assert exited.code == 7, warm.output(group)
    expected = f"hello x\udcff {tmp_path} ['pf_sample:hello']\n"
    assert warm.output(group, 1) == expected.encode("utf-8", "surrogateescape")
    assert warm.output(group, 2) == b"err\n"
    warm.link.wait(Empty, group)


@pytest.mark.parametrize(
    ("name", "code", "number", "text"),
    [
        ("nothing", 0, None, b""),
        ("bad", 1, None, b"ValueError: broken on purpose"),
        ("leaves", 1, None, b"a reason"),
        ("absent", 1, None, b"AttributeError"),
        ("Deep.inside", 3, None, b""),
        ("kills", None, 9, b""),
    ],
)
def test_ends(warm: Harness, name: str, code: int | None, number: int | None, text: bytes) -> None:
    exited = warm.link.wait(Exited, worker(warm, name))
    assert (exited.code, exited.signal) == (code, number)
    assert text in warm.output(exited.group, 2)


def test_input(warm: Harness) -> None:
    group = worker(warm, "echo", body=b"given ")
    warm.link.wait(Exited, group)
    assert warm.output(group) == b"GIVEN "
    group = worker(warm, "echo", stdin="pipe")
    warm.link.send(Input(group, 1, True, b"later"))
    warm.link.wait(Exited, group)


def test_it_is_the_keepers_child_in_its_own_session(warm: Harness) -> None:
    group = worker(warm, "pid")
    exited = warm.link.wait(Exited, group)
    started = warm.link.wait(Started, group)
    pid, pgid, sid, ppid, _ = warm.output(group).split()
    assert int(pid) == int(pgid) == int(sid) == started.pid
    assert int(ppid) == warm.process.pid
    assert exited.code == 0
    group = worker(warm, "status")
    warm.link.wait(Exited, group)
    text = warm.output(group).decode()
    masks = {
        line.split()[0]: int(line.split()[1], 16)
        for line in text.splitlines()
        if line.startswith(("SigBlk", "SigIgn"))
    }
    assert masks["SigBlk:"] == 0
    as_python = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert masks["SigIgn:"] & ~(3 << 31) == as_python
    assert text.rstrip().endswith("['0', '1', '2', '3']")


def test_a_broken_pipe_is_an_exception(warm: Harness) -> None:
    group = worker(warm, "writes_to_nobody")
    assert warm.link.wait(Exited, group).code == 0
    assert warm.output(group) == b"an exception\n"


def test_warm_is_fast(warm: Harness) -> None:
    warm.link.wait(Exited, worker(warm, "nothing"))
    began = time.monotonic()
    for _ in range(10):
        warm.link.wait(Exited, worker(warm, "nothing"))
    assert time.monotonic() - began < 2


def test_whole_family_is_ended(warm: Harness, mark: str) -> None:
    group = worker(warm, "family", env=dict(ENV, MARK=mark))
    eventually(lambda: len(alive(mark)) >= 4)
    receipt = warm.stop(group, 1.0).receipt
    assert not alive(mark)
    assert receipt is not None
    assert receipt.ended >= 4


def test_many_at_once(warm: Harness) -> None:
    before = 0
    for _ in range(2):
        groups = [worker(warm, "hello", env=dict(ENV, A="1")) for _ in range(30)]
        for group in groups:
            assert warm.link.wait(Exited, group).code == 7
            warm.link.wait(Empty, group)
        if not before:
            before = len(descriptors(warm.process.pid))
    eventually(lambda: len(descriptors(warm.process.pid)) <= before)


def test_stop_while_it_starts(warm: Harness) -> None:
    """The zygote isn't even there yet: the worker is tracked, or never was."""
    groups = [worker(warm, "sleeps") for _ in range(5)]
    warm.link.send(*[Stop(group, 0.5) for group in groups])
    for group in groups:
        warm.link.wait(Empty, group)
        assert warm.link.wait(Exited, group).stopping


def zygotes(keeper: Harness) -> list[int]:
    found = alive("pinfoldd.keeper.zygote")
    return [pid for pid in found if _parent(pid) == keeper.process.pid]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def test_a_zygote_that_dies_is_replaced(warm: Harness) -> None:
    warm.link.wait(Exited, worker(warm, "nothing"))
    running = worker(warm, "sleeps")
    warm.link.wait(Started, running)
    (pid,) = [pid for pid in zygotes(warm) if pid != warm.link.wait(Started, running).pid]
    os.kill(pid, signal.SIGKILL)
    assert warm.link.wait(Exited, worker(warm, "Deep.inside")).code == 3
    assert not warm.link.of(running, Exited)
    warm.stop(running)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"zygote": "no function"}, "not a module:function: 'no function'"),
        ({"zygote": "a:b", "cwd": "/nonexistent"}, "working directory does not exist"),
        ({"zygote": "a:b", "terminal": TerminalSize()}, "a worker of the zygote can't have a"),
    ],
)
def test_refused(warm: Harness, fields: dict[str, Any], reason: str) -> None:
    group = warm.spawn(b"", **fields)
    assert warm.link.wait(SpawnFailed, group).reason.startswith(reason)


def test_a_zygote_that_cannot_start(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pf_dies.py").write_text("import os; os._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    keeper = make(preload=["pf_dies"])
    group = keeper.spawn(b"", zygote="os:getpid")
    assert keeper.link.wait(SpawnFailed, group).reason == "the zygote does not start"
    assert keeper.run("exit 3").code == 3


def test_killed_keeper_takes_its_workers_along(warm: Harness, mark: str) -> None:
    group = worker(warm, "family", env=dict(ENV, MARK=mark))
    eventually(lambda: len(alive(mark)) >= 4)
    zygote = zygotes(warm)
    warm.process.kill()
    warm.restart()
    assert not alive(mark)
    (report,) = [r for r in warm.link.hello.groups if r.group == group]
    assert report.lost is not None
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in zygote[:1]))


@pytest.mark.parametrize("free", range(9))
def test_a_worker_after_one_that_found_no_descriptors(warm: Harness, free: int) -> None:
    warm.link.wait(Exited, worker(warm, "nothing"))
    warm.link.drain(0.05)
    pid = warm.process.pid
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    limit = next(n for n in range(1 << 16) if n - sum(fd < n for fd in used) == free)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        group = worker(warm, "nothing")
        while not (warm.link.of(group, SpawnFailed) or warm.link.of(group, Exited)):
            warm.link.next()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert warm.link.wait(Exited, worker(warm, "nothing")).code == 0
