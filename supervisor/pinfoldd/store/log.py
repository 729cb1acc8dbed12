"""The log: every event ever decided, in one SQLite table, one row for each revision.

One connection writes and another reads, both on the loop's thread; in WAL mode neither waits
for the other. Statements are short and inline: handing a commit to a thread would cost more
than the commit.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pinfoldd.core.events import Event
from pinfoldd.core.values import Stamp
from pinfoldd.store.codec import decode_event, encode_event
from pinfoldd.store.errors import StoreError

Durability = Literal["process", "full"]
"""What an append survives: the death of the process, or also that of the machine."""

SCHEMA = 2
"""Version of the tables. A file with a higher one was written by a newer daemon; 1 was never
released."""

_APPLICATION_ID = 0x50494E46  # in the header of the file, for file(1) and for us: "PINF"
# How long another program's lock may hold up a start, and later a statement (and the loop).
_BUSY_SECONDS = 2.0
_BUSY_MS = 200
_CACHE_KIB = 8192
_CHECKPOINT_ROWS = 4000
# A checkpoint inside of a commit stalls the loop for milliseconds, so `checkpoint` does it in
# a thread. This many pages of 4 KiB are the bound if nobody calls it or appends never pause.
_BACKSTOP_PAGES = 16_384
_WAL_FILE_LIMIT = 64 << 20  # bytes; a file that has grown beyond is cut back
_REPLAY_ROWS = 2000
# What `wires` joins at once (some 200 KB, as most events are), and how large an event may be
# that it joins before it knows the size of all.
_JOINED_ROWS = 2048
_SHORT = 512

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE log (
    revision INTEGER PRIMARY KEY,
    decision INTEGER NOT NULL,
    wire BLOB NOT NULL,
    mono REAL NOT NULL,
    wall REAL NOT NULL,
    agent TEXT NOT NULL,
    call TEXT NOT NULL,
    name TEXT NOT NULL,
    event BLOB NOT NULL,
    internal BLOB
);
"""
_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# A row as a Python object costs twice what SQLite needs to find it, so it joins them itself.
_JOIN = """
SELECT sum(size), CAST(group_concat(wire, '') FILTER (WHERE size <= ?) AS BLOB) FROM (
    SELECT wire, length(wire) AS size FROM log
    WHERE revision >= ? AND revision < ? ORDER BY revision
)
"""
# Before SQLite 3.39 a joined text ended at its first zero byte.
_JOINS = "SELECT length(CAST(group_concat(x, '') AS BLOB)) FROM (SELECT x'0000' AS x)"


class Record(NamedTuple):
    """One event on its way into the log."""

    revision: int
    decision: int  # the first revision of the same decision
    wire: bytes  # as watchers get it
    mono: float  # seconds of the monotonic clock
    wall: float  # seconds since the epoch
    agent: str
    call: str
    name: str  # as clients filter by it
    event: bytes  # `encode_event` of it
    internal: bytes | None  # as those get it who ask for internal prompts, if it differs

    @classmethod
    def of(
        cls, stamp: Stamp, event: Event, name: str, wire: bytes, internal: bytes | None
    ) -> Record:
        return cls(
            stamp.revision,
            stamp.decision,
            wire,
            stamp.mono,
            stamp.wall,
            event.agent,
            getattr(event, "call", ""),
            name,
            encode_event(event),
            internal,
        )


class Row(NamedTuple):
    """What a watcher needs of one event."""

    revision: int
    decision: int
    wire: bytes
    agent: str
    call: str
    name: str
    internal: bytes | None


