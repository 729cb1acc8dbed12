"""A supervisor of the plan's own: on a fresh state directory, with the settings it needs,
stopped afterwards, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from pinfold import launch
from pinfold.client import Client
from pinfold.verify.plan import NEEDED_ROLE

_STOP_SECONDS = 30.0
_EXIT_SECONDS = 10.0

MARKER = "PINFOLD_VERIFICATION"

# Short limits for waiting reads, so that they can be seen at work.
SETTINGS = f"""{NEEDED_ROLE}
[tasks]
waitTimeoutMs = 3000
maxWaitTimeoutMs = 8000
"""


# A process has one environment, and several supervisors may be started at a time.
_starting = threading.Lock()


class Own:
    """Started by `started`. Everything of it carries a marker in its environment."""

    def __init__(self, state: Path, marker: str) -> None:
        self.state = state
        self._marker = marker
        self.left: list[str] = []
        """Command lines of processes that were alive after it was stopped."""

    def start(self) -> None:
        with _starting, _environment(self._marker):
            launch.start_detached(self.state)

    async def stop(self) -> None:
        """Returns when its daemon has exited: then another may be started.

        One that does not answer is left to the count of what is left.
        """
        async with Client.connect(state=self.state, token="") as client:
            daemon = os.pidfd_open((await client.info()).pid)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP_SECONDS):
                        await client.stop(grace=1.0, reason="verified")
                await asyncio.to_thread(select.select, [daemon], [], [], _EXIT_SECONDS)
            finally:
                os.close(daemon)

    def processes(self) -> dict[int, str]:
        wanted = f"{MARKER}={self._marker}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            # A zombie has no command line.
            if wanted in variables and command:
                found[int(entry.name)] = command.decode(errors="replace").strip()
        return found


@contextlib.contextmanager
def _environment(marker: str) -> Iterator[None]:
    """The daemon's settings are the plan's, whatever the caller's environment says."""
    saved = dict(os.environ)
    for name in saved:
        if name.startswith("PINFOLD_"):
            del os.environ[name]
    os.environ[MARKER] = marker
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


@contextlib.asynccontextmanager
async def started(settings: str = SETTINGS) -> AsyncIterator[Own]:
    """A supervisor for as long as the block lasts; then `left` says what was left of it.

    Raises UnavailableError with the daemon's words when it does not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="pinfold-verify-"))
    own = Own(directory / "state", uuid.uuid4().hex)
    try:
        own.state.mkdir(mode=0o700)
        (own.state / "pinfold.toml").write_text(settings)
        await asyncio.to_thread(own.start)
        try:
            yield own
        finally:
            await own.stop()
    finally:
        await asyncio.to_thread(_count_left, own)
        shutil.rmtree(directory, ignore_errors=True)


def _count_left(own: Own) -> None:
    """The keeper goes after the daemon."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while (left := own.processes()) and time.monotonic() < deadline:
        time.sleep(0.02)
    own.left = [f"{pid} {command}" for pid, command in left.items()]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
