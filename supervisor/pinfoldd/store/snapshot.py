"""Snapshots: the whole state in one file, so that a start need not replay the whole log.

A file is a sequence of checksummed frames: a header, the state without its calls, then the
calls in slices. It is never changed: a new one takes its name when it is complete.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import os
import re
import struct
import time
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import cast

from msgspec import Struct

from pinfoldd.core.model import Agent, Call, State
from pinfoldd.store.codec import Codec
from pinfoldd.store.errors import StoreError
from pinfoldd.store.log import Log

FORMAT = 1
"""Version of the files' format."""

KEPT = 2
"""Snapshots that are kept: the newest, and one to fall back on."""

_MAGIC = b"PINFSNAP"
_FRAME = struct.Struct("<II")  # length and CRC-32 of what follows
_SLICE = 2000  # calls
_STRAY_SECONDS = 3600.0  # after which a file that was never completed is taken away
_NAME = re.compile(r"snapshot-(\d{20})")

log = logging.getLogger("pinfoldd.store")


class _Row(Call, array_like=True):
    """A call as a row of values: without the names of the fields it is 60 % smaller.

    The layout is that of `Call`, and so the class of an object can be changed for the other's.
    """


class _Header(Struct, array_like=True):
    format: int
    revision: int
    slices: int
    fields: tuple[str, ...]  # of the rows. A later version may have more, at the end


class _Slice(Struct, array_like=True):
    agent: str
    calls: list[_Row]


_headers: Codec[_Header] = Codec(_Header)
_states: Codec[State] = Codec(State)
_slices: Codec[_Slice] = Codec(_Slice)


class Snapshots:
    """The snapshot files of one log, in one directory."""

    def __init__(self, directory: str | os.PathLike[str], log: Log) -> None:
        self.directory = Path(directory)
        self._log = log

    def save(self, state: State) -> Path:
        """Write a snapshot: about 1.5 ms for 1,000 calls. For a daemon: `Store.take_snapshot`.

        Raises `StoreError` if the disk refuses; the snapshots there were are still there.
        """
        target = self._path(state.revision)
        # Two processes may be at it: one whose daemon was killed, and the next daemon.
        partial = self.directory / f"{target.name}.{os.getpid()}.partial"
        # A snapshot that is ahead of its log would be of no use.
        self._log.sync()
        try:
            with open(partial, "wb", opener=_private) as file:
                file.write(_MAGIC)
                for payload in _frames(state):
                    file.write(_FRAME.pack(len(payload), zlib.crc32(payload)))
                    file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
            _sync_directory(self.directory)
            for revision in self._revisions()[KEPT:]:
                self._path(revision).unlink(missing_ok=True)
            for stray in self.directory.glob("snapshot-*.partial"):
                if stray.stat().st_mtime < time.time() - _STRAY_SECONDS:
                    stray.unlink(missing_ok=True)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StoreError(f"{target} cannot be written: {error.strerror}") from error
        return target

    def load(self) -> State | None:
        """The newest snapshot that can be read and that the log goes on from.

        None: there is none, and the log is complete. One that can't be used is left out and
        renamed, with a line in the daemon's log. Raises `StoreError` if the log can't make up
        for it.
        """
        left_out = 0
        revisions = self._revisions()
        if revisions and revisions[0] > self._log.last_revision():
            self._log.refresh()  # its daemon may have written both just now
        for revision in revisions:
            path = self._path(revision)
            try:
                if revision > self._log.last_revision():
                    raise ValueError(f"the log ends before it, at {self._log.last_revision()}")
                if revision + 1 < self._log.oldest_revision():
                    raise ValueError(f"the log begins after it, at {self._log.oldest_revision()}")
                state = _read(path)
                if state.revision != revision:
                    raise ValueError(f"it is of revision {state.revision}")
            except (ValueError, OSError) as error:
                left_out += 1
                log.warning("snapshot %s is left out: %s", path, error)
                if isinstance(error, ValueError):
                    # It must not be counted on when the log is compacted.
                    with contextlib.suppress(OSError):
                        path.rename(path.with_suffix(".unusable"))
                continue
            if left_out:
                log.warning("starting from the older snapshot %s", path)
            return state
        if self._log.oldest_revision() > 1:
            raise StoreError(
                f"{self._log.path} begins at revision {self._log.oldest_revision()} and no "
                f"snapshot in {self.directory} goes with it: the state cannot be known"
            )
        if left_out:
            log.warning("starting from the whole log, without a snapshot")
        return None

    def needed_from(self) -> int:
        """The first revision that a start may still need, if the newest snapshot breaks."""
        revisions = self._revisions()
        return revisions[KEPT - 1] + 1 if len(revisions) >= KEPT else 1

    def _path(self, revision: int) -> Path:
        return self.directory / f"snapshot-{revision:020d}"

    def _revisions(self) -> list[int]:
        """Of the snapshots there are, newest first."""
        try:
            names = os.listdir(self.directory)
        except OSError as error:
            raise StoreError(f"{self.directory} cannot be read: {error.strerror}") from error
        return sorted((int(m[1]) for m in map(_NAME.fullmatch, names) if m), reverse=True)


def _frames(state: State) -> Iterator[bytes]:
    slices = sum(-(-len(agent.calls) // _SLICE) for agent in state.agents.values())
    yield _headers.encode(_Header(FORMAT, state.revision, slices, Call.__struct_fields__))
    head = copy.copy(state)
    head.agents = {agent.id: _without_calls(agent) for agent in state.agents.values()}
    yield _states.encode(head)
    for agent in state.agents.values():
        calls = iter(agent.calls.values())
        while part := list(islice(calls, _SLICE)):
            yield _slices.encode(_Slice(agent.id, list(map(_row, part))))


def _without_calls(agent: Agent) -> Agent:
    bare = copy.copy(agent)
    bare.calls = {}
    return bare


def _row(call: Call) -> _Row:
    row = copy.copy(call)
    row.__class__ = _Row
    return cast(_Row, row)


def _read(path: Path) -> State:
    """Raises `ValueError` with what is wrong with the file."""
    data = memoryview(path.read_bytes())
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it is not a snapshot")
    frames = _checked(data)
    collecting = gc.isenabled()
    gc.disable()  # nothing of what is made here is garbage
    try:
        header = _headers.decode(next(frames, b""))
        if header.format != FORMAT:
            raise ValueError(f"it has format {header.format}, this version knows {FORMAT}")
        if header.fields != Call.__struct_fields__[: len(header.fields)]:
            raise ValueError("its calls have other fields than this version's")
        state = _states.decode(next(frames, b""))
        found = 0
        for frame in frames:
            part = _slices.decode(frame)
            calls = state.agents[part.agent].calls
            for call in part.calls:
                call.__class__ = Call  # type: ignore[assignment]
                calls[call.id] = call
            found += 1
        if found != header.slices:
            raise ValueError(f"it is cut off: {found} of {header.slices} slices")
    except (KeyError, IndexError) as error:
        raise ValueError(f"it does not fit together: {error!r}") from error
    finally:
        if collecting:
            gc.enable()
    return state


def _checked(data: memoryview) -> Iterator[memoryview]:
    position = len(_MAGIC)
    while position < len(data):
        if position + _FRAME.size > len(data):
            raise ValueError("it is cut off")
        length, checksum = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        frame = data[position : position + length]
        if len(frame) != length:
            raise ValueError("it is cut off")
        if zlib.crc32(frame) != checksum:
            raise ValueError(f"its checksum is wrong at byte {position}")
        yield frame
        position += length


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
