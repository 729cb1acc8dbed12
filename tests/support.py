"""A real supervisor for tests, and the count of what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pinfold import Client, SyncClient

T = TypeVar("T")

# Not a name of pinfold's own: those are kept from the programs that calls run.
MARKER = "TEST_OF_PINFOLD"
READY_TIMEOUT = 30.0


def environ_of(pid: int) -> dict[bytes, bytes]:
    """The environment a process was started with; empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(entry.split(b"=", 1) for entry in raw.split(b"\0") if b"=" in entry)


def is_zombie(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat.rpartition(b")")[2].split()[0] in (b"Z", b"X")


def processes_with(name: str, value: str) -> list[int]:
    """Live processes that were started with `name=value` in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            pid = int(entry)
            if environ_of(pid).get(name.encode()) == value.encode() and not is_zombie(pid):
                found.append(pid)
    return found


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        return raw.replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def eventually(check: Callable[[], T], timeout: float = 5.0) -> T:
    """The first true value of `check`, or its last value when the time is up."""
    deadline = time.monotonic() + timeout
    while not (value := check()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


class Supervisor:
    """`python -m pinfoldd` on a state directory of its own, with a short path.

    Everything that it starts carries a marker in its environment: the daemon, the keeper, and
    the processes of all calls.
    """

    def __init__(self, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
        self.state = self.directory / "state"
        self.marker = uuid.uuid4().hex
        self.arguments = list(arguments)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")},
            "GRPC_ENABLE_FORK_SUPPORT": "0",
            MARKER: self.marker,
            **(env or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.directory / "pinfoldd.log"

    @property
    def address(self) -> str:
        return f"unix:{self.state / 'pinfold.sock'}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Starts it, or starts it again, and returns when it is ready."""
        read, write = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pinfoldd",
                    "--state",
                    str(self.state),
                    "--ready-fd",
                    str(write),
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.directory,
                pass_fds=[write],
                start_new_session=True,
            )
        os.close(write)
        try:
            ready = select.select([read], [], [], READY_TIMEOUT)[0] and os.read(read, 4096)
        finally:
            os.close(read)
        if not ready:
            self.process.kill()
            code = self.process.wait()
            raise AssertionError(f"pinfoldd was not ready (exit code {code}):\n{self.log_text()}")
        with self.sync_client() as client:
            client.info()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL to the daemon alone: the keeper and its groups live on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def client(self, *, patience: float = 15.0) -> Client:
        return Client.connect(self.address, token="", patience=patience)

    def sync_client(self, *, patience: float = 15.0) -> SyncClient:
        return SyncClient.connect(self.address, token="", patience=patience)

    def cli_env(self) -> dict[str, str]:
        return {**self.env, "PINFOLD_STATE": str(self.state)}

    def cli(
        self,
        *arguments: str,
        input: bytes | None = None,
        timeout: float = 40.0,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """`pinfold ARGUMENTS`, with this state directory in its environment."""
        return subprocess.run(
            [sys.executable, "-m", "pinfold", *arguments],
            stdin=subprocess.DEVNULL if input is None else None,
            input=input,
            capture_output=True,
            env={**self.cli_env(), **(env or {})},
            cwd=cwd or self.directory,
            timeout=timeout,
            check=False,
        )

    def marked(self) -> list[int]:
        """All live processes of this supervisor, itself and its keeper among them."""
        return processes_with(MARKER, self.marker)

    def survivors(self) -> list[int]:
        """Live processes of calls: all of them but the daemon, the keeper and the like."""
        own = ("pinfoldd", "-m pinfold ")
        return [pid for pid in self.marked() if not any(word in command_line(pid) for word in own)]

    def assert_no_survivors(self, timeout: float = 3.0) -> None:
        eventually(lambda: not self.survivors(), timeout)
        left = {pid: command_line(pid) for pid in self.survivors()}
        assert not left, f"processes left: {left}"

    def stop(self) -> None:
        """Ends it and everything of it, then fails when any process with the marker is left."""
        complaint = ""
        try:
            if self.process is not None:
                if self.process.poll() is None:
                    self.process.terminate()
                    try:
                        self.process.wait(timeout=20)
                    except subprocess.TimeoutExpired:
                        complaint = "pinfoldd does not end on SIGTERM"
                        self.process.kill()
                        self.process.wait()
                eventually(lambda: not self.marked(), 5.0)
                left = {pid: command_line(pid) for pid in self.marked()}
                if left:
                    complaint = f"{complaint}; processes left: {left}".lstrip("; ")
        finally:
            for pid in self.marked():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            log = self.log_text()
            shutil.rmtree(self.directory, ignore_errors=True)
        assert not complaint, f"{complaint}\n{log[-4000:]}"
