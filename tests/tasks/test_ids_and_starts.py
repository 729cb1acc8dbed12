"""What a start says, and the ids: per kind and owner, durable; nothing without a surface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pinfold import Placeholder, Result
from pinfold.errors import StateError
from support import Supervisor
from tasks.conftest import Open
from tasks.harness import ERROR, NO_SURFACE, PLACEHOLDER, RESULT, Gate, Owner, owner_of


async def test_starts_are_acknowledged_with_ids_by_kind(owner: Owner, gate: Gate) -> None:
    first = await owner.shell(f"{gate}; echo one")
    second = await owner.shell("true")
    child = await owner.subagent("await_message\nfinal x")
    assert [(a.kind, a.text) for a in (first, second, child)] == [
        (PLACEHOLDER, "started background task shell-1"),
        (PLACEHOLDER, "started background task shell-2"),
        (PLACEHOLDER, "started background subagent task agent-1"),
    ]
    assert child.agent_start.task_id == "agent-1"
    assert child.agent_start.self_agent_id == owner.id
    assert (await owner.agent.info()).running_calls >= 1


async def test_typed_starts_say_the_same(owner: Owner) -> None:
    answer = await owner.agent.run("true", background=True)
    assert isinstance(answer, Placeholder)
    assert (answer.task_id, answer.text) == ("shell-1", "started background task shell-1")
    child = await owner.agent.start_agent("final x", mode="call")
    assert (child.task_id, child.text) == ("agent-1", "started background subagent task agent-1")


async def test_a_slow_call_becomes_a_task(owner: Owner, gate: Gate) -> None:
    answer = await owner.tool("shell", "slow", command=f"{gate}; echo late")
    assert (answer.kind, answer.text) == (PLACEHOLDER, "started background task shell-1")
    assert await owner.listed() == f"shell-1 [shell] running — {gate}; echo late"
    gate.open()
    assert await owner.read("shell-1", wait=True) == "late\n[status: completed]"


async def test_ids_are_each_owners_own(open_owner: Open) -> None:
    one, other = await open_owner(), await open_owner()
    for owner in (one, other):
        assert (await owner.shell("true")).text == "started background task shell-1"
    assert (await one.shell("true")).text == "started background task shell-2"


async def test_a_start_sent_again_is_the_same_task(owner: Owner, tmp_path: Path) -> None:
    said = [(await owner.shell(f"echo x >>{tmp_path}/ran", "same")).text for _ in range(3)]
    assert said == ["started background task shell-1"] * 3
    await owner.finished("shell-1")
    assert (tmp_path / "ran").read_text() == "x\n"
    assert len((await owner.listed()).splitlines()) == 1


async def test_lists_are_in_start_order(owner: Owner, gate: Gate) -> None:
    assert await owner.listed() == "(no background tasks)"
    assert (await owner.tool("shell", command="echo in the foreground")).kind == RESULT
    assert await owner.listed() == "(no background tasks)"
    await owner.shell(f"{gate}")
    await owner.subagent("await_message")
    await owner.shell("exit 3")
    await owner.shell("exec sleep 60")
    await owner.kill("shell-4")
    await owner.finished("shell-3")
    await owner.finished("shell-4")
    assert (await owner.listed()).splitlines() == [
        f"shell-2 [shell] running — {gate}",
        "agent-1 [agent] running — await_message",
        "shell-3 [shell] completed — exit 3",
        "shell-4 [shell] killed — exec sleep 60",
    ]
    typed = await owner.agent.task_list()
    assert [task.task_id for task in typed] == ["shell-2", "agent-1", "shell-3", "shell-4"]
    live = await owner.agent.task_list(live_only=True)
    assert [task.task_id for task in live] == ["shell-2", "agent-1"]


async def test_labels_are_one_escaped_bounded_line(owner: Owner) -> None:
    await owner.shell("printf 'a\nb \x1b[31m\u2028\u202e'" + " " * 300 + "; true")
    await owner.finished("shell-1")
    line = await owner.listed()
    assert len(line.splitlines()) == 1
    assert line.startswith("shell-1 [shell] completed — printf 'a")
    assert len(line) <= len("shell-1 [shell] completed — ") + 100
    assert not any(ord(character) < 32 or character in "\u2028\u202e" for character in line)


async def test_ids_go_on_after_a_restart(
    make_supervisor: Callable[..., Supervisor], gate: Gate
) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell(f"echo one; {gate}; echo two")
        await owner.subagent("await_message\nfinal {body}")
        await owner.received("shell-1", 4)
        assert await owner.read("shell-1") == "one\n[status: running]"
        supervisor.kill()
        supervisor.start()
        assert (await owner.shell("true")).text == "started background task shell-2"
        gate.open()
        # The cursor is as durable as the ids.
        assert await owner.read("shell-1", wait=True) == "two\n[status: completed]"
        started = await owner.subagent("final x")
        assert started.text == "started background subagent task agent-2"
        child = (await owner.agent.get("agent-1")).sub_agent_id
        await owner.agent.message(child, "hello")
        assert await owner.read("agent-1", wait=True) == "hello\n[status: completed]"


# ------------------------------------------------------------ no surface


async def test_without_a_surface_nothing_is_started(open_owner: Open, tmp_path: Path) -> None:
    owner = await open_owner(surface="none")
    marker = tmp_path / "ran"
    answer = await owner.shell(f"touch {marker}")
    assert (answer.kind, answer.text) == (ERROR, f"error: {NO_SURFACE}")
    with pytest.raises(StateError, match=NO_SURFACE) as refused:
        await owner.agent.run(f"touch {marker}", background=True)
    assert refused.value.reason == "NO_CONTROL_SURFACE"
    child = await owner.subagent(f"shell touch {marker}\nfinal x", mode="call")
    assert (child.kind, child.text) == (ERROR, f"error: {NO_SURFACE}")
    assert await owner.listed() == "(no background tasks)"
    assert not await owner.agent.list()
    assert [a for a in await owner.client.list_agents() if a.parent_id == owner.id] == []
    # In the foreground it works, and stays there. The refusals took no number.
    answer = await owner.tool("shell", command="sleep 2.3; echo stayed")
    assert (answer.kind, answer.text) == (RESULT, "status: 0\n\nout stayed")
    assert answer.result.task_id == "shell-1"
    assert not marker.exists()


async def test_a_refused_start_takes_no_number(open_owner: Open) -> None:
    owner = await open_owner(max_active_tasks=1)
    await owner.shell("exec sleep 60")
    assert (await owner.shell("true")).kind == ERROR
    assert (await owner.shell("true", cwd="relative/\0")).kind == ERROR
    await owner.kill("shell-1")
    await owner.finished("shell-1")
    assert (await owner.shell("true")).text == "started background task shell-2"


async def test_without_a_command_or_a_prompt_there_is_no_task(owner: Owner) -> None:
    for command in ("", "  \n "):
        assert (await owner.shell(command)).text == "error: `command` must not be empty"
        assert (await owner.subagent(command)).text == "error: `prompt` must not be empty"
    assert await owner.listed() == "(no background tasks)"
    assert (await owner.shell("true")).text == "started background task shell-1"


async def test_a_start_whose_caller_has_left_runs_or_never_was(owner: Owner) -> None:
    starting = asyncio.ensure_future(owner.shell("echo ran", "left"))
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    # Sent again it is the same call, started once.
    assert (await owner.shell("echo ran", "left")).text == "started background task shell-1"
    assert await owner.read("shell-1", wait=True) == "ran\n[status: completed]"


async def test_each_runs_in_its_own_directory(open_owner: Open, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        owner = await open_owner(cwd=str(tmp_path / name))
        await owner.shell("pwd")
        await owner.shell("pwd", cwd="sub")
        assert await owner.read("shell-1", wait=True) == f"{tmp_path}/{name}\n[status: completed]"
        assert (
            await owner.read("shell-2", wait=True) == f"{tmp_path}/{name}/sub\n[status: completed]"
        )


async def test_a_process_left_behind_delays_no_end(owner: Owner) -> None:
    await owner.shell("sleep 30 & echo shell-done")
    answer = await owner.agent.task_output("shell-1", wait=True, timeout=5.0)
    assert answer.text == "shell-done\n[status: completed]"
    assert not answer.timed_out
    assert isinstance(await owner.ended("shell-1"), Result)
