"""A worker that is written against the generated stubs alone: the protocol is enough.

It goes through the two scenarios of a message for a delegate that is busy.
"""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from agents.harness import (
    HERE,
    MESSAGE,
    NOTICE,
    TERMINALS,
    WATCH_ANSWER,
    Actor,
    interrupted,
)
from integration.harness import Event
from tasks.harness import Gate

pytestmark = pytest.mark.timeout(120)

SETTINGS = "[shell]\nforeground_budget = 0.4\n"


def plan(answer: str, *rounds: list[tuple[str, dict[str, Any]]]) -> str:
    return json.dumps({"rounds": rounds, "answer": answer})


def in_order(*events: Event) -> bool:
    revisions = [event.revision for event in events]
    return revisions == sorted(revisions)


def test_it_uses_nothing_but_the_stubs() -> None:
    tree = ast.parse((HERE / "stub_worker.py").read_text())
    ours = [
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pinfold")
    ]
    assert ours == ["pinfold.v1"]


async def test_a_delegate_that_is_parked_behind_a_background_tool(me: Actor, gate: Gate) -> None:
    kid = await me.child(
        plan(
            "parked done",
            [("shell", {"command": f"{gate}; echo late"})],
            [("shell", {"command": "touch never"}), ("shell", {"command": "touch never"})],
        ),
        role="serial_stub",
    )
    first, second, third = (f"{kid.id}-call-{n}" for n in (1, 2, 3))
    await kid.happened("call.backgrounded", first)
    await kid.happened("call.queued", second)
    await kid.happened("call.queued", third)
    await me.agent.message(kid.id, "nonce")
    got = await me.queued(MESSAGE, "GOT nonce")
    await me.queued(WATCH_ANSWER, "parked done")
    (prompt,) = await kid.prompts(MESSAGE)
    sent = await me.happened("agent.message_sent")
    created = await kid.delivered(prompt.prompt_id)
    for call in (second, third):
        ended = await kid.terminal(call)
        assert ended.name == "tool.cancelled"
        assert in_order(sent, ended, created, got)
        assert await kid.log(call_id=call, names=["call.starting"]) == []
    assert await kid.log(call_id=first, names=list(TERMINALS)) == []
    await me.agent.watch_agent(kid.id, enable=False)
    revision = await me.revision()
    gate.open()
    assert (await kid.terminal(first)).name == "tool.background_result"
    await kid.happened("agent.turn_ended", start=revision + 1)
    assert len(await kid.prompts(NOTICE)) == 1
    assert await me.log(start=revision + 1, names=["prompt.queued"]) == []


async def test_a_delegate_that_is_blocked_in_a_wait(me: Actor, gate: Gate) -> None:
    kid = await me.child(
        plan(
            "waiting done",
            [("shell", {"command": f"{gate}; echo late"})],
            [("wait", {"tool_call_id": "$0"})],
        ),
        role="stub",
    )
    call = f"{kid.id}-call-1"
    await kid.happened("wait.installed")
    await me.agent.message(kid.id, "nonce")
    told = await me.queued(MESSAGE, "WAIT ")
    got = await me.queued(MESSAGE, "GOT nonce")
    text = told.prompt_queued.prompt.body.removeprefix("WAIT ")
    assert text.partition("\n\n")[0] == interrupted("exact")
    settled = await kid.happened("wait.settled")
    assert list(settled.wait_settled.consumed_call_ids) == []
    (prompt,) = await kid.prompts(MESSAGE)
    sent = await me.happened("agent.message_sent")
    assert in_order(sent, settled, await kid.delivered(prompt.prompt_id), got)
    await me.queued(WATCH_ANSWER, "waiting done")
    assert await kid.log(call_id=call, names=list(TERMINALS)) == []
    # The call's end makes one later turn of the delegate, and nothing for its parent.
    gate.open()
    await me.queued(WATCH_ANSWER, "Received.")
    assert len(await kid.prompts(NOTICE)) == 1
    assert await me.prompts(NOTICE) == []
    assert len(await me.prompts(WATCH_ANSWER)) == 2
