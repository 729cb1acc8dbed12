"""The output of a shell as a model reads it: `out <line>` and `err <line>`, in the order of
arrival, within caps (docs/contract.md, shell).

A line stands where it was completed: at its LF, CR LF or lone CR. What has no line end when
the output ends stands last. Flags say what the line form can't show: `invalid-utf8` (bytes
were replaced), `no_nl` (no line end), `crlf` and `cr` (which line end), `truncated` (a part of
the line is not shown). `...` alone on a line stands for what is left out between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from pinfoldd.core.values import Extent
from pinfoldd.render.utf8 import decode, without_head, without_tail

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024
"""Caps of the text: lines and `...`, line ends and prefixes included."""

WINDOW = 32 * 1024
"""Bytes of each end of a long output that decide its text; more than half of `MAX_BYTES`,
because a line of text is never shorter than what it shows."""

_ELLIPSIS = "..."
_HALF_LINES = MAX_LINES // 2
_HALF_BYTES = (MAX_BYTES - len(_ELLIPSIS) - 1) // 2
_LINE_END = re.compile(rb"\r\n|\n|\r")
_NAMES = {1: "out", 2: "err"}
_AFTER_COMPLETE = 1 << 62


class Chunk(Protocol):
    """A stretch of one stream (1 out, 2 err), or a gap: stream 0 and `missing` bytes."""

    @property
    def stream(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    @property
    def missing(self) -> int: ...


class Piece(NamedTuple):
    """A `Chunk` of our own, for callers that have bytes and no spool."""

    stream: int
    offset: int
    data: bytes
    missing: int = 0


class Body(NamedTuple):
    """The payload, and what the headers say of it."""

    text: str
    valid_utf8: bool
    truncated: bool
    lines: int | None = None  # of the whole output, where all of it was there to be counted
    unended: int = 0  # lines at its end that no newline ends


class _Line(NamedTuple):
    stream: int  # 0: something is missing here
    raw: bytes
    end: str = ""  # "", "no_nl", "crlf" or "cr"
    cut: bool = False


_MISSING = _Line(0, b"")


def ranges(extent: Extent) -> list[tuple[int, int]]:
    """Which [start, stop) of the output the text is made of: at most two windows of it."""
    size = extent.size
    if size <= 2 * WINDOW:
        return [(0, size)] if size else []
    return [(0, WINDOW), (size - WINDOW, size)]


def render_output(chunks: Iterable[Chunk], size: int) -> Body:
    """Make the payload of chunks in the order of their offsets, `size` bytes in all.

    Whatever is not there (between two windows, dropped by the keeper, not kept any more)
    shows as `...`. Linear in what is given.
    """
    lines = _Assembler(size).assemble(chunks)
    missing = _MISSING in lines
    count = None if missing else len(lines)
    unended = sum(line.end == "no_nl" for line in lines)
    if len(lines) <= MAX_LINES:
        rendered = [_render(line) for line in lines]
        if sum(_size(text) for text, _ in rendered) <= MAX_BYTES + 1:
            text = "\n".join(text for text, _ in rendered)
            return Body(text, all(valid for _, valid in rendered), missing, count, unended)
    head, head_valid = _select(lines, from_end=False)
    tail, tail_valid = _select(lines, from_end=True)
    text = "\n".join([*head, _ELLIPSIS, *reversed(tail)])
    return Body(text, head_valid and tail_valid, True, count, unended)


def _size(text: str) -> int:
    return (len(text) if text.isascii() else len(text.encode())) + 1


def _render(line: _Line) -> tuple[str, bool]:
    """The line with its prefix, and whether it was valid UTF-8."""
    if line is _MISSING:
        return _ELLIPSIS, True
    text, valid = decode(line.raw)
    flags = [] if valid else ["invalid-utf8"]
    if line.end:
        flags.append(line.end)
    if line.cut:
        flags.append("truncated")
    name = _NAMES[line.stream]
    return (f"{name}({','.join(flags)}) {text}" if flags else f"{name} {text}"), valid


def _select(lines: list[_Line], *, from_end: bool) -> tuple[list[str], bool]:
    """As many lines of one end as half of the caps allow; the last of them may be cut."""
    room = _HALF_BYTES
    chosen: list[str] = []
    valid = True
    order = range(len(lines) - 1, -1, -1) if from_end else range(len(lines))
    for i in order:
        if len(chosen) == _HALF_LINES or (lines[i] is _MISSING and chosen):
            break
        text, decoded = _render(lines[i])
        if (size := _size(text)) > room:
            cut = _cut(lines[i], room, from_end=from_end)
            if cut is not None:
                chosen.append(cut[0])
                valid = valid and cut[1]
            break
        chosen.append(text)
        room -= size
        valid = valid and decoded
    return chosen, valid


def _cut(line: _Line, room: int, *, from_end: bool) -> tuple[str, bool] | None:
    """The beginning (or the end) of a line that is too long, in at most `room` bytes."""
    # With every flag: the prefix must fit, whatever the cut turns up.
    longest = len("out(invalid-utf8,no_nl,truncated) \n")
    room -= longest
    if room < 4:
        return None
    end = line.end if from_end else ""
    raw = without_head(line.raw[-room:]) if from_end else without_tail(line.raw[:room])
    while True:
        text, valid = _render(_Line(line.stream, raw, end, cut=True))
        over = _size(text) - room - longest
        if over <= 0:
            return text, valid
        # Replacement characters are longer than what they replace, at most three times.
        keep = max(len(raw) - (over + 2) // 3, 0)
        raw = without_head(raw[len(raw) - keep :]) if from_end else without_tail(raw[:keep])


class _Assembler:
    """Puts chunks together into lines, each stream for itself."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._streams = {1: _Stream(1), 2: _Stream(2)}
        self._lines: list[_Line] = []
        self._section: list[tuple[int, _Line]] = []  # of what has no gap in it, with position

    def assemble(self, chunks: Iterable[Chunk]) -> list[_Line]:
        position = 0
        after_gap = False
        for chunk in chunks:
            gap = chunk.stream not in self._streams
            if gap or chunk.offset > position:
                self._gap(position)
                after_gap = True
            position = chunk.offset + len(chunk.data) + chunk.missing
            if gap or not chunk.data:
                continue
            stream = self._streams[chunk.stream]
            # It is in the middle of a line as far as we know. Of the other stream we assume
            # that it is not: `FATAL` on stderr after megabytes of stdout is a whole line.
            if after_gap or (stream.fresh and chunk.data[0] & 0xC0 == 0x80 and self._lines):
                stream.cut = True
                after_gap = False
            stream.take(chunk.data, chunk.offset, self._section)
        if position < self._size:
            self._gap(position)
        else:
            self._flush(at_end=True)
        return self._lines

    def _flush(self, *, at_end: bool) -> None:
        for stream in self._streams.values():
            stream.finish(self._section, at_end=at_end)
        # Only a line that ended in a lone CR may be late: nearly sorted is linear.
        self._section.sort(key=lambda entry: entry[0])
        self._lines.extend(line for _, line in self._section)
        self._section.clear()

    def _gap(self, position: int) -> None:
        if position:
            self._flush(at_end=False)
        if not self._lines or self._lines[-1] is not _MISSING:
            self._lines.append(_MISSING)


