"""A daemon that is killed in the middle of its appends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pinfoldd.store import Log

CHILD = """
import os, sys
from pinfoldd.core.events import CallBackgrounded
from pinfoldd.store import Log, Record, encode_event

log = Log.open(sys.argv[1], sys.argv[2])
event = encode_event(CallBackgrounded("root", "c"))
while True:
    first = log.last_revision() + 1
    size = 1 + first % 7
    log.append(
        [
            Record(n, first, b"x" * (n % 3000), 1.0, 2.0, "root", "c", str(size), event, None)
            for n in range(first, first + size)
        ]
    )
    os.write(1, b"%d\\n" % log.last_revision())
"""


@pytest.mark.parametrize("durability", ["process", "full"])
def test_every_acknowledged_batch_is_there_and_none_in_part(
    tmp_path: Path, durability: str
) -> None:
    path = tmp_path / "log.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), durability],
            stdout=subprocess.PIPE,
            env=environment,
        ) as child:
            assert child.stdout is not None
            acknowledged = int(child.stdout.readline())
            os.set_blocking(child.stdout.fileno(), False)
            until = time.monotonic() + random.uniform(0.01, 0.1)
            told = b""
            while time.monotonic() < until:
                told += child.stdout.read() or b""
            child.send_signal(signal.SIGKILL)
            child.wait()
            told += child.stdout.read() or b""
        acknowledged = max([acknowledged, *map(int, told.splitlines()[:-1])])
        log = Log.open(path)
        assert log.last_revision() >= acknowledged > 0
        sizes: dict[int, int] = {}
        expected = 1
        start = 1
        while rows := log.read(start):
            for row in rows:
                assert row.revision == expected
                expected += 1
                sizes[row.decision] = sizes.get(row.decision, 0) + 1
            start = expected
        assert all(size == 1 + decision % 7 for decision, size in sizes.items())
        assert expected == log.last_revision() + 1
        assert sum(1 for _ in log.replay(0)) == log.last_revision()
        log.close()
