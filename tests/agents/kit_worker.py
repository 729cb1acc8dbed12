"""A worker with the kit: forked from the warm process, or a program of its own.

What it does is the first word of its prompt.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator

from pinfold import Client
from pinfold.errors import PinfoldError
from pinfold.v1 import agent_pb2
from pinfold.worker import Turn, run


async def work(turn: Turn) -> str:
    turns = turn.memory["turns"] = turn.memory.get("turns", 0) + 1
    (start, *_) = turn.prompts
    body = start.text.partition("\n\n")[2] if start.kind == agent_pb2.PROMPT_KIND_START else ""
    turn.memory.setdefault("word", body)
    match turn.memory["word"].split():
        case ["count"]:
            return f"turn {turns} of {os.getpid()}: {body or start.text}"
        case ["tools"]:
            answer = await turn.call_tool("shell", {"command": "echo from the kit"})
            return answer.text
        case ["take"]:
            while not any(p.kind == agent_pb2.PROMPT_KIND_MESSAGE for p in turn.prompts):
                await turn.agent.wait_for_input()
                await turn.take()
            return turn.prompts[-1].body
        case ["raise"]:
            raise ValueError("broken on purpose")
        case ["nothing"]:
            return None  # type: ignore[return-value]
        case ["number"]:
            return 42  # type: ignore[return-value]
        case ["leave"]:
            os._exit(7)
        case ["leftovers"]:
            subprocess.Popen(["setsid", "sleep", "1000000"])
            await turn.call_tool("status", {"state": "working", "title": "left something"})
            os._exit(0)
        case ["children"]:
            subprocess.Popen(["setsid", "sleep", "1000000"])
            return "with a child"
        case ["draft"]:
            turn.draft = "as far as it came"
            await turn.call_tool("status", {"state": "working", "title": "drafted"})
            await asyncio.sleep(1_000_000)
        case ["rights", parent]:
            return json.dumps(await rights(turn, parent))
        case ["resumed"]:
            if turn.resumed:
                return f"again with {[p.body or p.kind for p in turn.prompts]}"
            await turn.call_tool("status", {"state": "working", "title": "first"})
            await asyncio.sleep(1_000_000)
    return "?"


def plain(turn: Turn) -> str:
    """No coroutine: a role that names it has a mistake."""
    return turn.text


async def streamed(turn: Turn) -> AsyncIterator[str]:
    """Nor is this one."""
    yield turn.text


async def rights(turn: Turn, parent: str) -> dict[str, str]:
    """What its token lets it do."""
    found = {name: os.environ.get(name, "") for name in ("PINFOLD_AGENT_ID", "PINFOLD_ADDRESS")}
    async with Client.connect() as client:
        for what, asked in {
            "itself": client.agent(turn.agent.agent_id).info(),
            "its parent": client.agent(parent).info(),
            "a new root": client.open_agent(),
            "all agents": client.list_agents(),
        }.items():
            try:
                answer = await asked
                found[what] = str(len(answer)) if isinstance(answer, list) else "yes"
            except PinfoldError as error:
                found[what] = error.reason
    return found


if __name__ == "__main__":
    run(work)
