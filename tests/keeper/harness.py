"""A keeper for tests, a link to it, and a count of the processes that are left."""

from __future__ import annotations

import itertools
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pinfoldd.keeper.client import start_keeper
from pinfoldd.keeper.link import connect
from pinfoldd.keeper.messages import (
    Decoder,
    Empty,
    Exited,
    Hello,
    Order,
    Report,
    Spawn,
    Started,
    Stop,
    encode,
)
from pinfoldd.keeper.spool import Chunk, SpoolReader, paths

R = TypeVar("R")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


def alive(mark: str) -> list[int]:
    """The living processes whose command line holds `mark`."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in command and state not in b"ZX":
            found.append(int(name))
    return found


def eventually(check: Callable[[], Any], seconds: float = 5.0) -> Any:
    """The first true value of `check`, looked for often; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {check}"
        time.sleep(0.003)
    return value


def group_of(report: Report) -> int | None:
    return getattr(report, "group", None)


class Link:
    """A daemon that does only what a test tells it: orders out, reports in, in order."""

    def __init__(self, state: str) -> None:
        self.sock = connect(state)
        self.sock.setblocking(True)
        self._decoder = Decoder()
        self.queue: list[Report] = []
        self.seen: list[Report] = []
        self.hello = self.wait(Hello)

    def send(self, *orders: Order) -> None:
        self.sock.sendall(b"".join(map(encode, orders)))

    def next(self, seconds: float = 10.0) -> Report:
        deadline = time.monotonic() + seconds
        while not self.queue:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self.sock], [], [], max(left, 0))
            assert readable, f"no report within {seconds} s, the last were {self.seen[-4:]}"
            data = self.sock.recv(1 << 18)
            assert data, "the keeper closed the link"
            for report in self._decoder.feed(data):
                self.queue.append(report)  # type: ignore[arg-type]
                if isinstance(report, Exited) and report.end is not None:
                    self.queue.append(report.end)
        report = self.queue.pop(0)
        self.seen.append(report)
        return report

    def wait(self, kind: type[R], group: int | None = None, seconds: float = 10.0) -> R:
        """The next report of this class (of this group), also if it has come already."""
        for report in self.seen:
            if isinstance(report, kind) and (group is None or group_of(report) == group):
                return report
        while True:
            report = self.next(seconds)
            if isinstance(report, kind) and (group is None or group_of(report) == group):
                return report

    def of(self, group: int, kind: type[R]) -> list[R]:
        return [r for r in self.seen if isinstance(r, kind) and group_of(r) == group]

    def drain(self, seconds: float = 0.05) -> None:
        """Take in whatever comes within so long."""
        deadline = time.monotonic() + seconds
        while (
            self.queue or select.select([self.sock], [], [], max(deadline - time.monotonic(), 0))[0]
        ):
            self.next()

    def close(self) -> None:
        self.sock.close()


class Harness:
    """One keeper and a link to it."""

    _groups = itertools.count(1)

    def __init__(self, state: str, **settings: Any) -> None:
        self.state = state
        self.settings = settings
        self.process = start_keeper(state, **settings)
        self.link = Link(state)

    def restart(self) -> Hello:
        """After a kill: another keeper on the same state directory."""
        self.process.wait()
        self.link.close()
        self.process = start_keeper(self.state, **self.settings)
        self.link = Link(self.state)
        return self.link.hello

    def reconnect(self) -> Hello:
        self.link.close()
        self.link = Link(self.state)
        return self.link.hello

    def spawn(self, script: str | bytes = b"", **fields: Any) -> int:
        group = next(self._groups)
        fields.setdefault("env", dict(ENV))
        fields.setdefault("cwd", self.state)
        body = script.encode() if isinstance(script, str) else script
        self.link.send(Spawn(group=group, body=body, **fields))
        return group

    def started(self, script: str | bytes = b"", **fields: Any) -> int:
        group = self.spawn(script, **fields)
        self.link.wait(Started, group)
        return group

    def run(self, script: str | bytes = b"", **fields: Any) -> Exited:
        return self.link.wait(Exited, self.spawn(script, **fields))

    def stop(self, group: int, grace: float = 2.0) -> Empty:
        self.link.send(Stop(group, grace=grace))
        return self.link.wait(Empty, group, seconds=grace + 8)

    def chunks(self, group: int, size: int | None = None) -> list[Chunk]:
        if size is None:
            size = 1 << 50
        with SpoolReader(*paths(os.path.join(self.state, "spool"), group)) as reader:
            return reader.read(0, 1 << 40, size)

    def output(self, group: int, stream: int | None = None) -> bytes:
        return b"".join(c.data for c in self.chunks(group) if stream is None or c.stream == stream)

    def prints(self, group: int, text: bytes, seconds: float = 10.0) -> None:
        eventually(lambda: text in self.output(group), seconds)

    def close(self) -> None:
        """End it. Fails if it had to note a mistake of its own."""
        try:
            self.link.close()
            self.process.terminate()
            self.process.wait(15)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        with open(os.path.join(self.state, "keeper.log"), errors="replace") as file:
            log = file.read()
        assert "Traceback" not in log, log


def descriptors(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(str(Path(f"/proc/{pid}/fd/{name}").readlink()))
        except OSError:
            continue
    return found
