"""A CLI agent as a worker: run once per turn, the prompts on its standard input, its standard
output the answer. It needs to know nothing of Pinfold."""

from __future__ import annotations

import asyncio
import json
import os

from pinfold.worker.kit import Turn

_ERROR_BYTES = 4_000


async def run_turn(turn: Turn) -> str:
    """A program that fails makes an answer that says so: the starter must hear of it."""
    command: list[str] = json.loads(os.environ["PINFOLD_WORKER_COMMAND"])
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"error: cannot run {command[0]}: {error.strerror}"
    out, err = await process.communicate(turn.text.encode())
    answer = out.decode(errors="replace").rstrip("\n")
    if process.returncode == 0:
        return answer
    why = err.decode(errors="replace")[-_ERROR_BYTES:].strip()
    return f"error: {command[0]} ended with status {process.returncode}\n{why}\n\n{answer}".strip()