class _Stream:
    """The line of one stream that is not complete."""

    __slots__ = ("_cr", "_last", "_number", "_parts", "cut", "fresh")

    def __init__(self, number: int) -> None:
        self._number = number
        self._parts: list[bytes] = []
        self._cr = -1  # where a CR stands that the next byte may make a CR LF
        self._last = -1
        self.cut = False  # the beginning of the line is missing
        self.fresh = True  # nothing yet since the last gap

    def take(self, data: bytes, offset: int, into: list[tuple[int, _Line]]) -> None:
        start = 0
        self.fresh = False
        if self._cr >= 0:
            if data[:1] == b"\n":
                self._complete(b"", "crlf", offset, into)
                start = 1
            else:
                self._complete(b"", "cr", self._cr, into)
        for match in _LINE_END.finditer(data, start):
            end = match[0]
            if end == b"\r" and match.end() == len(data):
                self._parts.append(data[start : match.start()])
                self._cr = offset + match.start()
                return
            kind = "" if end == b"\n" else "crlf" if end == b"\r\n" else "cr"
            self._complete(data[start : match.start()], kind, offset + match.end() - 1, into)
            start = match.end()
        if start < len(data):
            self._parts.append(data[start:])
            self._last = offset + len(data) - 1

    def finish(self, into: list[tuple[int, _Line]], *, at_end: bool) -> None:
        """End the line that is not complete: at the end of the output, or before a gap."""
        if self._cr >= 0:
            self._complete(b"", "cr", self._cr, into)
        elif self._parts:
            raw = b"".join(self._parts)
            self._parts.clear()
            if self.cut:
                raw = without_head(raw)
            if at_end:
                line = _Line(self._number, raw, "no_nl", self.cut)
            else:
                line = _Line(self._number, without_tail(raw), "", cut=True)
            into.append((_AFTER_COMPLETE + self._last, line))
        self.cut = False
        self.fresh = True

    def _complete(self, raw: bytes, end: str, position: int, into: list[tuple[int, _Line]]) -> None:
        if self._parts:
            self._parts.append(raw)
            raw = b"".join(self._parts)
            self._parts.clear()
        if self.cut:
            raw = without_head(raw)
        into.append((position, _Line(self._number, raw, end, self.cut)))
        self._cr = -1
        self.cut = False
