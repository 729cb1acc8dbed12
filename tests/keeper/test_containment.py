"""When a group is empty, and what numbers that were used before have to do with it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from keeper.harness import Harness
from pinfoldd.keeper.containment import Containment
from pinfoldd.keeper.group import Group
from pinfoldd.keeper.loop import Loop
from pinfoldd.keeper.marker import Marker
from pinfoldd.keeper.messages import Exited


@pytest.fixture
def containment() -> Containment:
    return Containment(Loop(), Marker(1), None, lambda _: None, lambda: ())


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process group of a process that isn't below this one."""
    command = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
    pid = int(subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout)
    while os.getpgid(pid) != pid:
        time.sleep(0.001)
    yield pid
    os.kill(pid, 9)


def empty(containment: Containment, pgid: int) -> bool:
    """Of a group whose leader was reaped and that has no orphans."""
    return containment.is_empty(Group(1, pid=pgid), lambda: None)


def test_a_number_that_is_a_strangers_by_now_keeps_nobody(
    containment: Containment, stranger: int
) -> None:
    assert empty(containment, stranger)


def test_a_process_below_us_keeps_its_group(containment: Containment) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000; :"], start_new_session=True) as child:
        assert not empty(containment, child.pid)
        os.killpg(child.pid, 9)
        child.wait()
        assert empty(containment, child.pid)


def test_memory_of_a_small_command_after_a_large_order(own: Harness) -> None:
    """A child begins with the keeper's own peak, which is nothing to tell of it."""
    own.link.wait(Exited, own.spawn(b"true\n#" + b"x" * (8 << 20)))
    assert own.run("true").max_rss < 16 << 20
