"""The daemon's end of the link, on asyncio."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from keeper.harness import ENV, Harness
from pinfoldd.keeper.client import KeeperError, KeeperLink
from pinfoldd.keeper.messages import Acknowledge, Exited, Hello, Report, Spawn, Started

pytestmark = pytest.mark.timeout(30)


class Daemon:
    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.lost = 0
        self.changed = asyncio.Event()

    def on_report(self, report: Report) -> None:
        self.reports.append(report)
        self.changed.set()

    def on_lost(self) -> None:
        self.lost += 1
        self.changed.set()

    async def until(self, check: Any) -> None:
        async with asyncio.timeout(10):
            while not check():
                self.changed.clear()
                await self.changed.wait()


def test_orders_and_reports(own: Harness) -> None:
    async def main() -> None:
        daemon = Daemon()
        link = await KeeperLink.connect(own.state, daemon.on_report, daemon.on_lost)
        for group in range(1, 51):
            link.send(Spawn(group=group, body=b"exit 7", env=dict(ENV)))
        await daemon.until(lambda: sum(isinstance(r, Exited) for r in daemon.reports) == 50)
        assert isinstance(daemon.reports[0], Hello)
        started = [r.group for r in daemon.reports if isinstance(r, Started)]
        assert sorted(started) == list(range(1, 51))  # each is told with its end, or soon
        assert {r.code for r in daemon.reports if isinstance(r, Exited)} == {7}
        for group in range(1, 50):
            link.send(Acknowledge([group]))
        link.close()
        link.send(Acknowledge([50]))  # too late, and no error
        await asyncio.sleep(0.05)
        assert not daemon.lost
        again = Daemon()
        link = await KeeperLink.connect(own.state, again.on_report, again.on_lost)
        await again.until(lambda: again.reports)
        (hello,) = again.reports
        assert isinstance(hello, Hello)
        assert [report.group for report in hello.groups] == [50]
        own.process.kill()
        await again.until(lambda: again.lost)
        assert again.lost == 1
        link.send(Acknowledge([50]))
        link.close()

    asyncio.run(main())


def test_a_report_that_cannot_be_taken_in_ends_the_link(own: Harness) -> None:
    """Or the reports that came with it would be lost, and nobody would ask for them again."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        daemon = Daemon()

        def on_report(report: Report) -> None:
            daemon.on_report(report)
            if isinstance(report, Started):
                raise ValueError("a fault of ours")

        link = await KeeperLink.connect(own.state, on_report, daemon.on_lost)
        link.send(Spawn(group=1, body=b"exit 7", env=dict(ENV)))
        await daemon.until(lambda: daemon.lost)
        assert not [r for r in daemon.reports if isinstance(r, Exited)]
        again = Daemon()
        link = await KeeperLink.connect(own.state, again.on_report, again.on_lost)
        await again.until(lambda: again.reports)
        (hello,) = again.reports
        assert isinstance(hello, Hello)
        (report,) = hello.groups
        assert report.started
        assert (daemon.lost, again.lost) == (1, 0)
        link.close()

    asyncio.run(main())


def test_large_frames(own: Harness) -> None:
    async def main() -> None:
        daemon = Daemon()
        link = await KeeperLink.connect(own.state, daemon.on_report, daemon.on_lost)
        body = b": " + os.urandom(6 << 20).replace(b"\0", b"x").replace(b"\n", b"x") + b"\nexit 3"
        link.send(Spawn(group=1, body=b"#" + body, env=dict(ENV)))
        await daemon.until(lambda: any(isinstance(r, Exited) for r in daemon.reports))
        assert [r.code for r in daemon.reports if isinstance(r, Exited)] == [3]
        link.close()

    asyncio.run(main())


def test_nobody_there(state: str) -> None:
    async def main() -> None:
        daemon = Daemon()
        with pytest.raises(KeeperError, match="no keeper listens in"):
            await KeeperLink.connect(state, daemon.on_report, daemon.on_lost)

    asyncio.run(main())
