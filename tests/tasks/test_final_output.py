"""Final-output tasks: nothing while live, then the same text every time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tasks.harness import NOTHING, Gate, Owner

SETTINGS = """
[roles.cli]
worker = "exec"
command = ["/bin/sh", "-c", "cat >/dev/null; echo half an answer; exec sleep 60"]
"""


async def test_nothing_while_live_and_then_always_the_same(owner: Owner, via: str) -> None:
    await owner.subagent("await_message\nfinal background answer")
    for _ in range(2):
        assert await owner.output("agent-1", via=via) == NOTHING
    await owner.agent.message((await owner.agent.get("agent-1")).sub_agent_id, "go")
    said = [await owner.output("agent-1", via=via, wait=True) for _ in range(3)]
    said += [await owner.output("agent-1", via=via, read_id="r") for _ in range(2)]
    assert said == ["background answer\n[status: completed]"] * 5


async def test_what_a_read_of_a_live_agent_said_is_repeated(owner: Owner, via: str) -> None:
    await owner.subagent("await_message\nfinal answer")
    assert await owner.output("agent-1", via=via, read_id="early") == NOTHING
    await owner.agent.message((await owner.agent.get("agent-1")).sub_agent_id, "go")
    await owner.finished("agent-1")
    assert await owner.output("agent-1", via=via, read_id="early") == NOTHING
    assert await owner.output("agent-1", via=via) == "answer\n[status: completed]"


async def test_an_agent_without_an_answer(owner: Owner) -> None:
    await owner.subagent("final")
    for _ in range(2):
        text = await owner.read("agent-1", wait=True)
        assert text == "(no new output)\n[status: completed]"


async def test_a_long_answer_is_whole(owner: Owner) -> None:
    await owner.subagent("shell printf 'a€%.0s' $(seq 1 9000)\nfinal {out} " + "ö" * 200_000)
    text = await owner.read("agent-1", wait=True)
    assert text.endswith("ö" * 200_000 + "\n[status: completed]")
    assert text.count("a€") == 9000


async def test_partial_text_of_a_killed_agent_is_kept(owner: Owner, gate: Gate) -> None:
    await owner.subagent("say read 3 of 9 files\nsay found nothing\nstatus working on\nsleep 60")
    await _said(owner, "agent-1")
    assert await owner.read("agent-1") == NOTHING
    await owner.kill("agent-1", reason="superseded")
    await owner.finished("agent-1")
    text = "read 3 of 9 files\nfound nothing\n[status: killed, reason: superseded]"
    assert [await owner.read("agent-1", wait=True) for _ in range(3)] == [text] * 3
    assert await owner.notices() == []


async def test_partial_text_of_an_agent_that_waits_is_kept(owner: Owner) -> None:
    for n in range(1, 6):
        await owner.subagent("say half\nawait_message")
        await _said(owner, f"agent-{n}", message=False)
        await owner.kill(f"agent-{n}")
        assert await owner.read(f"agent-{n}", wait=True) == "half\n[status: killed]"


async def test_partial_text_of_a_program_that_is_killed_is_kept(owner: Owner) -> None:
    await owner.subagent("anything", role="cli")
    child = (await owner.agent.get("agent-1")).sub_agent_id
    await owner.until(lambda: _has(owner, child, "sleep"))
    await owner.kill("agent-1")
    await owner.finished("agent-1")
    assert await owner.read("agent-1") == "half an answer\n[status: killed]"


async def test_an_agent_killed_before_it_is_there(owner: Owner) -> None:
    await owner.subagent("final too late")
    await owner.kill("agent-1")
    await owner.finished("agent-1")
    for _ in range(2):
        assert await owner.read("agent-1") in (
            "(no new output)\n[status: killed]",
            "too late\n[status: completed]",
        )
    assert await owner.notices() == []


async def test_an_agent_whose_worker_dies(owner: Owner) -> None:
    await owner.subagent("say half\nawait_message")
    child = (await owner.agent.get("agent-1")).sub_agent_id
    await _said(owner, "agent-1", message=False)
    events = owner.client.events(1, agents=[child], names=["worker.started"])
    async for event in events:
        os.kill(event.worker_started.pid, signal.SIGKILL)
        break
    text = "(no new output)\n[status: failed, worker ended by signal 9]"
    assert [await owner.read("agent-1", wait=True) for _ in range(2)] == [text] * 2


async def _said(owner: Owner, task_id: str, *, message: bool = True) -> None:
    """The script has come to its `status` (or to its `await_message`)."""
    child = (await owner.agent.get(task_id)).sub_agent_id
    name = "agent.status_reported" if message else "wait.installed"
    async for _ in owner.client.events(1, agents=[child], names=[name]):
        return


async def _has(owner: Owner, agent_id: str, program: str) -> bool:
    """A process of the agent's worker runs this program."""
    for pid in owner.survivors():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == program:
                return True
        except OSError:
            continue
    return False
