"""The spool against a model: bytes, streams, gaps and counts, whatever arrives and is refused."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfoldd.keeper import spool_writer as module
from pinfoldd.keeper.spool import GAP, SpoolReader, Totals, paths, recover
from pinfoldd.keeper.spool_writer import SpoolWriter, punch

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return paths(str(tmp_path), 1)


@pytest.fixture
def writer(files: tuple[str, str]) -> Iterator[SpoolWriter]:
    spool = SpoolWriter(*files, 1 << 20)
    yield spool
    spool.release()


def put(spool: SpoolWriter, stream: int, data: bytes, now: float) -> None:
    spool.append(stream, memoryview(data), data.count(b"\n"), now)


def contents(
    files: tuple[str, str], end: int, piece: int = 1 << 30
) -> list[tuple[int, int, bytes, int]]:
    """All of it, read in pieces; chunks must follow each other without holes."""
    found = []
    with SpoolReader(*files) as reader:
        offset = 0
        while offset < end:
            chunks = reader.read(offset, piece, end)
            assert chunks
            for chunk in chunks:
                assert chunk.offset == offset
                assert (chunk.stream == GAP) == (chunk.missing > 0)
                offset = chunk.end
                found.append((chunk.stream, chunk.offset, chunk.data, chunk.missing))
        assert offset == end
    return found


_WRITES = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.integers(1, 60),
        st.sampled_from([0.0, 0.001, 0.5]),
        st.booleans(),  # flush after it
        st.integers(0, 9).map(lambda n: n == 0),  # the disk is full for it
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_WRITES, st.integers(2, 400), st.integers(1, 100))
def test_against_a_model(
    writes: list[tuple[int, int, float, bool, bool]], limit: int, piece: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = paths(directory, 7)
        spool = SpoolWriter(*files, limit)
        received: list[tuple[int, int] | None] = []  # stream and byte, None: refused
        now, lines = 1000.0, 0
        real = os.pwrite
        for number, (stream, size, pause, flush, full) in enumerate(writes):
            now += pause
            data = bytes([number % 200 + 11] * (size - 1)) + b"\n"
            taken = size
            if full:
                taken = size // 2
                calls = iter([taken])

                def short(fd: int, view: memoryview, at: int, calls: Iterator[int] = calls) -> int:
                    room = next(calls, 0)
                    if not room:
                        raise OSError(errno.ENOSPC, "full")
                    return real(fd, view[:room], at)

                setattr(os, "pwrite", short)  # noqa: B010
            try:
                put(spool, stream, data, now)
            finally:
                setattr(os, "pwrite", real)  # noqa: B010
            received += [(stream, byte) for byte in data[:taken]] + [None] * (size - taken)
            lines += 1
            if flush:
                spool.flush()
        spool.flush()
        total = len(received)
        first, last = limit // 2, limit - limit // 2
        kept = [
            None if total > limit and first <= n < total - last else value
            for n, value in enumerate(received)
        ]
        assert spool.totals == Totals(total, lines, kept.count(None))
        found: list[tuple[int, int] | None] = []
        for stream, _, data, missing in contents(files, total, piece):
            found += [(stream, byte) for byte in data] if stream else [None] * missing
        assert found == kept
        spool.release()
        assert recover(*files) == spool.totals


def test_chunks_merge_by_stream_and_time(writer: SpoolWriter, files: tuple[str, str]) -> None:
    for now, stream, data in [
        (1.0, 1, b"a"),
        (1.01, 1, b"b"),
        (1.5, 1, b"c"),
        (1.5, 2, b"d"),
        (1.5, 1, b"e"),
    ]:
        put(writer, stream, data, now)
    writer.flush()
    assert os.stat(files[1]).st_size == 64 + 24 * 4
    with SpoolReader(*files) as reader:
        chunks = reader.read(0, 100, 5)
        assert [(c.stream, c.data, c.at) for c in chunks] == [
            (1, b"abc", 1.0),
            (2, b"d", 1.5),
            (1, b"e", 1.5),
        ]
        assert reader.read(2, 1, 5) == [(1, 2, b"c", 1.5, 0)]
        assert reader.read(5, 10, 5) == []
        with pytest.raises(ValueError):
            reader.read(-1, 1, 5)


def test_no_file_until_the_first_byte(writer: SpoolWriter, files: tuple[str, str]) -> None:
    writer.flush()
    assert not os.path.exists(files[0])
    assert not os.path.exists(files[1])
    with SpoolReader(*files) as reader:
        assert reader.read(0, 10, 10) == []
        put(writer, 1, b"x", 1.0)
        writer.flush()
        assert reader.read(0, 10, 1)[0].data == b"x"


def test_the_dropped_middle_takes_no_disk(tmp_path: Path) -> None:
    files = paths(str(tmp_path), 1)
    spool = SpoolWriter(*files, 4 << 20)
    for number in range(256):
        put(spool, 1 + number % 2, bytes([number]) * (256 << 10), float(number))
        spool.flush()
    assert spool.totals == Totals(64 << 20, 256 * 0 + (256 << 10), (64 - 4) << 20)
    probe = os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT)
    os.write(probe, bytes(8192))
    if punch(probe, 0, 8192):
        assert os.stat(files[0]).st_blocks * 512 <= 6 << 20
    os.close(probe)
    kept = contents(files, spool.size, 1 << 18)
    assert sum(len(data) for _, _, data, _ in kept) == 4 << 20
    assert kept[-1][2][-1] == 255
    spool.release()


def test_index_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that alternate with every byte don't make the index larger than the output."""
    monkeypatch.setattr(module, "_MAX_RECORDS", 1000)
    files = paths(str(tmp_path), 1)
    spool = SpoolWriter(*files, 64 << 20)
    for number in range(20_000):
        put(spool, 1 + number % 2, b"%d\n" % (number % 10), 1.0)
        if not number % 100:
            spool.flush()
    spool.flush()
    assert spool.size == 40_000
    assert spool.lines == 20_000
    kept = contents(files, spool.size)
    assert sum(missing for _, _, _, missing in kept) == spool.dropped > 20_000
    assert len(kept) <= 4_200
    assert all(data == b"%d\n" % (offset // 2 % 10) for s, offset, data, _ in kept if s)
    spool.release()


def test_index_that_cannot_be_written(
    writer: SpoolWriter, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(writer, 1, b"head\n", 1.0)
    writer.flush()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for number in range(20_000):
            put(writer, 1 + number % 2, b"x\n", 2.0 + number)
        assert not writer.flush()
        assert len(writer._pending) < 5000
    put(writer, 2, b"tail\n", 1e6)
    assert writer.flush()
    assert writer.totals == Totals(40_010, 20_002, 40_000)
    kept = contents(files, writer.size)
    assert [(s, d, m) for s, _, d, m in kept] == [
        (1, b"head\n", 0),
        (0, b"", 40_000),
        (2, b"tail\n", 0),
    ]


def test_no_directory(tmp_path: Path) -> None:
    spool = SpoolWriter(*paths(str(tmp_path / "none"), 1), 100)
    put(spool, 1, b"abc\n", 1.0)
    assert not spool.flush()
    assert spool.totals == Totals(4, 1, 4)
    spool.release()


def test_few_files_are_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    spools = [SpoolWriter(*paths(str(tmp_path), n), 1 << 20) for n in range(300)]
    for turn in range(3):
        for number, spool in enumerate(spools):
            put(spool, 1, b"%d.%d\n" % (number, turn), float(turn))
    assert len(os.listdir("/proc/self/fd")) - before <= 2 * 64
    for number, spool in enumerate(spools):
        spool.release()
        assert b"".join(
            c[2] for c in contents(paths(str(tmp_path), number), spool.size)
        ) == b"".join(b"%d.%d\n" % (number, turn) for turn in range(3))


def test_reader_beside_a_writer(tmp_path: Path) -> None:
    """What a reader gets is always what was written there, or a gap."""
    files = paths(str(tmp_path), 1)
    spool = SpoolWriter(*files, 1 << 20)
    done = threading.Event()
    sizes = [0]

    def write() -> None:
        for number in range(20_000):
            put(spool, 1 + number % 3 // 2, bytes([number % 255 + 1]) * 8192, number * 0.001)
            if not number % 3:
                spool.flush()
                sizes[0] = spool.size
        spool.flush()
        sizes[0] = spool.size
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    with SpoolReader(*files) as reader:
        last = False
        while not last:
            last = done.is_set()
            end = sizes[0]
            offset = 0 if last else max(0, end - (1 << 20))
            while offset < end:
                chunks = reader.read(offset, 1 << 18, end)
                assert chunks, (offset, end)
                for chunk in chunks:
                    for at in range(chunk.offset, chunk.offset + len(chunk.data), 4096):
                        assert chunk.data[at - chunk.offset] == at // 8192 % 255 + 1
                offset = chunks[-1].end
    thread.join()
    spool.release()


def test_bytes_after_the_last_record_are_recovered(files: tuple[str, str]) -> None:
    spool = SpoolWriter(*files, 1 << 20)
    put(spool, 2, b"one\n", 1.0)
    spool.flush()
    put(spool, 2, b"two\nthree\n", 5.0)  # and here the keeper was killed
    assert recover(*files) == Totals(14, 3, 0)
    assert [(s, d) for s, _, d, _ in contents(files, 14)] == [(2, b"one\ntwo\nthree\n")]
    assert recover(*files) == Totals(14, 3, 0)
    assert recover("/none", "/none") == Totals(0, 0, 0)


def test_a_clock_that_is_set_back_makes_a_new_record(
    writer: SpoolWriter, files: tuple[str, str]
) -> None:
    for now in (1000.0, 400.0, 410.0):
        put(writer, 1, b"x", now)
    writer.flush()
    with SpoolReader(*files) as reader:
        found = [reader.read(offset, 1, writer.size)[0].at for offset in range(3)]
    assert found == [1000.0, 400.0, 410.0]


def test_without_descriptors_the_idlest_spool_gives_up_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, busy = (SpoolWriter(*paths(str(tmp_path), n), 1 << 20) for n in (1, 2))
    put(idle, 1, b"idle", 1.0)
    open_file = os.open

    def limited(*arguments: Any, **more: Any) -> int:
        if idle in module._opened:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(*arguments, **more)

    monkeypatch.setattr(module.os, "open", limited)
    put(busy, 1, b"busy", 2.0)
    assert busy.totals == Totals(4, 0, 0)
    monkeypatch.undo()
    put(idle, 1, b"!", 3.0)
    assert idle.totals == Totals(5, 0, 0)
    for spool in (idle, busy):
        spool.release()
    assert Path(paths(str(tmp_path), 1)[0]).read_bytes() == b"idle!"
