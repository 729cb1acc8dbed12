"""Starting a supervisor: ready, refused, failed, and many at once."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinfold import errors, launch

# A daemon of a few lines: holds the socket, says that it is ready, ends with its state.
DAEMON = """
import os, socket, sys, time
state, ready = sys.argv[1], int(sys.argv[2])
with open(os.path.join(state, "starts"), "a") as starts:
    starts.write("x")
time.sleep(0.2)
server = socket.socket(socket.AF_UNIX)
server.bind(os.path.join(state, "pinfold.sock"))
server.listen(64)
os.write(ready, b"ready\\n")
deadline = time.monotonic() + 20
while os.path.isdir(state) and time.monotonic() < deadline:
    time.sleep(0.02)
"""


@pytest.fixture
def state() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
    yield directory / "state"
    shutil.rmtree(directory)


def use(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    def command(state: Path, arguments: list[str]) -> list[str]:
        ready = arguments[arguments.index("--ready-fd") + 1]
        return [sys.executable, "-c", program, str(state), ready]

    monkeypatch.setattr(launch, "command", command)


def test_ready(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    use(monkeypatch, DAEMON)
    assert not launch.is_listening(state)
    assert launch.ensure_running(state)
    assert launch.is_listening(state)
    assert not launch.ensure_running(state)
    assert state.stat().st_mode & 0o777 == 0o700


def test_many_at_once_start_one(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    use(monkeypatch, DAEMON)
    started: list[bool] = []
    threads = [
        threading.Thread(target=lambda: started.append(launch.ensure_running(state)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False] * 7 + [True]
    assert (state / "starts").read_text() == "x"


def test_its_own_words_when_it_fails(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    use(monkeypatch, "import sys; sys.exit('no room left')")
    with pytest.raises(errors.UnavailableError, match="did not start: no room left .see .*log"):
        launch.ensure_running(state)


def test_refused_because_another_is_starting(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    # Started by hand, it holds the directory and will be there in a moment.
    use(monkeypatch, DAEMON)
    other = threading.Thread(target=launch.start_detached, args=(state,))

    def refuse(_: Path, arguments: list[str]) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit(3)"]

    monkeypatch.setattr(launch, "_start_lock", lambda *_: __import__("contextlib").nullcontext())
    state.mkdir()
    other.start()
    while not (state / "starts").exists():
        pass
    monkeypatch.setattr(launch, "command", refuse)
    assert launch.start_detached(state) is False
    other.join()


def test_state_directory_that_cannot_be(state: Path) -> None:
    state.parent.joinpath("file").write_text("")
    with pytest.raises(errors.UnavailableError, match="cannot use the state directory"):
        launch.ensure_running(state.parent / "file" / "state")