class Log:
    """An append-only sequence of events, with revisions that increase by one.

    All methods belong to one thread, except `checkpoint` and `sync`.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._checked = True  # `_last` is known to be what is on the disk
        self._rows_since_checkpoint = 0
        self._oldest = 1
        self._last = 0
        with self._told("be opened"):
            # Prompts and commands are in it. The files beside it get the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._writer = self._connect()
            try:
                self._prepare()
                self._reader = self._connect()
            except BaseException:
                self._writer.close()
                raise
        for connection in (self._writer, self._reader):
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        self._cursor = self._writer.cursor()
        self._joins = self._reader.execute(_JOINS).fetchone() == (2,)

    @classmethod
    def open(cls, path: str | os.PathLike[str], durability: Durability = "process") -> Self:
        """Open the log, made anew if it is not there.

        Raises `StoreError` if the file is not a log, is damaged, or comes from a newer version.
        """
        return cls(Path(path), durability)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    # ------------------------------------------------------------ writing

    def append(self, records: Sequence[Record]) -> None:
        """Make a batch durable: all of it or nothing.

        Raises `StoreError` if the disk refuses. The same batch may be given again, also when
        the failed attempt reached the disk after all.
        """
        if not records:
            return
        first = records[0][0]
        if not self._checked:
            self._check()
        if first != self._last + 1:
            if self._holds(records):
                return
            raise ValueError(f"revision {first} cannot follow revision {self._last}")
        cursor = self._cursor
        try:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(_INSERT, records)
            cursor.execute("COMMIT")
        except BaseException as error:
            self._undo()
            if isinstance(error, sqlite3.DatabaseError):
                raise StoreError(f"{self.path} cannot be written: {error}") from error
            raise
        self._last = records[-1][0]
        self._rows_since_checkpoint += len(records)

    def compact(self, before: int, rows: int = 2000) -> bool:
        """Remove events before a revision, at most `rows` of them (a few milliseconds).

        True: there is more to remove, call again. Decisions are removed whole, so the cut may
        come to lie a little earlier. Revisions are never reused, also in an emptied log.
        """
        if not self._checked:
            self._check()
        with self._told("be compacted"):
            before = self._decision_of(min(before, self._last + 1))
            if before <= self._oldest:
                return False
            cut = min(before, self._next_decision(self._oldest + rows))
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                self._writer.execute("DELETE FROM log WHERE revision < ?", (cut,))
                self._writer.execute("UPDATE meta SET value = ? WHERE key = 'oldest'", (cut,))
                self._writer.execute("COMMIT")
            except BaseException:
                self._undo()
                raise
        self._oldest = cut
        self._rows_since_checkpoint += rows
        return cut < before

    def checkpoint_due(self) -> bool:
        """Enough was written since the last `checkpoint`."""
        return self._rows_since_checkpoint >= _CHECKPOINT_ROWS

    def checkpoint(self) -> None:
        """Move what was written from the write-ahead log into the table's pages.

        For a thread of its own: it takes milliseconds, syncs the disk, and holds up neither
        `append` nor `read`. Not needed for durability.
        """
        self._rows_since_checkpoint = 0
        with self._told("be checkpointed"), contextlib.closing(self._connect()) as connection:
            # What was appended meanwhile is left over, and as long as anything is, the file
            # only grows: the second and third time there is little to do.
            for _ in range(3):
                _, pages, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages == moved:
                    break

    def sync(self) -> None:
        """Make all that was appended survive the death of the machine. For any thread."""
        try:
            fd = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path}-wal cannot be synced: {error.strerror}") from error
        try:
            os.fsync(fd)
        except OSError as error:
            raise StoreError(f"{self.path}-wal cannot be synced: {error.strerror}") from error
        finally:
            os.close(fd)

    # ------------------------------------------------------------ reading

    def last_revision(self) -> int:
        """0 for a log that never had an event."""
        return self._last

    def refresh(self) -> None:
        """Look again where the log ends, if it is another process that writes to it."""
        self._check()

    def oldest_revision(self) -> int:
        """The first revision that can be read: one after the last, if none is left."""
        return self._oldest

    def read(self, start: int, limit: int = 1000, max_bytes: int = 1 << 20) -> list[Row]:
        """Events from a revision on, in order; empty at the end of the log.

        Decisions are never split: the list ends with a whole one, and holds more than `limit`
        events or `max_bytes` only if the first decision alone does. A start before
        `oldest_revision` is the caller's to refuse.
        """
        rows: list[Row] = []
        size = whole = decision = 0
        make = Row._make
        with self._told("be read"):
            cursor = self._reader.execute(
                "SELECT revision, decision, wire, agent, call, name, internal FROM log "
                "WHERE revision >= ? ORDER BY revision",
                (start,),
            )
            # An open statement would keep the write-ahead log from being reused.
            with contextlib.closing(cursor):
                for found in cursor:
                    row = make(found)
                    if row.decision != decision:
                        decision = row.decision
                        whole = len(rows)
                    size += len(row.internal or row.wire)
                    if whole and (len(rows) >= limit or size > max_bytes):
                        del rows[whole:]
                        break
                    rows.append(row)
        return rows

    def wires(self, start: int, max_bytes: int) -> tuple[int, bytes]:
        """The revision after the next events, and their `wire` in one piece: for a reader of
        everything a third of what `read` costs. Decisions are never split. There must be a
        next event.

        A piece of more than `max_bytes` is a single decision, or all its events are short: at
        most 1 MiB.
        """
        end = self._decision_of(min(start + _JOINED_ROWS, self._last + 1))
        if self._joins and end > start:
            total, wires = self._join(start, end, _SHORT)
            if len(wires) != total and total <= max_bytes:
                total, wires = self._join(start, end, total)
            if len(wires) == total:
                return end, wires
        rows = self.read(start, _JOINED_ROWS, max_bytes)
        return rows[-1].revision + 1, b"".join([row.wire for row in rows])

    def _join(self, start: int, end: int, longest: int) -> tuple[int, bytes]:
        """The size of all `wire` in [start, end), and those joined that are not too long."""
        with self._told("be read"):
            total, wires = self._reader.execute(_JOIN, (longest, start, end)).fetchone()
        return total, wires or b""

    def replay(self, after: int) -> Iterator[tuple[Stamp, Event]]:
        """All events after a revision, in order.

        Raises `StoreError` at a hole, or at an event that this version does not know.
        """
        expected = after + 1
        with self._told("be read"), contextlib.closing(self._connect()) as connection:
            cursor = connection.execute(
                "SELECT revision, decision, mono, wall, event FROM log "
                "WHERE revision > ? ORDER BY revision",
                (after,),
            )
            while found := cursor.fetchmany(_REPLAY_ROWS):
                for revision, decision, mono, wall, payload in found:
                    if revision != expected:
                        raise StoreError(f"{self.path} is damaged: revision {expected} is missing")
                    expected += 1
                    try:
                        event = decode_event(payload)
                    except ValueError as error:
                        raise StoreError(
                            f"{self.path}: revision {revision} cannot be understood ({error}); "
                            "it is damaged or was written by a newer version"
                        ) from error
                    yield Stamp(revision, decision, mono, wall), event

    # ------------------------------------------------------------ inside

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """SQLite's and the system's errors as one clear line."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} cannot {what}: {error}") from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot {what}: {error.strerror}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, cached_statements=32
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_BACKSTOP_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_FILE_LIMIT}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        """Check the file, or fill a new one, and read where the log stands."""
        db = self._writer
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        if not tables:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(
                    f"{self.path} cannot have a write-ahead log: use a local file system"
                )
            db.executescript(
                f"BEGIN IMMEDIATE; {_TABLES}"
                f"INSERT INTO meta VALUES ('schema', {SCHEMA}), ('oldest', 1);"
                f"PRAGMA application_id = {_APPLICATION_ID}; COMMIT;"
            )
        elif application != _APPLICATION_ID:
            raise StoreError(f"{self.path} is not a log of pinfold")
        meta = dict(db.execute("SELECT key, value FROM meta"))
        schema = meta.get("schema", 0)
        if schema > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer version (schema {schema}, this one knows "
                f"{SCHEMA}): start that version, or use another state directory"
            )
        if schema < 1 or "oldest" not in meta:
            raise StoreError(f"{self.path} is damaged: it does not say what schema it has")
        if schema < SCHEMA:
            raise StoreError(
                f"{self.path} was written before the first release (schema {schema}, this one "
                f"knows {SCHEMA}): move it away, or use another state directory"
            )
        self._oldest = int(meta["oldest"])
        self._last = self._read_last()

    def _read_last(self) -> int:
        first, last = self._writer.execute(
            "SELECT (SELECT min(revision) FROM log), (SELECT max(revision) FROM log)"
        ).fetchone()
        if first is None:
            return self._oldest - 1
        if first != self._oldest:
            raise StoreError(f"{self.path} is damaged: revision {self._oldest} is missing")
        return int(last)

    def _undo(self) -> None:
        """After a failure: back to what is on the disk, whatever that is."""
        self._checked = False
        with contextlib.suppress(StoreError, sqlite3.Error):
            self._check()

    def _check(self) -> None:
        with self._told("be read"):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            self._last = self._read_last()
        self._checked = True

    def _holds(self, records: Sequence[Record]) -> bool:
        """The log has exactly these records already."""
        with self._told("be read"):
            found = self._writer.execute(
                "SELECT * FROM log WHERE revision BETWEEN ? AND ? ORDER BY revision",
                (records[0][0], records[-1][0]),
            ).fetchall()
        return found == list(records)

    def _decision_of(self, revision: int) -> int:
        """Where the decision that a revision belongs to begins."""
        found = self._writer.execute(
            "SELECT decision FROM log WHERE revision = ?", (revision,)
        ).fetchone()
        return revision if found is None else int(found[0])

    def _next_decision(self, revision: int) -> int:
        """Where the first decision that begins at a revision or later does so."""
        found = self._writer.execute(
            "SELECT revision FROM log WHERE revision >= ? AND decision = revision "
            "ORDER BY revision LIMIT 1",
            (revision,),
        ).fetchone()
        return self._last + 1 if found is None else int(found[0])
