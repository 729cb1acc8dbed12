"""Completion notices: one, exact, to the exact owner, passive; suppressed where it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinfold.v1 import agent_pb2, task_service_pb2
from support import Supervisor
from tasks.conftest import Open
from tasks.harness import STUBBORN, Gate, Owner, configure, owner_of

NOTICE = agent_pb2.PROMPT_KIND_NOTICE
USER = agent_pb2.PROMPT_KIND_USER


async def test_the_exact_text_once_and_passive(owner: Owner) -> None:
    await owner.shell("echo noted; exit 4", "x")
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    assert await owner.agent.next_turn(0.4) is None  # it wakes nobody
    text = (
        "background task shell-1 (shell: echo noted; exit 4) finished "
        "[status: completed, exit code: 4]. Read its output with task_output."
    )
    prompts = await owner.turn("go on")
    assert [(p.kind, p.activating, p.internal, p.call_id, p.text) for p in prompts] == [
        (NOTICE, False, True, "x", text),
        (USER, True, False, "", "go on"),
    ]
    assert [p.kind for p in await owner.turn("and on")] == [USER]
    assert await owner.notices() == ["x"]
    # The output is still to be read. What was delivered is not taken back.
    assert await owner.read("shell-1") == "noted\n[status: completed, exit code: 4]"
    assert await owner.notices() == ["x"]


async def test_of_an_agent(owner: Owner) -> None:
    await owner.subagent("final done\n")
    await owner.finished("agent-1")
    assert await owner.until(owner.pending) == 1
    notice, _ = await owner.turn()
    assert notice.text == (
        "background task agent-1 (agent: final done) finished [status: completed]. "
        "Read its output with task_output."
    )


async def test_labels_and_details_make_no_line(owner: Owner) -> None:
    await owner.shell("exec sleep 60 # \n\x1b[31m [status: completed].", "x")
    await owner.client.agent(owner.id).task_kill("shell-1", reason="two\nlines")
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    notice, _ = await owner.turn()
    assert len(notice.text.splitlines()) == 1
    assert "\x1b" not in notice.text
    assert notice.text.endswith("]. Read its output with task_output.")


async def test_it_comes_to_the_exact_owner(open_owner: Open) -> None:
    one, other = await open_owner(), await open_owner()
    await one.shell("true", "x")
    await one.finished("shell-1")
    await one.until(one.pending)
    assert (await one.notices(), await other.notices()) == (["x"], [])
    assert await other.pending() == 0


async def test_a_sub_agents_task_is_no_news_to_its_starter(owner: Owner, gate: Gate) -> None:
    await owner.subagent(f"shell {gate}; echo x\nawait_message")
    child = (await owner.agent.get("agent-1")).sub_agent_id
    await owner.running(1)
    gate.open()
    call = f"{child}-call-1"
    await owner.client.agent(child).ended(call)
    assert await owner.notices() == []
    assert await owner.read("agent-1") == "(no new output)\n[status: running]"


async def test_several_are_delivered_together_in_order(owner: Owner) -> None:
    for n in range(3):
        await owner.shell(f"exit {n}", f"c{n}")
        await owner.finished(f"shell-{n + 1}")
    prompts = await owner.turn()
    assert [p.call_id for p in prompts] == ["c0", "c1", "c2", ""]


async def test_it_interrupts_no_wait(owner: Owner) -> None:
    waiting = asyncio.ensure_future(owner.tool("wait", "w", timeout_minutes=5))
    await owner.installed("w")
    await owner.shell("true")
    await owner.finished("shell-1")
    await owner.until(owner.pending)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await owner.agent.send_prompt("input")
    assert "input_available: true" in (await waiting).text


async def test_it_survives_a_restart(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell("exit 5", "x")
        await owner.finished("shell-1")
        await owner.until(owner.pending)
        supervisor.kill()
        supervisor.start()
        prompts = await owner.turn()
        assert [p.call_id for p in prompts] == ["x", ""]
        assert "[status: completed, exit code: 5]" in prompts[0].text
        assert await owner.notices() == ["x"]


# ------------------------------------------------------------ suppressed


async def test_the_owners_kill_suppresses_it(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    await owner.kill("shell-1")
    await owner.finished("shell-1")
    (end,) = await owner.log(call_id="x", names=["tool.background_error"])
    assert end.call_ended.reported  # observers see the end, and that it was reported
    assert await owner.notices() == []
    assert await owner.pending() == 0


async def test_the_owners_typed_kill_suppresses_it(owner: Owner) -> None:
    """With the agent's own token a typed kill is the owner's."""
    token = (await owner.client.create_token(agent_id=owner.id)).token
    await owner.shell("exec sleep 60", "x")
    async with type(owner.client).connect(owner.supervisor.address, token=token) as as_owner:
        await as_owner.agent(owner.id).task_kill("shell-1")
        await owner.finished("shell-1")
    assert await owner.notices() == []


async def test_a_kill_by_somebody_else_does_not(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    await owner.client.agent(owner.id).task_kill("shell-1", reason="operator")
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    notice, _ = await owner.turn()
    assert "finished [status: killed, signal: SIGTERM, reason: operator]." in notice.text


async def test_a_cancel_by_the_operator_does_not(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    await owner.agent.cancel("x")
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1


async def test_the_owners_kill_of_what_is_being_ended_suppresses_it(owner: Owner) -> None:
    await owner.agent.run(STUBBORN, background=True, call_id="x", grace=0.4)
    await owner.received("shell-1", 3)
    await owner.client.agent(owner.id).task_kill("shell-1", reason="operator")
    assert await owner.kill("shell-1", reason="owner") == ("requested cancellation of task shell-1")
    await owner.finished("shell-1")
    assert await owner.notices() == []
    assert "reason: operator]" in await owner.read("shell-1")


async def test_a_terminal_read_takes_it_back(owner: Owner, via: str) -> None:
    await owner.shell("echo x", "x")
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    await owner.output("shell-1", via=via)
    assert await owner.pending() == 0
    assert len(await owner.log(call_id="x", names=["prompt.suppressed"])) == 1
    assert [p.kind for p in await owner.turn()] == [USER]


async def test_a_read_of_a_live_task_does_not(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo x; {gate}", "x")
    await owner.received("shell-1", 2)
    await owner.read("shell-1")
    gate.open()
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1


async def test_lists_and_snapshots_take_nothing_back(owner: Owner) -> None:
    await owner.shell("echo x", "x")
    await owner.finished("shell-1")
    await owner.until(owner.pending)
    await owner.listed()
    await owner.kill("shell-1")
    await owner.agent.get("shell-1")
    await owner.agent.read_output("shell-1")
    assert await owner.pending() == 1


async def test_a_terminal_wait_suppresses_it(owner: Owner, gate: Gate, via: str) -> None:
    await owner.shell(f"{gate}", "x")
    waiting = asyncio.ensure_future(owner.output("shell-1", via=via, wait=True))
    await asyncio.sleep(0.2)
    gate.open()
    await waiting
    await asyncio.sleep(0.1)
    assert await owner.notices() == []


async def test_a_wait_of_the_other_family_suppresses_it(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"{gate}; echo x", "x")
    answer = asyncio.ensure_future(owner.agent.call_tool("wait", {"tool_call_id": "x"}))
    await asyncio.sleep(0.2)
    gate.open()
    assert "out x" in (await answer).text
    assert await owner.notices() == []
    # What it has consumed can still be read.
    assert await owner.read("shell-1") == "x\n[status: completed]"


async def test_on_the_tau_surface_the_task_tools_take_the_notice_back(open_owner: Open) -> None:
    owner = await open_owner(surface="tau")
    answer = await owner.shell("echo x", "x")
    assert "running in the background" in answer.text
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    assert await owner.read("shell-1") == "x\n[status: completed]"
    assert await owner.pending() == 0
    refused = await owner.agent.call_tool("wait", {"tool_call_id": "x"})
    assert "already consumed" in refused.text


# ------------------------------------------------------------ the owner goes


async def test_an_owner_that_is_stopped_gets_none(owner: Owner, gate: Gate) -> None:
    await owner.shell("true", "x")
    await owner.finished("shell-1")
    await owner.until(owner.pending)
    await owner.agent.run(STUBBORN, background=True, call_id="y", grace=0.3)
    await owner.received("shell-2", 3)
    answer = await owner.agent.stop(reason="owner disposed")
    assert answer.ended_calls == 1
    await owner.gone(0.5)  # it was waited for
    assert await owner.pending() == 0
    assert await owner.notices() == ["x"]
    (end,) = await owner.log(call_id="y", names=["tool.background_error"])
    assert end.call_ended.result.cancel_reason == "owner disposed"
    tasks = {t.task_id: t.detail for t in await owner.agent.task_list()}
    assert tasks["shell-2"] == "signal: SIGKILL, reason: owner disposed"


async def test_an_owner_that_goes_as_its_tasks_end(
    open_owner: Open, gates: Callable[[], Gate]
) -> None:
    for n in range(5):
        owner = await open_owner()
        opened = [gates() for _ in range(6)]
        for gate in opened:
            await owner.shell(f"{gate}; echo x")
        reading = asyncio.ensure_future(owner.agent.task_output("shell-1", wait=True))
        for gate in opened[: n + 1]:
            gate.open()
        stopping = asyncio.ensure_future(owner.agent.stop(grace=0.2))
        for gate in opened[n + 1 :]:
            gate.open()
        await asyncio.gather(stopping, reading)
        ends = await owner.log(names=["tool.background_*"])
        assert len(ends) == len({event.call_id for event in ends}) == 6
        assert await owner.pending() == 0
        last = max(event.revision for event in await owner.log(names=["agent.stopped"]))
        assert [e for e in await owner.log(start=last) if e.name == "prompt.queued"] == []
        statuses = {task.status for task in await owner.agent.task_list()}
        assert statuses <= {
            task_service_pb2.TASK_STATUS_COMPLETED, task_service_pb2.TASK_STATUS_KILLED,
        }  # fmt: skip


async def test_another_agent_of_the_same_name_inherits_nothing(open_owner: Open) -> None:
    first = await open_owner(agent_id="reborn")
    await first.shell("true", "x")
    await first.finished("shell-1")
    await first.until(first.pending)
    await first.agent.stop()
    second = await open_owner(agent_id="reborn")
    assert await second.pending() == 0
    assert await second.listed() == "(no background tasks)"
    assert (await second.raw("task_output", '{"task_id": "shell-1"}'))[1] == (
        "error: unknown task shell-1"
    )
    assert (await second.shell("true")).text == "started background task shell-1"


async def test_a_cancelled_turn_makes_passive_ones(owner: Owner) -> None:
    await owner.shell("exec sleep 60", "x")
    assert await owner.agent.cancel_turn(reason="stop it") == 1
    await owner.finished("shell-1")
    assert await owner.until(owner.pending) == 1
    assert await owner.agent.next_turn(0.3) is None
    notice, _ = await owner.turn()
    assert "[status: killed, signal: SIGTERM, reason: stop it]" in notice.text


# ------------------------------------------------------------ completionDelivery = "wakeup"


async def test_an_option_wakes_the_idle_owner(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    configure(supervisor, '[tasks]\ncompletionDelivery = "wakeup"\nmaxConsecutiveWakes = 2\n')
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:

        async def woken(n: int) -> bool:
            await owner.shell(f"exit {n}", f"c{n}")
            turn = await owner.agent.next_turn(1.0)
            if turn is None:
                return False
            (notice,) = turn.prompts
            assert (notice.kind, notice.activating, notice.call_id) == (NOTICE, True, f"c{n}")
            await owner.agent.end_turn(turn.turn_id, "done")
            return True

        # The budget: a turn that a notice began may begin no third one by the same means.
        assert [await woken(n) for n in range(4)] == [True, True, False, False]
        prompts = await owner.turn("from a user")
        assert [p.call_id for p in prompts] == ["c2", "c3", ""]
        # A user's prompt gives the budget back.
        assert [await woken(n) for n in range(4, 8)] == [True, True, False, False]


async def test_what_is_known_wakes_nobody(
    make_supervisor: Callable[..., Supervisor], gate: Gate
) -> None:
    supervisor = make_supervisor()
    configure(supervisor, '[tasks]\ncompletionDelivery = "wakeup"\n')
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell("exec sleep 60")
        await owner.kill("shell-1")
        await owner.shell(f"{gate}")
        waiting = asyncio.ensure_future(owner.read("shell-2", wait=True))
        await asyncio.sleep(0.2)
        gate.open()
        await waiting
        await owner.finished("shell-1")
        assert await owner.agent.next_turn(0.5) is None
        # One that is awake gets it as it goes.
        await owner.agent.send_prompt("work")
        turn = await owner.agent.next_turn()
        assert turn is not None
        await owner.shell("true", "z")
        await owner.until(owner.pending)
        taken = await owner.agent.take_prompts()
        assert [p.call_id for p in taken.prompts] == ["z"]
        await owner.agent.end_turn(turn.turn_id, "done")
        assert await owner.agent.next_turn(0.3) is None
