from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinfoldd.core import events as e
from pinfoldd.core.apply import apply
from pinfoldd.core.model import Call, State
from pinfoldd.core.values import CallState, Cause, Extent, Result, Stamp, Surface
from pinfoldd.store import Record, Store, StoreError, snapshot


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path)
    yield store
    store.close()


def history(first: int, calls: int, label: str = "make") -> list[e.Event]:
    events: list[e.Event] = []
    if first == 1:
        root = {"env": {"PATH": "/bin", "ODD": "\udcff"}, "cwd": "/tmp/\udcfe"}
        events.append(e.AgentOpened("root", "", Surface.TAU, "", "d", **root))
        events.append(e.AgentOpened("other", "", Surface.TASKS, "", "d"))
    number = len(events) + first
    for n in range(number, number + calls):
        call = f"c{n}"
        events += [
            e.CallQueued(
                "root",
                call,
                "shell",
                "shell",
                n,
                label,
                "d",
                False,
                True,
                2.0,
                None,
                2.0,
                False,
                b"spec",
            ),
            e.CallStarting("root", call, n),
            e.CallStarted("root", call, 100 + n, 1.0, 2.0),
            e.CallEnded(
                "root",
                call,
                Result(CallState.SUCCEEDED, Cause.EXIT, seconds=0.5, output=Extent(n, 1)),
                True,
            ),
        ]
    return events


def grow(store: Store, state: State, events: list[e.Event]) -> None:
    first = state.revision + 1
    records = []
    for revision, event in enumerate(events, first):
        stamp = Stamp(revision, first, revision / 3, revision / 7)
        apply(state, event, stamp)
        records.append(Record.of(stamp, event, "n", b"w", None))
    store.log.append(records)


def recovered(store: Store) -> tuple[State, int]:
    """The state, and how many events had to be replayed for it."""
    state, events = store.recover()
    count = 0
    for stamp, event in events:
        apply(state, event, stamp)
        count += 1
    return state, count


def snapshots(store: Store) -> list[Path]:
    return sorted(store.snapshots.directory.glob("snapshot-*"))


def test_an_empty_store_recovers_an_empty_state(store: Store) -> None:
    assert recovered(store) == (State(), 0)


@pytest.mark.parametrize("label", ["make", "odd \udcff"])
def test_a_snapshot_and_the_log_after_it_give_the_state(
    store: Store, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_SLICE", 4)
    state = State()
    grow(store, state, history(1, 10, label))
    before = store.snapshots.save(state)
    loaded = store.snapshots.load()
    assert loaded == state
    assert loaded is not None
    assert list(loaded.agents["root"].calls) == list(state.agents["root"].calls)
    assert {type(call) for call in loaded.agents["root"].calls.values()} == {Call}
    assert {type(call) for call in state.agents["root"].calls.values()} == {Call}
    grow(store, state, history(state.revision + 1, 3, label))
    assert recovered(store) == (state, 12)
    assert before.stat().st_mode & 0o077 == 0


def test_two_snapshots_are_kept(store: Store) -> None:
    state = State()
    assert store.snapshots.needed_from() == 1
    for n in range(4):
        grow(store, state, history(state.revision + 1, 2))
        store.snapshots.save(state)
        assert len(snapshots(store)) == min(n + 1, 2)
    assert store.snapshots.needed_from() == int(snapshots(store)[0].name[-20:]) + 1


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def damage_cut_at_a_frame(path: Path) -> None:
    data = path.read_bytes()
    position, ends = 8, []
    while position < len(data):
        position += 8 + int.from_bytes(data[position : position + 4], "little")
        ends.append(position)
    path.write_bytes(data[: ends[-2]])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_magic_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:8])


