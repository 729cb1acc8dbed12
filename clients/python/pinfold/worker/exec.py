"""A CLI agent as a worker: run once per turn, the prompts on its standard input, its standard
output the answer. It needs to know nothing of Pinfold."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os

from pinfold.worker.kit import Turn

_ERROR_BYTES = 4_000
_PIECE = 64 * 1024
_DRAFT_BYTES = 1 << 20


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
    out, err = await _communicate(process, turn)
    answer = out.decode(errors="replace").rstrip("\n")
    if process.returncode == 0:
        return answer
    why = err.decode(errors="replace")[-_ERROR_BYTES:].strip()
    return f"error: {command[0]} ended with status {process.returncode}\n{why}\n\n{answer}".strip()


async def _communicate(process: asyncio.subprocess.Process, turn: Turn) -> tuple[bytes, bytes]:
    """As `Process.communicate`, with what it has written so far as the turn's draft."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    rest = asyncio.ensure_future(process.stderr.read())
    feeding = asyncio.ensure_future(_feed(process.stdin, turn.text.encode()))
    out = bytearray()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while piece := await process.stdout.read(_PIECE):
        out += piece
        if len(out) <= _DRAFT_BYTES:
            turn.draft += decoder.decode(piece)
    await feeding
    err = await rest
    await process.wait()
    return bytes(out), err


async def _feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    # A program need not read its input.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(data)
        await stdin.drain()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.close()
        await stdin.wait_closed()
