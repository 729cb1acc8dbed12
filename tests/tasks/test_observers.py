"""Observers: any number, of any task, and the owner's cursor stays where it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from support import Supervisor
from tasks.harness import NOTHING, Gate, Owner, configure, owner_of


async def test_reads_by_offset_move_no_cursor(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo one; echo err >&2; {gate}; echo two", "x")
    await owner.received("shell-1", 8)
    for name in ("shell-1", "x"):  # by either id
        assert await owner.agent.read_output(name) in (b"one\nerr\n", b"err\none\n")
        assert await owner.agent.read_output(name, stream="err") == b"err\n"
        assert await owner.output_at(name, 1, limit=2) in (b"ne", b"rr")
    assert await owner.read("shell-1") == "one\n[stderr]\nerr\n[status: running]"
    # Nor does the owner's read take anything from them.
    assert len(await owner.agent.read_output("shell-1")) == 8
    gate.open()
    assert await owner.read("shell-1", wait=True) == "two\n[status: completed]"
    assert len(await owner.agent.read_output("shell-1")) == 12


async def test_many_observers_of_one_task(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"{gate}; for n in $(seq 1 500); do echo $n; done")

    async def observe(n: int) -> bytes:
        async with owner.supervisor.client() as client:
            agent = client.agent(owner.id)
            chunks = agent.output("shell-1", offset=0 if n % 2 else 4)
            return b"".join([chunk.data async for chunk in chunks])

    observers = [asyncio.ensure_future(observe(n)) for n in range(24)]
    await asyncio.sleep(0.3)
    gate.open()
    text = await owner.read("shell-1", wait=True)
    whole = "".join(f"{n}\n" for n in range(1, 501))
    rest = await owner.read("shell-1")
    assert text == f"{whole}[status: completed]"
    assert rest == "(no new output)\n[status: completed]"
    for n, seen in enumerate(await asyncio.gather(*observers)):
        assert seen.decode() == (whole if n % 2 else whole[4:])


async def test_an_observer_that_goes_takes_nothing_along(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo one; {gate}; echo two")
    following = asyncio.ensure_future(owner.output_at("shell-1", 0))
    await owner.received("shell-1", 4)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    gate.open()
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    assert await owner.read("shell-1") == "one\ntwo\n[status: completed]"


async def test_observers_see_the_end_and_whether_it_was_reported(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "a")
    await owner.shell("true", "b")
    await owner.kill("shell-1")
    for task_id in ("shell-1", "shell-2"):
        await owner.finished(task_id)
    ends = {
        event.call_id: (event.name, event.call_ended.reported)
        for event in await owner.log(names=["tool.background_*"])
    }
    assert ends == {"a": ("tool.background_error", True), "b": ("tool.background_result", False)}
    await owner.read("shell-2")
    reads = [event.task_read for event in await owner.log(names=["task.read"])]
    assert [(read.task_id, read.reported) for read in reads] == [("shell-2", True)]


async def test_by_the_command_line(make_supervisor: Callable[..., Supervisor], gate: Gate) -> None:
    supervisor = make_supervisor()
    configure(supervisor, "")
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell(f"echo one; {gate}; echo two", "x")
        await owner.shell("exit 3", "y")
        await owner.received("shell-1", 4)
        await owner.finished("shell-2")

        async def cli(*arguments: str) -> str:
            ended = await asyncio.to_thread(supervisor.cli, *arguments)
            assert ended.returncode == 0, ended.stderr
            return ended.stdout.decode()

        assert (await cli("tasks")).splitlines() == [
            "\t".join((owner.id, "shell-1", "running", "", "x", f"echo one; {gate}; echo two"))
        ]
        lines = (await cli("tasks", "-a", "--agent", owner.id)).splitlines()
        assert [line.split("\t")[1:4] for line in lines] == [
            ["shell-1", "running", ""],
            ["shell-2", "completed", "exit code: 3"],
        ]
        told = [json.loads(line) for line in (await cli("tasks", "-a", "--json")).splitlines()]
        assert [(task["task_id"], task["status"]) for task in told] == [
            ("shell-1", "running"),
            ("shell-2", "completed"),
        ]
        for _ in range(2):
            assert await cli("output", "--agent", owner.id, "shell-1") == "one\n"
        assert await cli("output", "--agent", owner.id, "--offset", "2", "shell-1") == "e\n"
        # Of all that, the owner notices nothing.
        assert await owner.pending() == 1
        assert await owner.read("shell-1") == "one\n[status: running]"
        assert await owner.read("shell-1") == NOTHING
        gate.open()
        assert await cli("output", "-f", "--agent", owner.id, "shell-1") == "one\ntwo\n"
        assert await owner.read("shell-1", wait=True) == "two\n[status: completed]"
