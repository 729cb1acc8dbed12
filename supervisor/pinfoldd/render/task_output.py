"""The text of one `task_output` read (docs/contract.md, Task tools).

Of a stream task a read gives what came since the last one: standard output, then, after a
line `[stderr]`, standard error. Of a final-output task (an agent): nothing while it is live,
and then the same text every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinfoldd.core.model import Call
from pinfoldd.render.shell_output import Chunk
from pinfoldd.render.utf8 import decode, incomplete

NO_NEW_OUTPUT = "(no new output)"
STDERR_MARK = "[stderr]"

HOLD_BYTES = 4 * 1024
"""How much of the other stream a character that is not complete may hold back. It is then
shown as it is (replaced): binary data on one stream must not hide the other for ever."""


class Delta(NamedTuple):
    """What a read gives of a stream task: up to the offset `end`, as text."""

    end: int
    text: str


def delta(chunks: Sequence[Chunk], start: int, *, final: bool) -> Delta:
    """Make the text of chunks that follow each other from `start` on.

    No character is split between this read and the next: the read ends before one that is not
    complete, unless it is `final` (nothing can follow, or a read is repeated, whose end is
    known). Undecodable bytes are replaced. Bytes
    that are not kept show as one line `[N bytes not kept]`.
    """
    end = chunks[-1].offset + len(chunks[-1].data) + chunks[-1].missing if chunks else start
    if not final:
        end = _hold(chunks, end)
    streams: dict[int, list[bytes]] = {1: [], 2: []}
    missing = 0
    for chunk in chunks:
        if chunk.stream in streams:
            streams[chunk.stream].append(chunk.data[: max(end - chunk.offset, 0)])
        else:
            missing += chunk.missing
            mark = f"[{chunk.missing} bytes not kept]\n".encode()
            out = streams[1]
            out.append(mark if not out or out[-1].endswith(b"\n") else b"\n" + mark)
    out_text = decode(b"".join(streams[1]))[0]
    err_text = decode(b"".join(streams[2]))[0]
    return Delta(end, _with_stderr(out_text, err_text))


def _hold(chunks: Sequence[Chunk], end: int) -> int:
    """The last place where no stream is in the middle of a character; `end` if that is too
    far back."""
    safe = chunks[0].offset if chunks else end
    begun: dict[int, int] = {}  # stream: where its character that is not complete begins
    tails = {1: b"", 2: b""}
    for chunk in chunks:
        stop = chunk.offset + len(chunk.data) + chunk.missing
        if chunk.stream not in tails:
            begun.clear()
            tails = {1: b"", 2: b""}
            safe = stop
            continue
        tail = (tails[chunk.stream] + chunk.data[-3:])[-3:]
        tails[chunk.stream] = tail
        count = incomplete(tail)
        if count == 0:
            begun.pop(chunk.stream, None)
        elif count <= len(chunk.data):
            begun[chunk.stream] = stop - count
        if not begun:
            safe = stop
        elif begun.keys() == {chunk.stream} and begun[chunk.stream] >= chunk.offset:
            safe = begun[chunk.stream]
    return safe if end - safe <= HOLD_BYTES else end


def _with_stderr(out: str, err: str) -> str:
    if not err:
        return out
    if out and not out.endswith("\n"):
        out += "\n"
    return f"{out}{STDERR_MARK}\n{err}"


def final_output(call: Call) -> str:
    """Of an agent: its answer, or what there is of it, once it has ended."""
    return "" if call.result is None else call.result.answer


def read_text(body: str, status: str, left: int = 0) -> str:
    """The body or `(no new output)`, and the status line on a line of its own.

    `left`: so many bytes of an ended task are still to be read. It is said, because a status
    that ends looks like the end of the output.
    """
    if not body:
        body = NO_NEW_OUTPUT
    if not body.endswith("\n"):
        body += "\n"
    if left:
        body += f"[{left} more bytes: read again]\n"
    return body + status
