"""Text for people: tables, times, how a call ended."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from pinfold.cli.plain import enum_name
from pinfold.v1 import call_pb2
from pinfold.values import seconds

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

CallState = call_pb2.CallState
EndCause = call_pb2.EndCause

_NOT_THERE = ("program does not exist", "program not found", "No such file")
# Of a column that isn't the last.
_WIDEST = 34
# One copies ids into the next command: they are folded where there is no room, never cut.
_IDS = ("AGENT", "PARENT", "CALL", "TASK", "TOKEN")
_NARROWEST_ID = 8
_NARROWEST_LAST = 8
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """A table on a terminal, otherwise tab-separated lines without a heading."""
    rows = [[cell.translate(CONTROL) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    if not rows:
        click.echo(empty)
        return
    _rich_table(headers, rows)


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    ids = [n for n, header in enumerate(headers) if header in _IDS]
    rows = [
        [*(cell if n in ids else _cut(cell, _WIDEST) for n, cell in enumerate(row[:-1])), row[-1]]
        for row in rows
    ]
    # Columns with nothing in them are left out; the last one has the room that is left.
    *used, last = [n for n in range(len(headers)) if any(row[n] for row in rows)]
    widths = {n: max(len(headers[n]), *(len(row[n]) for row in rows)) for n in used}
    # A space of padding and one of the box after each.
    room = console.width - sum(widths.values()) - 2 * len(widths) - 2
    # First the agent gives way, which is the same in many rows; the other ids do at the end.
    texts = [n for n in used if n not in ids]
    for n in (*ids[:1], *texts, *ids[1:]):
        if n in widths and room < _NARROWEST_LAST:
            words = [_NARROWEST_ID] if n in ids else map(len, _words(n, headers, rows))
            narrower = max(min(widths[n], max(words)), widths[n] + room - _NARROWEST_LAST)
            room += widths[n] - narrower
            widths[n] = narrower
    room = max(_NARROWEST_LAST, room)
    shown = Table(
        box=box.SIMPLE_HEAD,
        show_header=any(headers),
        header_style="bold",
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for n in used:
        shown.add_column(headers[n], width=widths[n], overflow="fold")
    shown.add_column(headers[last], no_wrap=last not in ids, overflow="fold")
    for row in rows:
        text = row[last] if last in ids else _cut(row[last], room)
        shown.add_row(*(Text(row[n]) for n in used), Text(text))
    console.print(shown)


def _words(n: int, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """What is not broken in a column of text."""
    yield headers[n]
    for row in rows:
        yield from row[n].split()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def note(text: str) -> None:
    """A line of pinfold's own, beside a command's output."""
    click.echo(f"pinfold: {text}", err=True)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def call_state(call: call_pb2.Call) -> str:
    name = enum_name(CallState.DESCRIPTOR, call.state)
    if call.paused:
        return f"{name}, stopped"
    return name


def call_end(call: call_pb2.Call) -> str:
    """The exit code or signal, in a word."""
    process = call.result.process
    if process.HasField("exit_code"):
        return str(process.exit_code)
    if process.HasField("signal"):
        return signal_name(process.signal)
    return ""


def age(start: Timestamp, end: Timestamp | None = None) -> str:
    """From a time until another, or now."""
    until = time.time() if end is None else end.seconds + end.nanos / 1e9
    return span(until - start.seconds - start.nanos / 1e9)


def span(length: float) -> str:
    if length < 0.0995:
        return f"{max(length, 0) * 1000:.0f} ms"
    if length < 9.95:
        return f"{length:.1f} s"
    if length < 120:
        return f"{length:.0f} s"
    if length < 7200:
        return f"{length / 60:.0f} min"
    if length < 172800:
        return f"{length / 3600:.0f} h"
    return f"{length / 86400:.0f} d"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def plural(count: int, word: str) -> str:
    forms = {"process": "processes"}
    return f"{count} {word if count == 1 else forms.get(word, word + 's')}"


def receipt_lines(receipt: call_pb2.KillReceipt) -> list[str]:
    """What ending a call took, the proof, and who is left."""
    first = f"ended {plural(receipt.ended, 'process')}"
    if receipt.escaped:
        first += f", {receipt.escaped} of them outside of its process group"
    first += f", in {span(seconds(receipt.duration))}"
    steps = [
        f"{signal_name(sent.signal)} to {sent.processes} at {span(seconds(sent.after))}"
        for sent in receipt.signals
    ]
    lines = [first]
    if steps:
        lines.append("sent " + "; ".join(steps))
    if receipt.survivors:
        lines.extend(
            f"still alive: {survivor.pid} {survivor.name}: {survivor.reason}"
            for survivor in receipt.survivors
        )
    elif receipt.proof:
        lines.append(f"nothing is left (proof: {receipt.proof})")
    return lines


def end_line(result: call_pb2.CallResult) -> str:
    """How a call ended when it wasn't by an exit code of its own; otherwise empty."""
    if result.cause == EndCause.END_CAUSE_CANCELLED:
        return f"cancelled: {result.cancel_reason}" if result.cancel_reason else "cancelled"
    if result.cause == EndCause.END_CAUSE_TIMEOUT:
        return f"timed out after {span(seconds(result.duration))}"
    if result.cause == EndCause.END_CAUSE_SIGNAL:
        number = result.process.signal
        core = ", core dumped" if result.process.core_dumped else ""
        return f"ended by signal {number} ({signal_name(number)}{core})"
    if result.state in (CallState.CALL_STATE_FAILED, CallState.CALL_STATE_LOST):
        return result.error or enum_name(CallState.DESCRIPTOR, result.state)
    if result.cause == EndCause.END_CAUSE_UNKNOWN:
        return "ended; its exit status is not known"
    return ""


def exit_code(result: call_pb2.CallResult) -> int:
    """The exit code for a shell: the command's own, 128+N for a signal, 124 for a timeout,
    130 for a cancel, 126 or 127 when it could not be started, 125 when nobody knows."""
    if result.cause == EndCause.END_CAUSE_TIMEOUT:
        return 124
    if result.cause == EndCause.END_CAUSE_CANCELLED:
        return 130
    if result.cause == EndCause.END_CAUSE_START_ERROR:
        return 127 if any(text in result.error for text in _NOT_THERE) else 126
    if result.process.HasField("exit_code"):
        return result.process.exit_code
    if result.process.HasField("signal"):
        return 128 + result.process.signal
    return 0 if result.state == CallState.CALL_STATE_SUCCEEDED else 125
