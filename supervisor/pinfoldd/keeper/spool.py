"""What a group wrote: one file of bytes and one index beside it.

`<group>.out` holds the bytes of all streams as they arrived, `<group>.idx` says which
stream each stretch belongs to. Both are made with the first byte: a silent command leaves
none. Offsets are those of everything that was received and never change.

At most `limit` bytes are kept: the first half of them, and a window over the last half.
What falls out of the middle is punched out of the file (it reads as a gap, and takes no
disk). The index is bounded as well: when streams alternate so often that there would be
more than `_MAX_RECORDS` of each half, bytes are dropped as if there were too many of them.
A disk that takes no more makes gaps too, and never an error: the child must not wait for a
disk, and the count of what is missing stays exact.

The index: a header of 64 bytes, then records of 24 bytes in the order of their offsets.

    header   magic 8s, gap_start Q, gap_end Q, head_records Q, tail_record Q, size Q,
             lines Q, dropped Q
    record   offset Q, stream << 56 | length Q, seconds since the epoch d

Stream 1 is stdout (and a terminal), 2 is stderr, 0 marks bytes the disk did not take.
[gap_start, gap_end) is the dropped middle. Records from head_records to tail_record may be
punched out as well. The writer moves gap_end on *before* it punches, and a reader looks at
it again *after* it has read: so a reader never takes the zeros of a hole for output.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections import OrderedDict, deque
from typing import NamedTuple

MAGIC = b"PFSPOOL1"
HEADER = struct.Struct("<8s7Q")
RECORD = struct.Struct("<QQd")
LENGTH_MASK = (1 << 56) - 1
GAP, STDOUT, STDERR = 0, 1, 2
MERGE_SECONDS = 0.02
"""Chunks of one stream that arrive within this time are one record."""

_MAX_RECORDS = 1 << 17  # of each half: 3 MiB of index
_PUNCH_STEP = 1 << 20
_MAX_PENDING = 4096
_OPEN_SPOOLS = 64

_libc = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02


def punch(fd: int, start: int, end: int) -> bool:
    """Give the blocks wholly inside [start, end) back to the disk. False where unsupported."""
    off = ctypes.c_int64
    return not _libc.fallocate64(fd, _KEEP_SIZE_PUNCH_HOLE, off(start), off(end - start))


def paths(directory: str, group: int) -> tuple[str, str]:
    """The file of bytes and the index of one group."""
    stem = f"{directory}/{group}"
    return stem + ".out", stem + ".idx"


class Totals(NamedTuple):
    size: int
    lines: int
    dropped: int


_opened: OrderedDict[SpoolWriter, None] = OrderedDict()
"""Spools with open files, the least recently used first. Every open descriptor makes each
spawn slower (about 0.1 µs), so that idle groups give theirs back."""


class SpoolWriter:
    """The keeper's end of one spool. Nothing here raises for what the disk does."""

    __slots__ = (
        "_base",
        "_fd",
        "_half",
        "_head_records",
        "_holes",
        "_idx",
        "_out_path",
        "_path",
        "_pending",
        "_punched",
        "_records",
        "_refused",
        "_tail_record",
        "gap_end",
        "gap_start",
        "limit",
        "lines",
        "size",
    )

    def __init__(self, out_path: str, index_path: str, limit: int) -> None:
        self._out_path, self._path = out_path, index_path
        self.limit = max(limit, 2)
        self._half = self.limit // 2
        self.size = 0
        self.lines = 0
        self.gap_start = 0  # 0 with gap_end 0: there is no gap
        self.gap_end = 0
        self._fd = self._idx = -1
        self._records = 0  # in the index and in _pending
        self._base = 0  # number of the first of _pending
        self._pending: list[tuple[int, int, int, float]] = []  # offset, stream, length, at
        self._head_records = 0
        self._tail_record = 0
        self._punched = 0  # bytes below this are punched already
        self._holes: deque[tuple[int, int]] = deque()  # what the disk refused: offset, length
        self._refused = 0

    @property
    def dropped(self) -> int:
        """Bytes that were received and are no longer (or never were) kept, exactly."""
        return self.gap_end - self.gap_start + self._refused

    @property
    def totals(self) -> Totals:
        return Totals(self.size, self.lines, self.dropped)

    def append(self, stream: int, data: memoryview, newlines: int, now: float) -> None:
        """Take bytes of one stream that arrived `now` (seconds since the epoch)."""
        length = len(data)
        kept = self._put(data, length)
        if kept:
            self._note(stream, kept, now)
        if kept < length:
            self._note(GAP, length - kept, now)
        self.lines += newlines
        if self.size > self.limit:
            self._slide()

    def _put(self, data: memoryview, length: int) -> int:
        """Write at the end, answer how much the disk took."""
        if self._fd < 0 and not self._open():
            return 0
        kept = 0
        while kept < length:
            try:
                kept += os.pwrite(self._fd, data[kept:] if kept else data, self.size + kept)
            except OSError:  # full, over quota, too large, broken: the drain goes on
                return kept
        return kept

    def _note(self, stream: int, length: int, now: float) -> None:
        offset = self.size
        self.size = offset + length
        if stream == GAP:
            self._refuse(offset, length)
        if self._pending:
            start, last, before, at = self._pending[-1]
            crosses = start < self._half <= offset  # a record ends where the head ends
            if last == stream and (stream == GAP or now - at < MERGE_SECONDS) and not crosses:
                self._pending[-1] = (start, stream, before + length, at)
                return
        self._pending.append((offset, stream, length, now))
        self._records += 1
        if offset < self._half and not self.gap_end:
            self._head_records = self._records
            if self._records > _MAX_RECORDS:
                self._half = offset
        if len(self._pending) > _MAX_PENDING:
            self.flush()

    def _refuse(self, offset: int, length: int) -> None:
        self._refused += length
        if self._holes and sum(self._holes[-1]) == offset:
            start, before = self._holes[-1]
            self._holes[-1] = (start, before + length)
        else:
            self._holes.append((offset, length))

    def _slide(self) -> None:
        """Move the window over the last half on, and count what fell out of it."""
        self._move_gap(self.size - (self.limit - self._half))

    def _move_gap(self, end: int) -> None:
        if end <= max(self.gap_end, self._half):
            return
        self.gap_start = self._half
        self.gap_end = end
        while self._holes and self._holes[0][0] < end:
            offset, length = self._holes.popleft()
            inside = min(offset + length, end) - max(offset, self.gap_start)
            if inside <= 0:  # of the head: counted for good, and of no more concern
                continue
            self._refused -= inside
            if offset + length > end:
                self._holes.appendleft((end, offset + length - end))
                break

    def flush(self) -> bool:
        """Bring the index up to `size`: to be called before anyone is told of it. False if
        the disk takes no more; what is missing is kept for the next time, bounded."""
        if not self._pending or (self._idx < 0 and not self._open()):
            return not self._pending
        data = b"".join(
            RECORD.pack(offset, stream << 56 | length, at)
            for offset, stream, length, at in self._pending
        )
        try:
            place = HEADER.size + self._base * RECORD.size
            if os.pwrite(self._idx, data, place) < len(data):
                raise OSError(errno.ENOSPC, "short write")
            if self._records - max(self._tail_record, self._head_records) > _MAX_RECORDS * 2:
                self._thin_out()
            self._write_header()
        except OSError:
            self._forget_some()
            return False
        # the last record may still grow: it stays, and is written over
        self._base = self._records - 1
        del self._pending[:-1]
        if self.gap_end - max(self._punched, self.gap_start) >= min(_PUNCH_STEP, self.limit):
            self._punch()
        return True

    def _write_header(self) -> None:
        values = (self.gap_start, self.gap_end, self._head_records, self._tail_record)
        os.pwrite(self._idx, HEADER.pack(MAGIC, *values, *self.totals), 0)

    def _forget_some(self) -> None:
        """The index can't be written: don't let what waits for it grow without bound."""
        if len(self._pending) <= _MAX_PENDING:
            return
        first = self._pending[0]
        end = self._pending[-1][0] + self._pending[-1][2]
        lost = sum(p[2] for p in self._pending if p[1] != GAP)
        self._holes = deque(hole for hole in self._holes if hole[0] < first[0])
        self._holes.append((first[0], end - first[0]))
        self._refused += lost
        self._pending = [(first[0], GAP, end - first[0], first[3])]
        self._records = self._base + 1

    def _thin_out(self) -> None:
        """Too many records in the window: drop its older half, bytes and all."""
        keep_from = self._records - _MAX_RECORDS
        if keep_from >= self._base:
            offset = self._pending[keep_from - self._base][0]
        else:
            place = HEADER.size + keep_from * RECORD.size
            offset = RECORD.unpack(os.pread(self._idx, RECORD.size, place))[0]
        self._move_gap(offset)
        self._tail_record = keep_from

    def _punch(self) -> None:
        """Give the middle back to the disk, bytes and records. Where the file system can't,
        the bytes stay on the disk until the spool is discarded; readers see the gap anyway."""
        punch(self._fd, max(self._punched, self.gap_start), self.gap_end)
        self._punched = self.gap_end
        before = max(self._tail_record, self._head_records)
        step = 4096
        tail = before
        while True:
            block = os.pread(self._idx, step * RECORD.size, HEADER.size + tail * RECORD.size)
            ends = [
                number
                for number, (offset, word, _) in enumerate(RECORD.iter_unpack(block))
                if offset + (word & LENGTH_MASK) > self.gap_end
            ]
            if ends:
                tail += ends[0]
                break
            if len(block) < step * RECORD.size:
                tail = max(tail, self._records - 1)
                break
            tail += step
        self._tail_record = tail
        self._write_header()
        if tail > before:
            start, end = (HEADER.size + n * RECORD.size for n in (self._head_records, tail))
            if end - start > 8192:
                punch(self._idx, start, end)

    def _open(self) -> bool:
        """Open (the first time: make) both files; close those of the idlest spool."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if not self.size:
            flags |= os.O_TRUNC
        try:
            if self._fd < 0:
                self._fd = os.open(self._out_path, flags, 0o600)
            if self._idx < 0:
                self._idx = os.open(self._path, flags, 0o600)
        except OSError:
            self.release()
            return False
        _opened[self] = None
        if len(_opened) > _OPEN_SPOOLS:
            next(iter(_opened)).release()
        return True

    def release(self) -> None:
        """Close the files. They are opened again when there is more to write."""
        _opened.pop(self, None)
        if self._pending and self._idx >= 0:
            self.flush()
        for fd in (self._fd, self._idx):
            if fd >= 0:
                os.close(fd)
        self._fd = self._idx = -1


def recover(out_path: str, index_path: str) -> Totals:
    """The totals of a spool whose keeper was killed. Bytes that reached the file after the
    last index record are given one, so that they can be read."""
    try:
        out = os.open(out_path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return Totals(0, 0, 0)
    try:
        idx = os.open(index_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            return _recover(out, idx)
        finally:
            os.close(idx)
    finally:
        os.close(out)


def _recover(out: int, idx: int) -> Totals:
    data = os.pread(idx, HEADER.size, 0)
    if len(data) == HEADER.size:
        values = list(HEADER.unpack(data))[1:]
    else:
        values = [0] * 7
    size, lines, dropped = values[4:7]
    count = max(0, os.fstat(idx).st_size - HEADER.size) // RECORD.size
    stream, at = STDOUT, os.fstat(out).st_mtime
    if count:
        last = os.pread(idx, RECORD.size, HEADER.size + (count - 1) * RECORD.size)
        offset, word, _ = RECORD.unpack(last)
        stream = word >> 56 or STDOUT
        size = max(size, offset + (word & LENGTH_MASK))
    end = os.fstat(out).st_size
    if end > size:
        place, read = size, 0
        while read < end - size:
            piece = os.pread(out, 1 << 20, place + read)
            if not piece:
                break
            lines += piece.count(b"\n")
            read += len(piece)
        record = RECORD.pack(size, stream << 56 | (end - size), at)
        os.pwrite(idx, record, HEADER.size + count * RECORD.size)
        values[4:7] = [end, lines, dropped]
        os.pwrite(idx, HEADER.pack(MAGIC, *values), 0)
    return Totals(max(size, end), lines, dropped)


class Chunk(NamedTuple):
    """A stretch of one stream. A gap has stream 0, no data, and says how much is missing."""

    stream: int
    offset: int
    data: bytes
    at: float  # seconds since the epoch, of its first byte
    missing: int = 0

    @property
    def end(self) -> int:
        return self.offset + len(self.data) + self.missing


class _Record(NamedTuple):
    offset: int
    stream: int
    length: int
    at: float


class SpoolReader:
    """The daemon's end of one spool: reads by offset while the keeper appends.

    Not for sharing between threads. A spool that does not exist (yet) reads as empty.
    """

    __slots__ = ("_fd", "_hint", "_idx", "_index_path", "_out_path")

    def __init__(self, out_path: str, index_path: str) -> None:
        self._out_path, self._index_path = out_path, index_path
        self._fd = self._idx = -1
        self._hint = 0  # record where the last read ended: the next one begins there

    def read(self, offset: int, limit: int, end: int) -> list[Chunk]:
        """What is kept of [offset, end), from its beginning, up to `limit` bytes of data.

        `end` is a size the keeper has reported. The chunks follow each other without holes:
        what is dropped is there as gaps. Raises ValueError for a negative offset or limit.
        """
        if offset < 0 or limit < 0:
            raise ValueError("offset and limit must not be negative")
        chunks: list[Chunk] = []
        while offset < end and limit > 0 and self._open():
            piece = self._piece(offset, limit, end)
            if piece is None:
                break
            chunks.append(piece)
            limit -= len(piece.data)
            offset = piece.end
        return chunks

    def read_stream(self, stream: int, end: int, piece: int = 1 << 18) -> list[Chunk]:
        """Everything of one stream up to `end`, gaps included (they may be of any stream)."""
        found: list[Chunk] = []
        offset = 0
        while chunks := self.read(offset, piece, end):
            found.extend(chunk for chunk in chunks if chunk.stream in (GAP, stream))
            offset = chunks[-1].end
        return found

    def close(self) -> None:
        for fd in (self._fd, self._idx):
            if fd >= 0:
                os.close(fd)
        self._fd = self._idx = -1

    def __enter__(self) -> SpoolReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> bool:
        if self._fd >= 0:
            return True
        try:
            self._fd = os.open(self._out_path, os.O_RDONLY | os.O_CLOEXEC)
            self._idx = os.open(self._index_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.close()
            return False
        return True

    def _header(self) -> tuple[int, int, int, int]:
        data = os.pread(self._idx, HEADER.size, 0)
        if len(data) < HEADER.size:
            return 0, 0, 0, 0
        _, gap_start, gap_end, head, tail, *_ = HEADER.unpack(data)
        return gap_start, gap_end, head, tail

    def _records(self, number: int, count: int = 64) -> list[_Record]:
        data = os.pread(self._idx, count * RECORD.size, HEADER.size + number * RECORD.size)
        whole = len(data) - len(data) % RECORD.size
        return [
            _Record(offset, word >> 56, word & LENGTH_MASK, at)
            for offset, word, at in RECORD.iter_unpack(data[:whole])
        ]

    def _piece(self, offset: int, limit: int, end: int) -> Chunk | None:
        """One chunk that begins at `offset`; None if the index doesn't reach so far."""
        gap_start, gap_end, head, tail = self._header()
        if gap_start <= offset < gap_end:
            return Chunk(GAP, offset, b"", 0.0, min(gap_end, end) - offset)
        count = max(0, os.fstat(self._idx).st_size - HEADER.size) // RECORD.size
        in_head = not gap_end or offset < gap_start
        low, high = (0, head if gap_end else count) if in_head else (max(head - 1, tail), count)
        number = self._find(offset, low, high)
        if number is None:
            return None
        until = min(end, offset + limit)
        if in_head and gap_end:
            until = min(until, gap_start)
        first, stop = self._stretch(number, high, offset, until)
        if first is None:
            return None
        if first.stream == GAP:
            return Chunk(GAP, offset, b"", first.at, stop - offset)
        data = self._bytes(offset, stop)
        # looked at again after the read: what was dropped meanwhile may have read as zeros
        gap_start, gap_end, _, _ = self._header()
        if gap_start <= offset < gap_end:
            return Chunk(GAP, offset, b"", 0.0, min(gap_end, end) - offset)
        if offset < gap_start < gap_end:
            data = data[: gap_start - offset]
        return Chunk(first.stream, offset, data, first.at) if data else None

    def _stretch(
        self, number: int, high: int, offset: int, until: int
    ) -> tuple[_Record | None, int]:
        """The record at `number` and where its stream stops, over following records of it."""
        first: _Record | None = None
        stop = offset
        while number < high and stop < until:
            records = self._records(number, min(64, high - number))
            for record in records:
                if first is None:
                    first = record
                elif record.stream != first.stream or record.offset != stop:
                    return first, stop
                stop = min(record.offset + record.length, until)
                self._hint = number
                if stop >= until:
                    return first, stop
                number += 1
            if not records:
                break
        return first, stop

    def _find(self, offset: int, low: int, high: int) -> int | None:
        """The record that holds `offset`, among those numbered [low, high)."""
        if low <= self._hint < high:
            for number, record in enumerate(self._records(self._hint, 2), self._hint):
                if record.offset <= offset < record.offset + record.length:
                    return number
        while low < high:
            middle = (low + high) // 2
            found = self._records(middle, 1)
            if not found:
                return None
            if offset < found[0].offset:
                high = middle
            elif offset >= found[0].offset + found[0].length:
                low = middle + 1
            else:
                return middle
        return None

    def _bytes(self, start: int, stop: int) -> bytes:
        data = os.pread(self._fd, stop - start, start)
        while 0 < len(data) < stop - start:
            more = os.pread(self._fd, stop - start - len(data), start + len(data))
            if not more:
                break
            data += more
        return data
