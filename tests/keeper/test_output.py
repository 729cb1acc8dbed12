"""Volume and bytes: everything is drained, what is kept is bounded, counts are exact (K8, K9)."""

from __future__ import annotations

import os
import time

import pytest

from keeper.harness import Harness, eventually
from pinfoldd.keeper.messages import Empty, Grew, Hello, Stop
from pinfoldd.keeper.spool import GAP

pytestmark = pytest.mark.timeout(60)


def memory(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_sequence_is_complete_every_time(keeper: Harness) -> None:
    for _ in range(50):
        exited = keeper.run("seq 1 100000")
        assert (exited.size, exited.lines, exited.dropped) == (588_895, 100_000, 0)
    assert keeper.output(exited.group).endswith(b"\n100000\n")


def test_flood_with_a_tail(keeper: Harness) -> None:
    exited = keeper.run("head -c 10000000 /dev/zero | tr '\\0' a; echo; echo tail")
    assert exited.size == 10_000_006
    assert keeper.output(exited.group)[-6:] == b"\ntail\n"


def test_middle_of_a_flood_is_dropped_and_counted(keeper: Harness) -> None:
    exited = keeper.run("seq 1 1000000; echo FATAL >&2; exit 1", output_limit=100_000)
    assert (exited.size, exited.lines) == (6_888_902, 1_000_001)
    assert exited.dropped == 6_888_902 - 100_000
    chunks = keeper.chunks(exited.group, exited.size)
    assert [c.missing for c in chunks if c.stream == GAP] == [exited.dropped]
    assert keeper.output(exited.group).startswith(b"1\n2\n3\n")
    assert keeper.output(exited.group).endswith(b"FATAL\n")
    assert len(keeper.output(exited.group)) == 100_000


def test_endless_writer_is_bounded(own: Harness) -> None:
    group = own.spawn("yes", output_limit=4 << 20)
    own.link.wait(Grew, group)
    before = memory(own.process.pid)
    grown = own.link.wait(Grew, group)
    while grown.size < 300 << 20:
        report = own.link.next()
        grown = report if isinstance(report, Grew) else grown
    assert memory(own.process.pid) - before < 16 << 20
    own.stop(group, 0)
    on_disk = sum(
        os.stat(os.path.join(own.state, "spool", f"{group}.{end}")).st_blocks * 512
        for end in ("out", "idx")
    )
    assert on_disk < 8 << 20


def test_reader_that_stops_reading(own: Harness) -> None:
    """The child runs on and the keeper's memory stays flat, whatever the daemon does."""
    groups = [own.spawn("yes", output_limit=1 << 20) for _ in range(4)]
    own.link.wait(Grew, groups[0])
    before = memory(own.process.pid)
    path = os.path.join(own.state, "spool", f"{groups[0]}.out")
    size = os.stat(path).st_size
    time.sleep(0.5)
    eventually(lambda: os.stat(path).st_size > size + (20 << 20))
    assert memory(own.process.pid) - before < 16 << 20
    for group in groups:
        own.stop(group, 0)


def test_two_hundred_writers_share(own: Harness) -> None:
    """Nobody starves beside floods, and a stop is carried out among them."""
    groups = [own.spawn("yes", output_limit=1 << 16) for _ in range(200)]
    quiet = own.spawn("echo here; sleep 100")
    own.prints(quiet, b"here\n", 20)
    began = time.monotonic()
    own.stop(quiet, 0)
    assert time.monotonic() - began < 5
    for group in groups:
        own.link.wait(Grew, group)
    own.link.send(*[Stop(group, grace=0) for group in groups])
    for group in groups:
        own.link.wait(Empty, group, seconds=30)


def test_bytes_are_unchanged(keeper: Harness) -> None:
    script = (
        rb"printf '\xf0\x28\x8c\x28'; printf 'a\0b'; printf '\342\224'; sleep 0.05; printf '\200\n'"
    )
    exited = keeper.run(script)
    assert keeper.output(exited.group) == b"\xf0\x28\x8c\x28a\0b\xe2\x94\x80\n"
    assert exited.lines == 1


def test_writers_of_stdout_by_name(keeper: Harness) -> None:
    exited = keeper.run("echo one; echo two >/dev/stdout; echo three")
    assert keeper.output(exited.group) == b"one\ntwo\nthree\n"


def test_streams_are_told_apart(keeper: Harness) -> None:
    exited = keeper.run("echo out; sleep 0.03; echo err >&2; sleep 0.03; echo out2")
    assert [(c.stream, c.data) for c in keeper.chunks(exited.group)] == [
        (1, b"out\n"),
        (2, b"err\n"),
        (1, b"out2\n"),
    ]
    times = [c.at for c in keeper.chunks(exited.group)]
    assert times == sorted(times)
    assert times[2] - times[0] > 0.05


def test_silence_makes_no_file(keeper: Harness) -> None:
    exited = keeper.run("true")
    keeper.link.wait(Empty, exited.group)
    names = os.listdir(os.path.join(keeper.state, "spool"))
    assert not [n for n in names if n.startswith(f"{exited.group}.")]
    assert keeper.chunks(exited.group) == []


def test_growth_is_told_and_coalesced(keeper: Harness) -> None:
    group = keeper.spawn("for i in $(seq 2000); do echo $i; done; sleep 0.1")
    keeper.link.wait(Empty, group)
    grown = keeper.link.of(group, Grew)
    assert 1 <= len(grown) < 500
    assert [g.size for g in grown] == sorted({g.size for g in grown})


def test_partial_output_survives_a_stop(keeper: Harness, mark: str) -> None:
    group = keeper.spawn(f"echo partial; sleep {mark}")
    keeper.prints(group, b"partial")
    keeper.stop(group, 0)
    assert keeper.output(group) == b"partial\n"


def test_full_disk_stops_nobody(state: str, make: object) -> None:
    """The files can't grow over a limit set from outside: the same as a full disk."""
    import resource

    keeper: Harness = make()  # type: ignore[operator]
    limit = 64 << 10
    resource.prlimit(keeper.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    exited = keeper.run("seq 1 100000; exit 3")
    assert (exited.code, exited.size, exited.lines) == (3, 588_895, 100_000)
    assert exited.dropped == 588_895 - limit
    chunks = keeper.chunks(exited.group, exited.size)
    assert len(keeper.output(exited.group)) == limit
    assert sum(c.missing for c in chunks) == exited.dropped
    assert keeper.run("echo ok").dropped == 0


def test_sizes_after_reconnect(keeper: Harness) -> None:
    group = keeper.spawn("echo hello; sleep 100")
    keeper.prints(group, b"hello")
    hello: Hello = keeper.reconnect()
    (report,) = [g for g in hello.groups if g.group == group]
    assert (report.size, report.lines, report.dropped) == (6, 1, 0)
    keeper.stop(group, 0)
