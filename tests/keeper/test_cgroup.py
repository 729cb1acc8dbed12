"""The optional cgroup of each group, where this machine lets one be made."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator

import pytest

from keeper.harness import Harness, alive, eventually
from pinfoldd.keeper.client import KeeperError
from pinfoldd.keeper.messages import Empty, Started

pytestmark = pytest.mark.timeout(60)

CANDIDATES = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")


def removed(path: str) -> bool:
    """Whether the kernel has let go of all cgroups below `path` (it takes a moment)."""
    for root, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(root)  # noqa: PTH106
        except OSError:
            return False
    return True


@pytest.fixture
def directory() -> Iterator[str]:
    for parent in CANDIDATES:
        path = f"{parent}/pinfold-test-{os.getpid()}-{time.monotonic_ns()}"
        try:
            os.makedirs(path)
        except OSError:
            continue
        if os.path.exists(f"{path}/cgroup.kill"):
            yield path
            eventually(functools.partial(removed, path))
            return
        os.rmdir(path)  # noqa: PTH106
    pytest.skip("no cgroup v2 that may be written")


def inside(directory: str) -> list[str]:
    return [name for root, names, _ in os.walk(directory) for name in names if name.isdigit()]


@pytest.fixture
def fenced(directory: str, make: Callable[..., Harness]) -> Harness:
    keeper = make(cgroup=directory)
    assert keeper.link.hello.containment == "subreaper+cgroup"
    return keeper


@pytest.mark.parametrize(
    "script",
    [
        "sleep MARK",
        "setsid bash -c 'while :; do (sleep MARK &); done' & sleep MARK",
        "trap '' TERM; (setsid sh -c \"trap '' TERM; sleep MARK\" &) ; sleep MARK; sleep MARK",
    ],
)
def test_group_is_ended_and_its_cgroup_removed(
    fenced: Harness, directory: str, mark: str, script: str
) -> None:
    group = fenced.spawn(script.replace("MARK", mark))
    fenced.link.wait(Started, group)
    eventually(lambda: alive(mark))
    assert inside(directory) == [str(group)]
    time.sleep(0.05)
    receipt = fenced.stop(group, 0.2).receipt
    assert not alive(mark)
    assert receipt is not None
    assert receipt.proof == "cgroup"
    eventually(lambda: not inside(directory))


def test_one_that_sheds_every_sign_is_still_of_the_group(fenced: Harness, mark: str) -> None:
    """No mark, no session, no environment: the cgroup knows it all the same."""
    exited = fenced.run(f"ulimit -m 100; (env -i setsid setsid sh -c 'sleep {mark} & exit' &)")
    assert exited.code == 0
    eventually(lambda: len(alive(mark)) == 1)
    assert not fenced.link.of(exited.group, Empty)
    fenced.stop(exited.group, 0.5)
    assert not alive(mark)


def test_ordinary_commands(fenced: Harness, directory: str) -> None:
    groups = [fenced.run("exit 3").group for _ in range(20)]
    for group in groups:
        fenced.link.wait(Empty, group)
    eventually(lambda: not inside(directory))


def test_after_a_killed_keeper(fenced: Harness, directory: str, mark: str) -> None:
    fenced.started(f"sleep {mark}")
    eventually(lambda: alive(mark))
    fenced.process.kill()
    fenced.restart()
    assert not alive(mark)
    fenced.link.close()
    fenced.process.terminate()
    fenced.process.wait()
    fenced.restart()
    assert not inside(directory)


def test_unusable_directory(make: Callable[..., Harness]) -> None:
    with pytest.raises(KeeperError, match="can't use the cgroup directory"):
        make(cgroup="/proc")
