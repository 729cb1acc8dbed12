"""What a group wrote: one file of bytes and one index beside it.

`<group>.out` holds the bytes of all streams as they arrived, `<group>.idx` says which
stream each stretch belongs to. Both are made with the first byte: a silent command leaves
none. Offsets are those of everything that was received and never change.

At most `limit` bytes are kept: the first half of them, and a window over the last half.
What falls out of the middle is punched out of the file (it reads as a gap, and takes no
disk). The index is bounded as well: when streams alternate so often that there would be
131,072 of each half, bytes are dropped as if there were too many of them.
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

import os
import struct
from typing import NamedTuple

MAGIC = b"PFSPOOL1"
HEADER = struct.Struct("<8s7Q")
RECORD = struct.Struct("<QQd")
LENGTH_MASK = (1 << 56) - 1
GAP, STDOUT, STDERR = 0, 1, 2
MERGE_SECONDS = 0.02
"""Chunks of one stream that arrive within this time are one record."""


def paths(directory: str, group: int) -> tuple[str, str]:
    """The file of bytes and the index of one group."""
    stem = f"{directory}/{group}"
    return stem + ".out", stem + ".idx"


def spooled(directory: str) -> set[int]:
    """The groups that have a spool."""
    stems = {name.partition(".")[0] for name in os.listdir(directory)}
    return {int(stem) for stem in stems if stem.isdigit()}


class Totals(NamedTuple):
    size: int
    lines: int
    dropped: int


NOTHING = Totals(0, 0, 0)


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
        until = min(end, offset + limit)
        if gap_end and offset < gap_start:
            low, high, until = 0, head, min(until, gap_start)
        else:
            count = max(0, os.fstat(self._idx).st_size - HEADER.size) // RECORD.size
            low, high = (max(head - 1, tail) if gap_end else 0), count
        chunk = self._chunk(offset, until, low, high)
        # looked at again after the read: what was dropped meanwhile, bytes or records, may
        # have read as zeros
        gap_start, gap_end, _, _ = self._header()
        if gap_start <= offset < gap_end:
            return Chunk(GAP, offset, b"", 0.0, min(gap_end, end) - offset)
        if chunk is not None and offset < gap_start < min(gap_end, chunk.end):
            chunk = chunk._replace(
                data=chunk.data[: gap_start - offset],
                missing=min(chunk.missing, gap_start - offset),
            )
        return chunk

    def _chunk(self, offset: int, until: int, low: int, high: int) -> Chunk | None:
        """From `offset` on as far as one stream goes, by the records from `low` to `high`."""
        number = self._find(offset, low, high)
        if number is None:
            return None
        first, stop = self._stretch(number, high, offset, until)
        if first is None or stop <= offset:
            return None
        if first.stream == GAP:
            return Chunk(GAP, offset, b"", first.at, stop - offset)
        data = self._bytes(offset, stop)
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
