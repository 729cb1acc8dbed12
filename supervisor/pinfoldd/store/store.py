"""The store of one state directory: its log and its snapshots, kept consistent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from pinfoldd.core.events import Event
from pinfoldd.core.model import State
from pinfoldd.core.values import Stamp
from pinfoldd.store.errors import StoreError
from pinfoldd.store.log import Durability, Log
from pinfoldd.store.snapshot import Snapshots

_SNAPSHOT_SECONDS = 600.0


class Recovered(NamedTuple):
    """Where a start begins: a state, and the events that came after it."""

    state: State
    events: Iterator[tuple[Stamp, Event]]


class Store:
    """The log and the snapshots of one state directory.

    At most one process may have it open: the daemon's lock sees to that.
    """

    def __init__(self, directory: Path, durability: Durability) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{directory} cannot be made: {error.strerror}") from error
        self.directory = directory
        self.log = Log.open(directory / "log.db", durability)
        self.snapshots = Snapshots(directory, self.log)

    @classmethod
    def open(cls, directory: str | os.PathLike[str], durability: Durability = "process") -> Self:
        """Raises `StoreError`, in one clear line, if the state there can't be used."""
        return cls(Path(directory), durability)

    def close(self) -> None:
        self.log.close()

    def recover(self) -> Recovered:
        """The state at the newest usable snapshot, and the events to apply to it.

        Raises `StoreError` if they do not reach from the beginning to the end of the log; the
        iterator does so at an event that can't be read. A large state is hundreds of thousands
        of objects, none of them garbage: keep the garbage collector off meanwhile, and freeze
        them afterwards.
        """
        state = self.snapshots.load() or State()
        return Recovered(state, self.log.replay(state.revision))

    def take_snapshot(self) -> None:
        """Make a snapshot of what is committed, in a process of its own (see `snapshotter`).

        Blocks until it is there, up to ten minutes: for a thread. For a daemon that stops
        anyway, `snapshots.save` is quicker. Raises `StoreError` if there is no new snapshot;
        those there were are still there.
        """
        # The child finds the same modules, however this process found them.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pinfoldd.store.snapshotter", self.directory],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                timeout=_SNAPSHOT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreError(f"no new snapshot in {self.directory}: {error}") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit status {done.returncode}"
            raise StoreError(f"no new snapshot in {self.directory}: {reason}")

    def compact(self, before: int, rows: int = 2000) -> bool:
        """`Log.compact`, but never beyond what a start from the older snapshot needs."""
        return self.log.compact(min(before, self.snapshots.needed_from()), rows)
