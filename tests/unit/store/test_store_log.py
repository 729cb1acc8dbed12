from __future__ import annotations

import resource
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfoldd.core import events as e
from pinfoldd.core.values import Stamp
from pinfoldd.store import Log, Record, StoreError, decode_event, encode_event
from unit.event_samples import EVENTS


def batch(first: int, size: int, wire: bytes = b"wire", decision: int = 0) -> list[Record]:
    event = encode_event(e.CallStarted("root", "c", 7, 1.0, 2.0))
    return [
        Record(n, decision or first, wire, 1.5, 2.5, "root", "c", "call.started", event, None)
        for n in range(first, first + size)
    ]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log.open(tmp_path / "log.db")
    yield log
    log.close()


@given(st.lists(st.lists(EVENTS, min_size=1, max_size=4), max_size=6))
@settings(max_examples=60, deadline=None)
def test_replay_gives_back_what_was_appended(decisions: list[list[e.Event]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Log.open(Path(directory) / "log.db")
        written: list[tuple[Stamp, e.Event]] = []
        for events in decisions:
            first = log.last_revision() + 1
            stamps = [Stamp(first + n, first, n / 7, n / 3) for n in range(len(events))]
            written += zip(stamps, events)
            log.append(
                [
                    Record(
                        s.revision, first, b"w", s.mono, s.wall, "a", "", "n", encode_event(v), None
                    )
                    for s, v in zip(stamps, events)
                ]
            )
        log.close()
        log = Log.open(Path(directory) / "log.db")
        assert list(log.replay(0)) == written
        assert list(log.replay(len(written) // 2)) == written[len(written) // 2 :]
        assert log.last_revision() == len(written)
        log.close()


@given(EVENTS)
@settings(max_examples=300, deadline=None)
def test_every_event_survives_encoding(event: e.Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_the_union_of_events_is_complete() -> None:
    assert set(get_args(e.AnyEvent)) == set(e.Event.__subclasses__())


def test_bytes_that_are_no_event_are_a_value_error() -> None:
    for data in (b"", b"\xc1", b"[", b"{}", b"\x93\xa7Unknown\x01\x02", b"[\xff]"):
        with pytest.raises(ValueError):
            decode_event(data)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.integers(1, 8),
    st.integers(1, 60),
)
@settings(max_examples=60, deadline=None)
def test_reading_in_pieces_misses_nothing_and_splits_no_decision(
    sizes: list[int], limit: int, max_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Log.open(Path(directory) / "log.db")
        for size in sizes:
            log.append(batch(log.last_revision() + 1, size, b"x" * 10))
        start, seen = 1, []
        while rows := log.read(start, limit, max_bytes):
            decisions = {row.decision for row in rows}
            assert len(decisions) == 1 or (len(rows) <= limit and len(rows) * 10 <= max_bytes)
            for decision in decisions:
                size = sizes[[sum(sizes[:n]) + 1 for n in range(len(sizes))].index(decision)]
                assert sum(row.decision == decision for row in rows) == size
            seen += rows
            start = rows[-1].revision + 1
        assert [row.revision for row in seen] == list(range(1, sum(sizes) + 1))
        log.close()


LARGE = 3000
DECISIONS = [1, 3, 2500, 1, 1, 700, 2, *[1] * 3000, 40]  # some longer than what is joined


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("large", [(), (1,), (2, 1999, 2000), range(100, 6000, 7)])
def test_joined_wires_miss_nothing_and_split_no_decision(
    log: Log, joins: bool, large: Sequence[int]
) -> None:
    """Also with zero bytes, large ones, and a SQLite that can't join such bytes."""
    log._joins &= joins
    wires = {n: b"%d\0" % n for n in range(1, sum(DECISIONS) + 1)}
    for revision in large:
        wires[revision] = b"\0" * LARGE
    for size in DECISIONS:
        first = log.last_revision() + 1
        log.append([r._replace(wire=wires[r.revision]) for r in batch(first, size)])
    ends = {sum(DECISIONS[:n]) + 1 for n in range(len(DECISIONS) + 1)}
    start, seen, pieces = 1, b"", 0
    while start <= log.last_revision():
        end, piece = log.wires(start, 20_000)
        assert end in ends
        decisions = len(ends & set(range(start + 1, end + 1)))
        assert decisions == 1 or len(piece) <= (20_000 if large else 1 << 20)
        assert piece == b"".join(wires[n] for n in range(start, end))
        start, seen, pieces = end, seen + piece, pieces + 1
    assert seen == b"".join(wires.values())
    if not large and log._joins:
        assert pieces < 10


def test_wires_are_read_from_the_middle_of_a_decision(log: Log) -> None:
    log.append([r._replace(wire=b"%d," % r.revision) for r in batch(1, 9)])
    assert log.wires(7, 1000) == (10, b"7,8,9,")
    assert log.wires(9, 1) == (10, b"9,")


def test_a_row_has_what_a_watcher_needs(log: Log) -> None:
    log.append([batch(1, 1)[0], batch(2, 1, decision=1)[0]._replace(internal=b"internal")])
    (first, second) = log.read(1)
    assert first == (1, 1, b"wire", "root", "c", "call.started", None)
    assert (second.decision, second.wire, second.internal) == (1, b"wire", b"internal")
    assert log.read(2) == [second]
    assert log.read(3) == []


def test_a_reader_sees_commits_and_nothing_else(log: Log) -> None:
    log.append(batch(1, 1))
    log._writer.execute("BEGIN IMMEDIATE")
    log._cursor.executemany("INSERT INTO log VALUES (?,?,?,?,?,?,?,?,?,?)", batch(2, 1))
    assert len(log.read(1)) == 1
    log._writer.execute("ROLLBACK")


def test_revisions_must_follow_each_other(log: Log) -> None:
    log.append([])
    log.append(batch(1, 3))
    for first in (5, 3):
        with pytest.raises(ValueError, match="cannot follow"):
            log.append(batch(first, 2))
    assert log.last_revision() == 3
    log.append(batch(4, 1))


def test_a_batch_that_is_there_already_is_taken_as_done(log: Log) -> None:
    log.append(batch(1, 3))
    log.append(batch(1, 3))
    assert len(log.read(1)) == 3
    with pytest.raises(ValueError):
        log.append(batch(1, 3, b"something else"))


def test_a_full_disk_refuses_the_whole_batch_and_the_batch_may_be_repeated(log: Log) -> None:
    log.append(batch(1, 2))
    (pages,) = log._writer.execute("PRAGMA page_count").fetchone()
    (limit,) = log._writer.execute(f"PRAGMA max_page_count = {pages + 3}").fetchone()
    big = batch(3, 8, b"x" * 10_000)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"log\.db cannot be written: .*full"):
            log.append(big)
        assert log.last_revision() == 2
        assert len(log.read(1)) == 2
    log.append(batch(3, 1))
    assert log.last_revision() == 3
    log._writer.execute(f"PRAGMA max_page_count = {limit + 1000}")
    big = batch(4, 8, b"x" * 10_000)
    log.append(big)
    assert log.last_revision() == 11
    assert [row.wire for row in log.read(4)] == [b"x" * 10_000] * 8


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Writes beyond fail with EFBIG (Python ignores SIGXFSZ)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("durability", ["process", "full"])
def test_failing_writes_leave_the_log_as_it_was(tmp_path: Path, durability: str) -> None:
    log = Log.open(tmp_path / "log.db", durability)  # type: ignore[arg-type]
    log.append(batch(1, 2))
    more = batch(3, 40, b"x" * 1000)
    with files_no_larger_than((tmp_path / "log.db-wal").stat().st_size + 9000):
        for _ in range(3):
            with pytest.raises(StoreError):
                log.append(more)
            assert len(log.read(1)) == 2
    log.append(more)
    log.close()
    log = Log.open(tmp_path / "log.db")
    assert [row.revision for row in log.read(1)] == list(range(1, 43))
    log.close()


def test_a_commit_that_failed_after_it_reached_the_disk_may_be_repeated(log: Log) -> None:
    class Cursor:
        def __init__(self, real: sqlite3.Cursor) -> None:
            self.real = real
            self.executemany = real.executemany

        def execute(self, statement: str) -> None:
            self.real.execute(statement)
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")

    real, log._cursor = log._cursor, Cursor(log._cursor)  # type: ignore[assignment]
    with pytest.raises(StoreError, match="disk I/O error"):
        log.append(batch(1, 3))
    log._cursor = real
    log.append(batch(1, 3))
    log.append(batch(4, 1))
    assert [row.revision for row in log.read(1)] == [1, 2, 3, 4]


def test_a_record_that_cannot_be_bound_changes_nothing(log: Log) -> None:
    bad = [*batch(1, 1), batch(2, 1)[0]._replace(agent="\udcff")]
    with pytest.raises(UnicodeEncodeError):
        log.append(bad)
    assert log.read(1) == []
    log.append(batch(1, 2))


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("full", 2)])
def test_durability_decides_when_the_disk_is_synced(
    tmp_path: Path, durability: str, level: int
) -> None:
    log = Log.open(tmp_path / "log.db", durability)  # type: ignore[arg-type]
    assert log._writer.execute("PRAGMA synchronous").fetchone() == (level,)
    assert log._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    log.sync()
    log.append(batch(1, 1))
    log.sync()
    log.close()


def test_only_the_owner_can_read_the_files(log: Log) -> None:
    log.append(batch(1, 1))
    for file in log.path.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log.db")
    log._writer.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    log.close()
    with pytest.raises(StoreError, match=r"newer version \(schema 99"):
        Log.open(tmp_path / "log.db")


def test_a_schema_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log.db")
    log._writer.execute("UPDATE meta SET value = 1 WHERE key = 'schema'")
    log.close()
    with pytest.raises(StoreError, match="before the first release .*another state directory"):
        Log.open(tmp_path / "log.db")


def test_files_that_are_no_log_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_bytes(b"this is no database at all" * 100)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    for name, text in (("text.db", "not a database"), ("other.db", "not a log of pinfold")):
        with pytest.raises(StoreError, match=text):
            Log.open(tmp_path / name)
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        Log.open(tmp_path / "nowhere" / "log.db")


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = Log.open(path)
    log.append(batch(1, 100, b"x" * 1000))
    log.close()
    data = bytearray(path.read_bytes())
    data[8192:-4096] = b"\xff" * (len(data) - 8192 - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="malformed"):
        list(Log.open(path).replay(0))


def test_a_hole_and_an_unknown_event_are_told(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log.db")
    log.append(batch(1, 5))
    log.append([batch(6, 1)[0]._replace(event=b"\x92\xa6Future\xa0")])
    with pytest.raises(StoreError, match=r"revision 6 cannot be understood .*newer version"):
        list(log.replay(0))
    log._writer.execute("DELETE FROM log WHERE revision = 3")
    with pytest.raises(StoreError, match="revision 3 is missing"):
        list(log.replay(0))
    log._writer.execute("DELETE FROM log WHERE revision = 1")
    log.close()
    with pytest.raises(StoreError, match="revision 1 is missing"):
        Log.open(tmp_path / "log.db")


def test_compaction_tells_the_oldest_and_never_reuses_revisions(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log.db")
    assert (log.oldest_revision(), log.last_revision()) == (1, 0)
    for first in range(1, 100, 4):
        log.append(batch(first, 4))
    assert not log.compact(1)
    assert log.compact(51, rows=10)  # whole decisions: up to 13, then up to 49
    assert log.oldest_revision() == 13
    assert [row.revision for row in log.read(13, 4)] == [13, 14, 15, 16]
    while log.compact(51, rows=10):
        pass
    assert log.oldest_revision() == 49
    assert log.read(1, 4)[0].revision == 49
    with pytest.raises(StoreError, match="revision 1 is missing"):
        list(log.replay(0))
    assert next(log.replay(48))[0].revision == 49
    while log.compact(10**9):
        pass
    assert (log.oldest_revision(), log.last_revision()) == (101, 100)
    log.close()
    log = Log.open(tmp_path / "log.db")
    assert (log.oldest_revision(), log.last_revision()) == (101, 100)
    log.append(batch(101, 1))
    assert log.read(1)[0].revision == 101
    log.close()


def test_a_decision_larger_than_a_step_is_removed_whole(log: Log) -> None:
    log.append(batch(1, 30))
    log.append(batch(31, 2))
    assert not log.compact(20, rows=10)
    assert log.oldest_revision() == 1
    assert not log.compact(31, rows=10)
    assert log.oldest_revision() == 31


def test_a_checkpoint_empties_the_write_ahead_log(log: Log) -> None:
    assert not log.checkpoint_due()
    while not log.checkpoint_due():
        log.append(batch(log.last_revision() + 1, 500))
    size = (log.path.parent / "log.db-wal").stat().st_size
    for _ in range(20):
        log.checkpoint()
        log.append(batch(log.last_revision() + 1, 100))
    assert not log.checkpoint_due()
    assert (log.path.parent / "log.db-wal").stat().st_size <= size + 8192
    assert len(list(log.replay(0))) == log.last_revision()
