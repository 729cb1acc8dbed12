"""Exit, end of the streams and emptiness are three facts (K1, K7, K10)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from keeper.harness import Harness, alive, eventually
from pinfoldd.keeper.messages import Closed, Empty, Exited, Grew, Paused, Started, Stop

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [
        ("true", 0, None),
        ("exit 3", 3, None),
        ("exit 256", 0, None),
        ("exit 300", 44, None),
        ("kill -9 $$", None, 9),
        ("kill -SEGV $$", None, 11),
        ("kill -TERM $$", None, 15),
        ("bash -c 'kill -9 $$'; exit $?", 137, None),
        ("exec nothing-of-this-name", 127, None),
        ("nothing-of-this-name; exit 5", 5, None),
    ],
)
def test_status_is_the_leaders_own(
    keeper: Harness, script: str, code: int | None, signal: int | None
) -> None:
    exited = keeper.run(script)
    assert (exited.code, exited.signal) == (code, signal)
    assert not exited.stopping
    empty = keeper.link.wait(Empty, exited.group)
    assert empty.receipt is None


def test_the_facts_come_once_and_in_order(keeper: Harness) -> None:
    group = keeper.spawn("echo hi; exit 2")
    keeper.link.wait(Empty, group)
    keeper.link.drain()
    kinds = [type(r) for r in keeper.link.seen if getattr(r, "group", None) == group]
    kinds = [kind for kind in kinds if kind is not Grew]
    assert kinds == [Started, Exited, Empty]
    (exited,) = keeper.link.of(group, Exited)
    assert exited.end == keeper.link.of(group, Empty)[0]  # in one message


def test_background_child_that_holds_the_pipe_delays_nothing(keeper: Harness, mark: str) -> None:
    began = time.monotonic()
    exited = keeper.run(f"(sleep {mark} &) ; echo done")
    assert time.monotonic() - began < 5.0
    assert exited.mono - began < 2.0  # the holder sleeps for many minutes
    assert (exited.code, exited.leftover) == (0, 1)
    assert keeper.output(exited.group) == b"done\n"
    assert len(alive(mark)) == 1
    assert not keeper.link.of(exited.group, Empty)
    empty = keeper.stop(exited.group)
    assert empty.receipt is not None
    assert empty.receipt.ended == 1
    assert not alive(mark)


def test_only_stderr_held(keeper: Harness, mark: str) -> None:
    exited = keeper.run(f"sleep {mark} </dev/null >/dev/null &")
    assert exited.leftover == 1
    keeper.stop(exited.group, 0)


def test_output_through_a_filter_is_in_the_exit(keeper: Harness) -> None:
    for _ in range(20):
        exited = keeper.run("exec > >(tee f.log) 2>&1; echo ok")
        assert keeper.output(exited.group) == b"ok\n"
        assert exited.size == 3
        empty = keeper.link.wait(Empty, exited.group)
        assert empty.mono - exited.mono < 1


def test_nested_shell_returns_at_once(keeper: Harness, mark: str) -> None:
    exited = keeper.run(f'bash -c "sleep {mark} &"')
    assert exited.leftover == 1
    keeper.stop(exited.group, 0)
    assert not alive(mark)


def test_wait_is_waited_for(keeper: Harness) -> None:
    began = time.monotonic()
    exited = keeper.run("sleep 0.3 & wait; echo done")
    assert exited.mono - began >= 0.3
    assert exited.leftover == 0


def test_late_output_still_lands(keeper: Harness) -> None:
    exited = keeper.run("(sleep 0.2; echo late) & echo early")
    assert keeper.output(exited.group) == b"early\n"
    closed = keeper.link.wait(Closed, exited.group)
    keeper.link.wait(Empty, exited.group)
    assert keeper.output(exited.group) == b"early\nlate\n"
    assert (closed.size, closed.lines) == (11, 2)


def test_writer_in_the_background_does_not_hold_the_exit(keeper: Harness, mark: str) -> None:
    script = f"(while :; do echo x; sleep 0.01; : {mark}; done) & sleep 0.1; echo fg"
    began = time.monotonic()
    exited = keeper.run(script)
    assert exited.mono - began < 1
    assert exited.leftover >= 1
    assert b"fg\n" in b"".join(c.data for c in keeper.chunks(exited.group, exited.size))
    keeper.stop(exited.group, 0)


def test_greedy_writer_in_the_background_does_not_hold_the_exit(keeper: Harness) -> None:
    exited = keeper.run("yes & sleep 0.05; echo fg >&2", output_limit=1 << 20)
    assert exited.leftover == 1
    keeper.stop(exited.group, 0)


def test_closed_long_before_the_exit(keeper: Harness) -> None:
    group = keeper.spawn("echo a; exec >&- 2>&-; sleep 0.4; exit 5")
    closed = keeper.link.wait(Closed, group)
    assert not keeper.link.of(group, Exited)
    exited = keeper.link.wait(Exited, group)
    assert exited.code == 5
    assert exited.at - closed.at >= 0.3
    keeper.link.drain()
    assert len(keeper.link.of(group, Closed)) == 1


def test_stopped_and_continued(keeper: Harness) -> None:
    group = keeper.spawn("kill -STOP $$; sleep 0.1; exit 6")
    paused = keeper.link.wait(Paused, group)
    assert paused.paused
    os.kill(keeper.link.wait(Started, group).pid, 18)
    assert keeper.link.wait(Exited, group).code == 6
    assert [p.paused for p in keeper.link.of(group, Paused)] == [True, False]


def test_stopped_and_cancelled(keeper: Harness) -> None:
    group = keeper.spawn("kill -STOP $$; exit 6")
    keeper.link.wait(Paused, group)
    keeper.stop(group, 5)
    exited = keeper.link.wait(Exited, group)
    assert exited.stopping
    assert exited.signal == 15


def test_statuses_under_adoption(keeper: Harness) -> None:
    """A hundred at once, each with orphans that the keeper reaps meanwhile."""
    groups = [keeper.spawn("for i in 1 2 3; do (sleep 0.0$i &) ; done; exit 7") for _ in range(100)]
    for group in groups:
        keeper.link.wait(Empty, group)
    assert [keeper.link.wait(Exited, group).code for group in groups] == [7] * 100


def _zombies(parent: int) -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            count += fields[0] == b"Z" and int(fields[1]) == parent
    return count


def test_no_zombies(keeper: Harness, mark: str) -> None:
    group = keeper.started(f"(sleep 0.05 & exec sleep {mark})")
    many = keeper.run("for i in $(seq 200); do (sleep 0.1 &); done")
    keeper.link.wait(Empty, many.group)
    eventually(lambda: not _zombies(keeper.process.pid))
    keeper.stop(group, 0)
    eventually(lambda: not _zombies(keeper.process.pid))


def test_times_and_usage(keeper: Harness) -> None:
    before = time.time(), time.monotonic()
    group = keeper.spawn("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
    exited = keeper.link.wait(Exited, group)
    started = keeper.link.wait(Started, group)
    assert before[0] <= started.at <= exited.at <= time.time()
    assert before[1] <= started.mono <= exited.mono <= time.monotonic()
    assert 0 < exited.user_seconds + exited.system_seconds < 30


def test_identity(keeper: Harness) -> None:
    group = keeper.spawn("cat /proc/$$/stat; sleep 0.1")
    started = keeper.link.wait(Started, group)
    keeper.link.wait(Empty, group)
    fields = keeper.output(group).rpartition(b")")[2].split()
    assert int(fields[19]) == started.start_time
    assert int(fields[2]) == int(fields[3]) == started.pid  # its own group and session
    keeper.link.send(Stop(group))
    keeper.link.drain()
    assert len(keeper.link.of(group, Empty)) == 2  # asked again, told again
