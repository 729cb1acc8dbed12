"""Whose tasks they are, how many there may be, and how long they are remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pinfold import Placeholder
from pinfold.errors import LimitError, NotFoundError
from support import Supervisor
from tasks.conftest import Open
from tasks.harness import ERROR, STUBBORN, Gate, configure, owner_of

LIMIT = (
    "background task limit reached: {} tasks are active; wait for one with task_output or end "
    "one with task_kill first"
)


# ------------------------------------------------------------ owners


async def test_another_owners_tasks_are_unknown(open_owner: Open, gate: Gate) -> None:
    me, other = await open_owner(), await open_owner()
    await other.shell(f"echo private; {gate}", "secret")
    await other.subagent("await_message")
    for task_id in ("shell-1", "agent-1", "secret", "shell-99"):
        unknown = (ERROR, f"error: unknown task {task_id}")
        for tool in ("task_output", "task_kill"):
            assert await me.raw(tool, f'{{"task_id": "{task_id}"}}') == unknown
        for ask in (me.agent.task_output, me.agent.task_kill):
            with pytest.raises(NotFoundError, match=f"^unknown task {task_id}$") as refused:
                await ask(task_id)
            assert refused.value.reason == "TASK_UNKNOWN"
    assert await me.listed() == "(no background tasks)"
    # It has cost its owner nothing.
    gate.open()
    assert await other.read("shell-1", wait=True) == "private\n[status: completed]"


async def test_an_agents_token_reaches_no_other_owner(open_owner: Open) -> None:
    me, other = await open_owner(), await open_owner()
    await other.shell("echo private")
    await other.finished("shell-1")
    token = (await me.client.create_token(agent_id=me.id)).token
    async with type(me.client).connect(me.supervisor.address, token=token) as mine:
        foreign = mine.agent(other.id)
        nobody = mine.agent("nobody")
        for one, another in (
            (foreign.task_output("shell-1"), nobody.task_output("shell-1")),
            (foreign.task_kill("shell-1"), nobody.task_kill("shell-1")),
            (foreign.task_list(), nobody.task_list()),
            (foreign.read_output("shell-1"), nobody.read_output("shell-1")),
        ):
            answers = await asyncio.gather(one, another, return_exceptions=True)
            first, second = answers
            assert isinstance(first, NotFoundError), first
            assert isinstance(second, NotFoundError), second
            assert str(first).replace(other.id, "?") == str(second).replace("nobody", "?")
        assert {task.agent_id for task in await mine.list_tasks()} <= {me.id}
    assert await other.pending() == 1


async def test_operators_see_all(open_owner: Open, gate: Gate) -> None:
    one, other = await open_owner(), await open_owner()
    await one.shell(f"{gate}")
    await other.shell("true")
    await one.subagent("await_message")
    await other.finished("shell-1")
    seen = [
        (task.agent_id, task.task_id)
        for task in await one.client.list_tasks()
        if task.agent_id in (one.id, other.id)
    ]
    assert seen == [(one.id, "shell-1"), (other.id, "shell-1"), (one.id, "agent-1")]
    live = await one.client.list_tasks(live_only=True)
    assert (other.id, "shell-1") not in [(t.agent_id, t.task_id) for t in live]
    gate.open()


# ------------------------------------------------------------ limits


async def test_one_more_than_the_limit_is_refused_with_the_way_out(
    open_owner: Open, tmp_path: Path
) -> None:
    owner = await open_owner(max_active_tasks=1)
    marker = tmp_path / "ran"
    await owner.agent.run(STUBBORN, background=True, grace=0.5)
    await owner.received("shell-1", 3)

    async def refused() -> None:
        answer = await owner.shell(f"touch {marker}")
        assert (answer.kind, answer.text) == (ERROR, f"error: {LIMIT.format(1)}")
        child = await owner.subagent(f"shell touch {marker}")
        assert child.text == answer.text
        with pytest.raises(LimitError) as error:
            await owner.agent.run(f"touch {marker}", background=True)
        assert (error.value.reason, str(error.value)) == ("TASK_LIMIT", LIMIT.format(1))

    await refused()
    await owner.kill("shell-1")
    assert (await owner.listed()).startswith("shell-1 [shell] stopping")
    await refused()  # only its real end makes room
    await owner.finished("shell-1")
    assert not marker.exists()
    assert (await owner.shell("true")).text == "started background task shell-2"


@pytest.mark.parametrize("end", ["true", "exit 3", "kill -KILL $$", "exec sleep 0.2"])
async def test_every_end_makes_room(open_owner: Open, end: str) -> None:
    owner = await open_owner(max_active_tasks=1)
    for n in range(3):
        answer = await owner.shell(end)
        assert answer.text == f"started background task shell-{n + 1}"
        await owner.finished(f"shell-{n + 1}")
    child = await owner.subagent("final x")
    assert child.text == "started background subagent task agent-1"


async def test_ten_by_default_each_owner_its_own(open_owner: Open) -> None:
    owner, other = await open_owner(), await open_owner()
    for _ in range(10):
        assert (await owner.shell("exec sleep 60")).kind != ERROR
    assert (await owner.shell("true")).text == f"error: {LIMIT.format(10)}"
    assert (await other.shell("true")).kind != ERROR
    # The foreground is not counted; what stays there long goes to the background all the same.
    assert (await owner.tool("shell", command="echo x")).kind != ERROR
    answer = await owner.agent.run("exec sleep 60", foreground_budget=0.1)
    assert isinstance(answer, Placeholder)
    assert len((await owner.listed()).splitlines()) == 11


async def test_starts_at_once_do_not_slip_through(open_owner: Open) -> None:
    owner = await open_owner(max_active_tasks=3)
    answers = await asyncio.gather(*(owner.shell("exec sleep 60") for _ in range(12)))
    assert sum(answer.kind != ERROR for answer in answers) == 3


async def test_the_limit_is_a_setting(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    configure(supervisor, "[tasks]\nactive = 2\n")
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        for _ in range(2):
            await owner.shell("exec sleep 60")
        assert (await owner.shell("true")).text == f"error: {LIMIT.format(2)}"
        supervisor.kill()
        supervisor.start()
        assert (await owner.shell("true")).text == f"error: {LIMIT.format(2)}"
        async with owner_of(supervisor, client, surface="tau") as other:
            for _ in range(3):
                assert (await other.shell("exec sleep 60")).kind != ERROR


# ------------------------------------------------------------ what is forgotten


async def test_history_is_bounded_and_nothing_unreported_is_dropped(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor()
    configure(supervisor, "[retention]\nfinished_calls = 3\nsweep_seconds = 0.2\n")
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        for n in range(3):
            await owner.shell(f"echo unread {n}")
        for n in range(6):
            await owner.shell(f"echo {n}")
            await owner.read(f"shell-{n + 4}", wait=True)

        async def forgotten() -> bool:
            return (await owner.raw("task_output", '{"task_id": "shell-4"}'))[0] == ERROR

        await owner.until(forgotten)
        expired = "task shell-4 has expired: it ended, and its output is no longer kept"
        for tool in ("task_output", "task_kill"):
            arguments = '{"task_id": "shell-4"}'
            assert await owner.raw(tool, arguments) == (ERROR, f"error: {expired}")
        with pytest.raises(NotFoundError) as error:
            await owner.agent.task_output("shell-4")
        assert (error.value.reason, str(error.value)) == ("TASK_EXPIRED", expired)
        assert (await owner.raw("task_output", '{"task_id": "shell-10"}'))[1] == (
            "error: unknown task shell-10"
        )
        # To another the same id is unknown.
        async with owner_of(supervisor, client) as other:
            assert (await other.raw("task_output", '{"task_id": "shell-4"}'))[1] == (
                "error: unknown task shell-4"
            )
        # Nobody was told of these.
        for n in range(3):
            assert await owner.read(f"shell-{n + 1}") == f"unread {n}\n[status: completed]"

        async def bounded() -> bool:
            return len((await owner.listed()).splitlines()) <= 3

        await owner.until(bounded)
        supervisor.kill()
        supervisor.start()
        assert (await owner.raw("task_output", '{"task_id": "shell-4"}'))[1].startswith(
            "error: task shell-4 has expired"
        )
        assert (await owner.shell("true")).text == "started background task shell-10"


async def test_history_is_bounded_by_age(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    configure(supervisor, f"[retention]\nfinished_days = {1 / 86_400}\nsweep_seconds = 0.2\n")
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell("echo told")
        await owner.shell("echo untold")
        await owner.read("shell-1", wait=True)
        await owner.finished("shell-2")

        async def listed() -> bool:
            return len((await owner.listed()).splitlines()) == 1

        await owner.until(listed)
        assert await owner.listed() == "shell-2 [shell] completed — echo untold"
        assert await owner.read("shell-2") == "untold\n[status: completed]"
