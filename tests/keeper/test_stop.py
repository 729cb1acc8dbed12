"""Ending groups: all of a group, nothing but the group, and a true receipt (K2 to K5)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.harness import ENV, Harness, alive, eventually
from pinfoldd.keeper.messages import (
    Empty,
    Exited,
    Input,
    Started,
    Stop,
    Survived,
)

pytestmark = pytest.mark.timeout(60)

TREES = {
    "plain": "sleep MARK",
    "timeout": "timeout 1000 sleep MARK; true",
    "job control": "set -m; (sleep MARK; true) & (sleep MARK; true) & wait",
    "setsid": "setsid sleep MARK & echo hi; sleep MARK",
    "env -i setsid": "env -i setsid sh -c '(sleep MARK &) ; sleep MARK' & wait",
    "double fork": "(env -i setsid sh -c '(setsid sleep MARK &) &'); sleep MARK",
    "deaf child": "(trap '' TERM; sleep MARK) & trap 'exit 0' TERM; wait",
    "deaf leader": "trap '' TERM; sleep MARK; sleep MARK",
    "deaf escapee": "(trap '' TERM; setsid sleep MARK &); trap '' TERM;"
    " while :; do sleep MARK; done",
    "spawner": "while :; do (sleep MARK &); done",
    "escaped spawner": "setsid bash -c 'while :; do (sleep MARK &); done' & sleep MARK",
    "slow trap": "trap 'sleep 0.2; exit 0' TERM; while :; do sleep 0.05; done # MARK",
    "stopped": "sleep MARK & kill -STOP $! ; kill -STOP $$; sleep MARK",
    "stopped escapee": "setsid sh -c 'kill -STOP $$; sleep MARK' & sleep MARK",
    "without marks": "ulimit -m 100; env -i setsid sleep MARK & sleep MARK",
    "closed streams": "exec >&- 2>&- <&-; sleep MARK",
    "ten": "(sleep MARK & sleep MARK & sleep MARK & wait) & (sleep MARK & sleep MARK & wait) &"
    " setsid sleep MARK & setsid sleep MARK & wait",
}


@pytest.mark.parametrize("name", TREES)
def test_nothing_is_left(keeper: Harness, mark: str, name: str) -> None:
    group = keeper.started(TREES[name].replace("MARK", mark))
    time.sleep(0.1)
    began = time.monotonic()
    empty = keeper.stop(group, 0.5)
    assert not alive(mark)
    assert time.monotonic() - began < 1.5
    receipt = empty.receipt
    assert receipt is not None
    assert receipt.proof == "subreaper"
    assert receipt.ended >= 1
    assert not receipt.survivors
    assert receipt.signals[0].signal == signal.SIGTERM
    exited = keeper.link.wait(Exited, group)
    assert exited.stopping


@pytest.mark.parametrize("name", TREES)
def test_nothing_is_left_without_grace(keeper: Harness, mark: str, name: str) -> None:
    group = keeper.started(TREES[name].replace("MARK", mark))
    time.sleep(0.02)
    empty = keeper.stop(group, 0)
    assert not alive(mark)
    assert empty.receipt is not None
    assert {line.signal for line in empty.receipt.signals} <= {signal.SIGKILL}


def test_receipt_of_a_tree(keeper: Harness, mark: str) -> None:
    group = keeper.started(TREES["ten"].replace("MARK", mark))
    eventually(lambda: len([p for p in alive(mark) if is_sleep(p)]) == 7)
    receipt = keeper.stop(group).receipt
    assert receipt is not None
    assert (receipt.ended, receipt.escaped, receipt.ended_by) == (10, 2, "term")
    assert [(line.signal, line.pids, line.step) for line in receipt.signals] == [
        (15, 10, "term"),
        (18, 10, "term"),
    ]
    assert 0 < receipt.seconds < 2


def is_sleep(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read() == "sleep\n"
    except OSError:
        return False


def test_receipt_of_the_deaf(keeper: Harness, mark: str) -> None:
    group = keeper.started(TREES["deaf child"].replace("MARK", mark))
    eventually(lambda: alive(mark))
    receipt = keeper.stop(group, 0.2).receipt
    assert receipt is not None
    assert receipt.ended_by == "kill"
    assert receipt.signals[-1].signal == signal.SIGKILL
    assert 0.2 <= receipt.seconds < 1.2


def test_who_was_seen_below_the_leader_stays_known(
    keeper: Harness, mark: str, tmp_path: Path
) -> None:
    """Its mark, environment and session are gone by the time its parent is: what is left is
    that it was there when the stop began."""
    go, leave = tmp_path / "go", tmp_path / "leave"
    child = f"until [ -e {go} ]; do sleep 0.02; done; exec setsid sleep {mark}"
    group = keeper.spawn(
        f"trap '' TERM; (ulimit -m 100; exec env -i sh -c '{child}') & "
        f"echo r; until [ -e {leave} ]; do sleep 0.02; done"
    )
    keeper.prints(group, b"r")
    eventually(lambda: alive(mark))
    keeper.link.send(Stop(group, 1.0))
    time.sleep(0.1)
    go.touch()
    eventually(lambda: [pid for pid in alive(mark) if is_sleep(pid)])
    leave.touch()
    empty = keeper.link.wait(Empty, group)
    assert not alive(mark)
    assert empty.receipt is not None
    assert empty.receipt.escaped >= 1


def test_handler_runs_and_its_code_counts(keeper: Harness) -> None:
    group = keeper.spawn("trap 'sleep 0.2; exit 0' TERM; echo r; while :; do sleep 0.05; done")
    keeper.prints(group, b"r")
    keeper.stop(group, 5)
    exited = keeper.link.wait(Exited, group)
    assert (exited.code, exited.signal, exited.stopping) == (0, None, True)


def test_another_signal(keeper: Harness, mark: str) -> None:
    group = keeper.spawn(f"trap 'exit 9' INT; echo r; while :; do sleep 0.02; done; : {mark}")
    keeper.prints(group, b"r")
    keeper.link.send(Stop(group, 5.0, int(signal.SIGINT)))
    assert keeper.link.wait(Exited, group).code == 9


def test_second_stop_joins(keeper: Harness, mark: str) -> None:
    group = keeper.started(f"trap '' TERM; sleep {mark}; sleep {mark}")
    eventually(lambda: len(alive(mark)) >= 1)
    keeper.link.send(Stop(group, 0.4), Stop(group, 30.0), Stop(group, 0.4))
    empty = keeper.link.wait(Empty, group)
    assert empty.receipt is not None
    assert 0.3 < empty.receipt.seconds < 1.4
    keeper.link.drain()
    assert len(keeper.link.of(group, Empty)) == 1


def test_shorter_grace_shortens(keeper: Harness, mark: str) -> None:
    group = keeper.started(f"trap '' TERM; echo r; sleep {mark}; sleep {mark}")
    keeper.prints(group, b"r")
    keeper.link.send(Stop(group, 60.0))
    began = time.monotonic()
    keeper.stop(group, 0)
    assert time.monotonic() - began < 1
    assert not alive(mark)


def test_leftovers_are_ended_after_the_exit(keeper: Harness, mark: str) -> None:
    exited = keeper.run(f"(trap '' TERM; sleep {mark}) & exit 0")
    assert (exited.code, exited.leftover, exited.stopping) == (0, 2 if _forks() else 1, False)
    keeper.stop(exited.group, 0.2)
    assert not alive(mark)


def _forks() -> bool:
    """Whether this bash runs the last command of a subshell with a trap by fork."""
    script = "(trap '' TERM; cat /proc/self/stat)"
    out = subprocess.run(["bash", "-c", script + "& echo $!; wait"], capture_output=True).stdout
    first, _, second = out.partition(b"\n")
    return first.split()[0] != second.split()[0]


def test_it_ends_by_itself_with_its_last_leftover(keeper: Harness) -> None:
    exited = keeper.run("(sleep 0.2; (sleep 0.2 &) ) & exit 0")
    assert exited.leftover >= 1
    empty = keeper.link.wait(Empty, exited.group)
    assert empty.receipt is None
    assert empty.mono - exited.mono > 0.35


def test_stranger_and_sibling_are_not_touched(keeper: Harness, mark: str) -> None:
    sibling = keeper.started(f"setsid sleep {mark} & sleep {mark}")
    stranger = subprocess.Popen(["sleep", mark])
    victim = keeper.started(f"setsid sleep {mark}1 & sleep {mark}1")
    eventually(lambda: len(alive(mark)) >= 5)
    keeper.stop(victim)
    assert len(alive(mark)) == 3
    assert stranger.poll() is None
    assert not keeper.link.of(sibling, Exited)
    stranger.kill()
    stranger.wait()
    keeper.stop(sibling)
    assert not alive(mark)


def test_stop_of_the_unknown_is_ignored(keeper: Harness) -> None:
    keeper.link.send(Stop(1 << 40))
    assert keeper.run("exit 4").code == 4


def test_start_and_stop_at_any_moment(keeper: Harness, mark: str) -> None:
    """500 times with 0 to 5 ms in between: one exit, one end, nothing left."""
    chance = random.Random(5)
    groups = []
    for _ in range(500):
        group = keeper.spawn(f"(setsid sleep {mark} &); sleep {mark}; true")
        time.sleep(chance.random() * 0.005)
        keeper.link.send(Stop(group, chance.choice([0.0, 0.05, 0.3])))
        groups.append(group)
    for group in groups:
        keeper.link.wait(Empty, group)
    assert not alive(mark)
    keeper.link.drain()
    for kind in (Started, Exited, Empty):
        seen = [r.group for r in keeper.link.seen if isinstance(r, kind)]
        assert sorted(seen) == groups, kind


def test_stop_right_behind_the_spawn(keeper: Harness, mark: str) -> None:
    group = keeper.spawn(f"setsid sleep {mark} & sleep {mark}")
    keeper.stop(group, 0.3)
    assert not alive(mark)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_another_users_child_is_ended_by_root(keeper: Harness, mark: str) -> None:
    script = f"setpriv --reuid=65534 --clear-groups env -i setsid sleep {mark} & sleep {mark}"
    group = keeper.started(script)
    eventually(lambda: len(alive(mark)) >= 2)
    keeper.stop(group, 0.5)
    assert not alive(mark)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_what_may_not_be_signalled_survives_with_a_reason(
    make: Callable[..., Harness], tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root without CAP_KILL may not signal others' processes, as any other user may not."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-kill {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    keeper = make()
    script = f"setpriv --reuid=65534 --clear-groups setsid sleep {mark} & sleep {mark}"
    group = keeper.started(script)
    eventually(lambda: len([pid for pid in alive(mark) if is_sleep(pid)]) == 2)
    keeper.link.send(Stop(group, 0.1))
    survived = keeper.link.wait(Survived, group)
    (pid,) = alive(mark)
    try:
        receipt = survived.receipt
        assert [(s.pid, s.name, s.reason) for s in receipt.survivors] == [
            (pid, "sleep", "operation not permitted")
        ]
        assert receipt.proof == ""
        assert receipt.ended >= 1
        assert keeper.link.wait(Exited, group).stopping
        assert not keeper.link.of(group, Empty)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert keeper.link.wait(Empty, group).receipt is not None


def test_environment_is_given(keeper: Harness) -> None:
    group = keeper.spawn("echo $PINFOLD_GROUP", env=dict(ENV, PINFOLD_GROUP="77"))
    keeper.link.wait(Empty, group)
    assert keeper.output(group) == b"%d\n" % group


def test_signal_that_was_lost_is_sent_again(keeper: Harness, mark: str) -> None:
    """As in a shell's child between fork and exec: it takes the signal, then it is another."""
    script = f"trap : TERM; echo r; read x; trap - TERM; exec sleep {mark}"
    group = keeper.spawn(script, stdin="pipe")
    keeper.prints(group, b"r")
    keeper.link.send(Stop(group, 30.0))
    time.sleep(0.02)
    keeper.link.send(Input(group, 1, True, b"go\n"))
    empty = keeper.link.wait(Empty, group)
    assert empty.receipt is not None
    assert empty.receipt.ended_by == "term"
    assert empty.receipt.seconds < 5