def damage_remove_permission(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut,
        damage_cut_at_a_frame,
        damage_flip,
        damage_empty,
        damage_magic_only,
        damage_remove_permission,
    ],
)
def test_a_damaged_snapshot_falls_back(
    store: Store, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(damage)
    state = State()
    for _ in range(2):
        grow(store, state, history(state.revision + 1, 5))
        store.snapshots.save(state)
    older, newer = snapshots(store)
    with caplog.at_level(logging.WARNING):
        damage(newer)
        assert recovered(store) == (state, 20)
        assert f"snapshot {newer} is left out" in caplog.text
        assert f"older snapshot {older}" in caplog.text
        damage(older)
        assert recovered(store) == (state, 42)
        assert "the whole log" in caplog.text


def test_an_unusable_snapshot_is_not_counted_on(store: Store) -> None:
    state = State()
    for _ in range(2):
        grow(store, state, history(state.revision + 1, 5))
        store.snapshots.save(state)
    older, newer = snapshots(store)
    damage_flip(older)
    damage_flip(newer)
    assert recovered(store) == (state, 42)
    store.snapshots.save(state)
    assert store.snapshots.needed_from() == 1
    store.compact(10**9)
    assert recovered(store) == (state, 0)
    snapshots(store)[-1].with_suffix("").write_bytes(b"")
    assert recovered(store) == (state, 42)


def test_no_snapshot_and_no_whole_log_is_an_error(store: Store) -> None:
    state = State()
    for _ in range(2):
        grow(store, state, history(state.revision + 1, 5))
        store.snapshots.save(state)
    older, newer = snapshots(store)
    assert not store.compact(10**9)
    assert store.log.oldest_revision() == 23
    newer.write_bytes(b"")
    assert recovered(store) == (state, 20)
    older.write_bytes(b"")
    with pytest.raises(StoreError, match="begins at revision 23 and no snapshot"):
        store.recover()


def test_compaction_waits_for_two_snapshots(store: Store) -> None:
    state = State()
    grow(store, state, history(1, 5))
    store.snapshots.save(state)
    assert not store.compact(10**9)
    assert store.log.oldest_revision() == 1


def test_a_snapshot_of_another_format_or_ahead_of_the_log_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = State()
    grow(store, state, history(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "FORMAT", 2)
        store.snapshots.save(state)
    assert store.snapshots.load() is None
    assert "format 2" in caplog.text
    state.revision += 5
    store.snapshots.save(state)
    assert store.snapshots.load() is None
    assert "the log ends before it" in caplog.text


def test_a_log_and_a_snapshot_that_grew_meanwhile_are_no_damage(store: Store) -> None:
    state = State()
    grow(store, state, history(1, 2))
    other = Store.open(store.directory)
    grow(store, state, history(state.revision + 1, 2))
    store.snapshots.save(state)
    assert recovered(other) == (state, 0)
    other.close()


def test_a_snapshot_that_cannot_be_written_leaves_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = State()
    grow(store, state, history(1, 2))
    store.snapshots.save(state)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    grow(store, state, history(state.revision + 1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "_sync_directory", full)
        patch.setattr(snapshot.zlib, "crc32", full)
        with pytest.raises(StoreError, match="cannot be written: No space left"):
            store.snapshots.save(state)
    assert len(list(store.snapshots.directory.glob("snapshot-*"))) == 1
    assert recovered(store) == (state, 8)


def test_another_process_takes_the_snapshot(store: Store) -> None:
    state = State()
    grow(store, state, history(1, 5))
    store.take_snapshot()
    assert recovered(store) == (state, 0)
    grow(store, state, history(state.revision + 1, 5))
    store.take_snapshot()
    assert len(snapshots(store)) == 2
    assert recovered(store) == (state, 0)
    grow(store, state, history(state.revision + 1, 1))


def test_a_snapshot_that_fails_in_the_other_process_tells_why(store: Store) -> None:
    state = State()
    grow(store, state, history(1, 1))
    store.log._writer.execute("DELETE FROM log WHERE revision = 2")
    with pytest.raises(StoreError, match=r"no new snapshot in .*revision 2 is missing"):
        store.take_snapshot()
    assert snapshots(store) == []
