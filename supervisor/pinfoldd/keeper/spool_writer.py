"""The keeper's end of a spool: see `spool` for the files and what they promise."""

from __future__ import annotations

import ctypes
import errno
import os
from collections import OrderedDict, deque

from .spool import GAP, HEADER, LENGTH_MASK, MAGIC, MERGE_SECONDS, RECORD, Totals

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
            if last == stream and (stream == GAP or 0 <= now - at < MERGE_SECONDS) and not crosses:
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
        step = 4096
        # the last record of the head may reach over the whole gap
        tail = max(self._tail_record, self._head_records - 1, 0)
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
        start, end = (HEADER.size + n * RECORD.size for n in (self._head_records, tail))
        if end - start > 8192:
            punch(self._idx, start, end)

    def _open(self) -> bool:
        """Open (the first time: make) both files; close those of the idlest spool."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        if not self.size:
            flags |= os.O_TRUNC
        while True:
            try:
                if self._fd < 0:
                    self._fd = os.open(self._out_path, flags, 0o600)
                if self._idx < 0:
                    self._idx = os.open(self._path, flags, 0o600)
                break
            except OSError as error:
                if error.errno == errno.EMFILE and _opened:
                    next(iter(_opened)).release()  # what it wrote is safe; ours would be lost
                    continue
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
