"""task_kill: at once, with a reason, and the truth about the end of everything."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pinfold.errors import NotFoundError
from pinfold.v1 import task_service_pb2
from pinfoldd.core import commands as c
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import Surface
from pinfoldd.render import tasks as texts
from support import Supervisor, is_zombie
from tasks.conftest import Open
from tasks.harness import ERROR, NOTHING, STUBBORN, Gate, Owner, owner_of
from unit.core.world import World, refused


async def test_a_kill_with_a_reason(owner: Owner, gate: Gate) -> None:
    await owner.shell("echo before; exec sleep 60", "x")
    await owner.shell(f"{gate}; echo unaffected")
    await owner.received("shell-1", 7)
    answer = await owner.kill("shell-1", reason="superseded")
    assert answer == "requested cancellation of task shell-1"
    await owner.finished("shell-1")
    ended = "[status: killed, signal: SIGTERM, reason: superseded]"
    # A snapshot: it consumes nothing.
    for _ in range(2):
        assert await owner.kill("shell-1") == f"task shell-1 had already finished {ended}"
    assert await owner.read("shell-1", wait=True) == f"before\n{ended}"
    requested = await owner.log(call_id="x", names=["call.cancel_requested"])
    assert [(e.cancel_requested.reason, e.cancel_requested.by) for e in requested] == [
        ("superseded", "agent")
    ]
    noted = await owner.log(call_id="x", names=["harness.notice"])
    assert [e.notice.text for e in noted] == ["tool call cancellation request"]
    gate.open()
    assert await owner.read("shell-2", wait=True) == "unaffected\n[status: completed]"


async def test_typed(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    answer = await owner.agent.task_kill("shell-1", reason="from\noutside \x1b[1m")
    assert answer.requested
    assert answer.text == "requested cancellation of task shell-1"
    assert answer.task.status in (
        task_service_pb2.TASK_STATUS_STOPPING, task_service_pb2.TASK_STATUS_KILLED,
    )  # fmt: skip
    await owner.finished("shell-1")
    again = await owner.agent.task_kill("shell-1")
    assert not again.requested
    assert again.text.startswith("task shell-1 had already finished [status: killed, signal: SIG")
    assert "reason: from" in again.text
    assert len(again.text.splitlines()) == 1
    assert "\x1b" not in again.text
    with pytest.raises(NotFoundError) as unknown:
        await owner.agent.task_kill("shell-9")
    assert (unknown.value.reason, str(unknown.value)) == ("TASK_UNKNOWN", "unknown task shell-9")


async def test_a_kill_sent_again_is_the_same_kill(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    said = []
    for _ in range(3):
        said.append((await owner.tool("task_kill", "k", task_id="shell-1")).text)
        await owner.finished("shell-1")
    assert said == ["requested cancellation of task shell-1"] * 3
    assert len(await owner.log(call_id="x", names=["call.cancel_requested"])) == 1


async def test_kills_at_once(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    said = await asyncio.gather(*(owner.kill("shell-1", reason=f"r{n}") for n in range(10)))
    assert "requested cancellation of task shell-1" in said
    await owner.finished("shell-1")
    (event,) = await owner.log(call_id="x", names=["call.cancel_requested"])
    assert f"reason: {event.cancel_requested.reason}]" in await owner.read("shell-1")


async def test_what_has_ended_by_itself_keeps_its_end(owner: Owner) -> None:
    await owner.shell("echo x; exit 3")
    await owner.finished("shell-1")
    assert await owner.kill("shell-1", reason="late") == (
        "task shell-1 had already finished [status: completed, exit code: 3]"
    )
    assert await owner.pending() == 1  # its output is still to be read
    assert await owner.read("shell-1") == "x\n[status: completed, exit code: 3]"


async def test_what_does_not_want_to_end_is_stopping(owner: Owner) -> None:
    await owner.agent.run(STUBBORN, background=True, grace=0.5)
    await owner.received("shell-1", 3)
    started = time.monotonic()
    await owner.kill("shell-1")
    assert (await owner.listed()).startswith("shell-1 [shell] stopping — ")
    assert await owner.read("shell-1") == "up\n[status: stopping]"
    assert await owner.kill("shell-1") == "requested cancellation of task shell-1"
    text = await owner.read("shell-1", wait=True)
    assert text == "(no new output)\n[status: killed, signal: SIGKILL]"
    assert 0.45 < time.monotonic() - started < 5


async def test_a_handler_that_exits_with_0_was_killed_all_the_same(owner: Owner) -> None:
    await owner.shell("trap 'echo bye; exit 0' TERM; echo up; while :; do :; done")
    await owner.received("shell-1", 3)
    await owner.kill("shell-1", reason="enough")
    text = await owner.read("shell-1", wait=True)
    assert text == "up\nbye\n[status: killed, exit code: 0, reason: enough]"


@pytest.mark.parametrize(
    ("command", "options", "line"),
    [
        ("true", {}, "[status: completed]"),
        ("exit 7", {}, "[status: completed, exit code: 7]"),
        ("kill -TERM $$", {}, "[status: killed, signal: SIGTERM]"),
        ("kill -SEGV $$", {}, "[status: killed, signal: SIGSEGV]"),
        ("sleep 30", {"timeout": 1}, "[status: killed, timed out after 1 s]"),
        ("trap 'exit 0' TERM; while :; do :; done", {"timeout": 1},
         "[status: killed, timed out after 1 s]"),
        ("sleep 30", {"timeout": 0}, "[status: killed, timed out after 0 s]"),
        ("pwd", {"cwd": "/no/such/directory"},
         "[status: failed, failed to start: working directory does not exist: /no/such/directory]"),
    ],
)  # fmt: skip
async def test_ends(owner: Owner, command: str, options: dict[str, object], line: str) -> None:
    await owner.shell(command, **options)
    assert await owner.read("shell-1", wait=True) == f"(no new output)\n{line}"
    assert await owner.read("shell-1") == f"(no new output)\n{line}"
    assert await owner.kill("shell-1") == f"task shell-1 had already finished {line}"


async def test_a_program_that_is_not_there(owner: Owner) -> None:
    await owner.agent.run(["/no/such/program"], background=True)
    text = await owner.read("shell-1", wait=True)
    assert text.startswith("(no new output)\n[status: failed, failed to start: ")
    assert text.endswith("program does not exist: /no/such/program]")


async def test_a_kill_before_the_start(open_owner: Open, gate: Gate, tmp_path: Path) -> None:
    owner = await open_owner(max_running_calls=1)
    await owner.shell(f"{gate}")
    await owner.shell(f"touch {tmp_path}/ran")
    assert await owner.kill("shell-2") == "requested cancellation of task shell-2"
    assert await owner.read("shell-2") == "(no new output)\n[status: killed]"
    gate.open()
    await owner.finished("shell-1")
    assert not (tmp_path / "ran").exists()


async def test_a_killed_agent_ends_with_all_below_it(owner: Owner) -> None:
    await owner.subagent("shell exec sleep 61\nawait_message")
    await owner.running(1)
    assert await owner.read("agent-1") == NOTHING
    await owner.kill("agent-1", reason="not needed")
    text = await owner.read("agent-1", wait=True)
    assert text == "(no new output)\n[status: killed, reason: not needed]"
    await owner.gone()


async def test_what_the_keeper_loses(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell("echo before; exec sleep 60")
        await owner.received("shell-1", 7)
        keeper = (await client.info()).keeper_pid
        os.kill(keeper, signal.SIGKILL)
        text = await owner.read("shell-1", wait=True)
        assert text.startswith("before\n[status: failed, lost: ")
        assert is_zombie(keeper)
        again = await owner.read("shell-1")
        assert again == text.replace("before", "(no new output)")
        await owner.gone()
        # The way on.
        await owner.until(lambda: _runs(owner))


async def _runs(owner: Owner) -> bool:
    answer = await owner.shell("echo on")
    if answer.kind == ERROR:
        return False
    return await owner.read(answer.call.task_id, wait=True) == "on\n[status: completed]"


def test_a_stop_that_does_not_succeed_frees_the_place_and_names_the_pids() -> None:
    """No process can be made that survives KILL: what the keeper would report, and its text."""
    w = World(surface=Surface.TASKS)
    w.do(c.OpenAgent("T", Surface.TASKS, "d", max_tasks=1))
    w.start("X", "T", background=True)
    w.runs("X", "T")
    w.cancel("X", "T", reason="superseded", report=True)
    assert texts.status_line(w.call("X", "T")) == "[status: stopping]"
    with refused(Reason.TASK_LIMIT):
        w.start("Y", "T", background=True)
    w.survives("X", "T")
    call = w.call("X", "T")
    line = "[status: failed, could not be stopped: surviving pids 77]"
    assert texts.status_line(call) == line
    assert texts.kill_too_late(call) == f"task shell-1 had already finished {line}"
    assert w.notices("T") == []
    w.start("Y", "T", background=True)
    assert w.call("Y", "T").task_id == "shell-2"
