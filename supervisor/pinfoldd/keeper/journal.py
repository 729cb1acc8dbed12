"""What the keeper must still know after it was killed: one append-only file of JSON lines.

    begin         group, digest of what is run, boot id          before the fork
    Started       pid, start time                                after it
    SpawnFailed   the reason                                     nothing was started
    Exited        the whole exit                                 before it is reported
    Empty, Survived, Lost                                        before it is reported
    acknowledged                                                 the daemon has it

The records of one turn of the loop are one write(2), made before any of them is reported,
so a killed keeper leaves whole lines and at most one torn last line, which is ignored.
Names are those of the messages from `Started` on. One journal and not a file per exit: a
record costs about 5 µs this way, ten times less than creating and renaming a file, and says
exactly as much.

Written through the page cache: it survives the death of the keeper, and with `fsync=True`
that of the machine too (whose processes are gone then, so only exits not yet acknowledged
are at stake). A file that has become large is replaced, atomically, by one that holds the
records of the unacknowledged groups only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .messages import PREFIX_SIZE

_COMPACT_AT = 4 << 20


@dataclass(slots=True)
class Known:
    """One unacknowledged group, as the journal has it."""

    group: int
    boot: str
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)  # by class name

    @property
    def ended(self) -> bool:
        """Nothing of it can run any more."""
        if self.reports.get("Exited", {}).get("end") is not None:
            return True
        return not {"SpawnFailed", "Empty", "Lost"}.isdisjoint(self.reports)


class Journal:
    """Appends records; reads those of an earlier keeper. Errors of the disk are given to
    `on_error` and never stop a spawn or an exit: then a restart knows less, nothing else."""

    def __init__(
        self, path: str, *, fsync: bool = False, on_error: Callable[[OSError], None]
    ) -> None:
        self._path = path
        self._fsync = fsync
        self._on_error = on_error
        self._fd = -1
        self._size = 0
        self._open: dict[int, list[bytes]] = {}  # the lines of each unacknowledged group
        self._pending: list[bytes] = []
        self._compact_at = _COMPACT_AT
        self._torn = False  # the last write was cut short: the disk was full

    def load(self) -> dict[int, Known]:
        """The groups that are not acknowledged; opens the journal for what follows."""
        known: dict[int, Known] = {}
        try:
            with open(self._path, "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                kind, values = json.loads(line)
                kind, group = str(kind), int(values["group"])
                boot = str(values["boot"]) if kind == "begin" else ""
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # torn by a kill or a full disk, or damaged by whatever it was
            if kind == "begin":
                known[group] = Known(group, boot)
                self._open[group] = [line + b"\n"]
            elif kind == "acknowledged":
                known.pop(group, None)
                self._open.pop(group, None)
            elif group in known:
                known[group].reports[kind] = values
                self._open[group].append(line + b"\n")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size
        if lines and lines[-1]:
            self._write(b"\n")  # so that the torn line doesn't swallow the next record
        if self._size > self._compact_at:
            self._compact()
        return known

    def begin(self, group: int, digest: str, boot: str) -> None:
        """Written at once: it must be there before the fork."""
        line = b'["begin",{"group":%d,"boot":"%s","digest":"%s"}]\n'
        self._take(group, line % (group, boot.encode(), digest.encode()))
        self.commit()

    def report(self, group: int, frame: bytes) -> None:
        """Take a fact, as it goes over the link; `commit` must follow before it is told. Of a
        group that is acknowledged nothing is kept."""
        if group in self._open:
            self._take(group, frame[PREFIX_SIZE:] + b"\n")

    def _take(self, group: int, line: bytes) -> None:
        self._pending.append(line)
        self._open.setdefault(group, []).append(line)

    def acknowledged(self, group: int) -> None:
        self._open.pop(group, None)
        self._pending.append(b'["acknowledged",{"group":%d}]\n' % group)

    def commit(self) -> None:
        """All records taken since the last time, in one write."""
        if self._torn and self._pending:
            self._compact()  # a new file: the next line would be a part of the torn one
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self._write(data)
            if self._size > self._compact_at:
                self._compact()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: bytes) -> None:
        try:
            count = os.write(self._fd, line)
            self._size += count
            if count < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._fsync:
                os.fdatasync(self._fd)
        except OSError as error:
            self._torn = True
            self._on_error(error)

    def _compact(self) -> None:
        kept = b"".join(line for lines in self._open.values() for line in lines)
        fresh = self._path + ".new"
        # whatever comes of it, not at once again
        self._compact_at = max(_COMPACT_AT, 2 * len(kept), self._size + _COMPACT_AT)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(fresh, flags, 0o600)
            try:
                if os.write(fd, kept) < len(kept):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self._fsync:
                    os.fdatasync(fd)
                os.rename(fresh, self._path)
            except OSError:
                os.close(fd)
                raise
        except OSError as error:
            self._on_error(error)
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            return
        self._pending.clear()  # they are among what is kept
        self._torn = False
        os.close(self._fd)
        self._fd, self._size = fd, len(kept)
        self._compact_at = max(_COMPACT_AT, 2 * len(kept))
