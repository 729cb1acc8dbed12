"""Lines of a shell's output: prefixes, flags, order, caps."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfoldd.core.values import Extent
from pinfoldd.render.shell_output import (
    MAX_BYTES,
    MAX_LINES,
    WINDOW,
    Body,
    Piece,
    ranges,
    render_output,
)

OUT, ERR = 1, 2


def pieces(*parts: tuple[int, bytes]) -> tuple[list[Piece], int]:
    chunks, offset = [], 0
    for stream, data in parts:
        chunks.append(Piece(stream, offset, data))
        offset += len(data)
    return chunks, offset


def render(*parts: tuple[int, bytes]) -> Body:
    return render_output(*pieces(*parts))


def windowed(chunks: list[Piece], size: int) -> Body:
    """As the supervisor does it: only the windows are read."""
    lines = sum(chunk.data.count(b"\n") for chunk in chunks)
    read = []
    for start, stop in ranges(Extent(size, lines)):
        for chunk in chunks:
            low, high = max(start, chunk.offset), min(stop, chunk.offset + len(chunk.data))
            if low < high:
                data = chunk.data[low - chunk.offset : high - chunk.offset]
                read.append(Piece(chunk.stream, low, data))
    assert sum(len(chunk.data) for chunk in read) <= 2 * WINDOW
    return render_output(read, size)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(OUT, b"before\n")], "out before"),
        ([(OUT, b"early")], "out(no_nl) early"),
        ([(OUT, b"a\r\nb\rc\n")], "out(crlf) a\nout(cr) b\nout c"),
        ([(OUT, b"a\r"), (OUT, b"\nb\n")], "out(crlf) a\nout b"),
        ([(OUT, b"a\r"), (OUT, b"b\n")], "out(cr) a\nout b"),
        ([(OUT, b"a\r")], "out(cr) a"),
        ([(OUT, b"\n\n")], "out \nout "),
        ([(OUT, b"x\xff\n")], "out(invalid-utf8) x\ufffd"),
        ([(ERR, b"\xff")], "err(invalid-utf8,no_nl) \ufffd"),
        ([(OUT, b"\xe2\x94"), (OUT, b"\x80\n")], "out ─"),
        ([(OUT, b"\xe2\x94"), (ERR, b"e\n"), (OUT, b"\x80\n")], "err e\nout ─"),
        ([(OUT, b"a"), (ERR, b"b\n"), (OUT, b"c\n")], "err b\nout ac"),
        ([(OUT, b"a"), (ERR, b"b\n")], "err b\nout(no_nl) a"),
        ([(ERR, b"e"), (OUT, b"o")], "err(no_nl) e\nout(no_nl) o"),
        # A progress line that is redrawn stands where its CR was.
        ([(OUT, b"1%\r"), (ERR, b"e\n"), (OUT, b"2%\r\n")], "out(cr) 1%\nerr e\nout(crlf) 2%"),
        ([(OUT, b"a\0b\n")], "out a\0b"),
        ([(OUT, b"status: 0\n\nout x\n")], "out status: 0\nout \nout out x"),
        ([(OUT, b"\xc3\xa9\xe2\x80\xa8x\x0b\n")], "out é\u2028x\x0b"),
        ([], ""),
    ],
)
def test_lines(parts: list[tuple[int, bytes]], expected: str) -> None:
    body = render(*parts)
    assert body.text == expected
    assert body.valid_utf8 is ("invalid" not in expected)
    assert not body.truncated


def test_line_cap() -> None:
    data = b"".join(b"%d\n" % i for i in range(1, 4003))
    body = render((OUT, data))
    lines = body.text.split("\n")
    assert body.truncated
    assert lines[0] == "out 1"
    assert lines[999:1002] == ["out 1000", "...", "out 3003"]
    assert lines[-1] == "out 4002"
    assert len(lines) == MAX_LINES + 1


def test_two_thousand_lines_are_all_shown() -> None:
    body = render((OUT, b"x\n" * 2000))
    assert not body.truncated
    assert body.text.count("\n") == 1999


def test_one_huge_line_shows_both_ends() -> None:
    size = 10_000_000
    chunks, total = pieces((OUT, b"a" * size + b"\ntail\n"))
    body = windowed(chunks, total)
    lines = body.text.split("\n")
    assert lines[0].startswith("out(truncated) aaaa")
    assert lines[1] == "..."
    assert lines[2].startswith("out(truncated) aaaa")
    assert lines[3] == "out tail"
    assert len(body.text.encode()) <= MAX_BYTES
    assert body[:3] == render_output(chunks, total)[:3]


def test_the_other_stream_at_the_end_is_a_whole_line() -> None:
    data = b"".join(b"%d\n" % i for i in range(1, 1_000_001))
    chunks, total = pieces((OUT, data), (ERR, b"FATAL\n"))
    body = windowed(chunks, total)
    assert body.text.endswith("\nout 1000000\nerr FATAL")
    assert body[:3] == render_output(chunks, total)[:3]


def test_a_gap_of_the_spool_is_shown() -> None:
    chunks = [Piece(OUT, 0, b"one\ntw"), Piece(0, 6, b"", 100), Piece(OUT, 106, b"ee\nlast\n")]
    body = render_output(chunks, 114)
    assert body.text == "out one\nout(truncated) tw\n...\nout(truncated) ee\nout last"
    assert body.truncated


def test_output_that_is_not_kept_any_more() -> None:
    assert render_output([], 10) == Body("...", True, True, None, 0)
    assert render_output([Piece(OUT, 0, b"a\n")], 10) == Body("out a\n...", True, True, None, 0)
    assert render_output([Piece(OUT, 5, b"a\n")], 7).text == "...\nout(truncated) a"


def test_a_gap_at_the_end_does_not_hide_the_last_lines() -> None:
    chunks = [Piece(OUT, 0, b"x\n" * 5000)]
    lines = render_output(chunks, 20_000).text.split("\n")
    assert lines[:1000] == ["out x"] * 1000
    assert lines[-1] == "..."
    assert lines[-2] == "out x"


def test_characters_are_not_split_at_the_caps() -> None:
    for shift in range(4):
        data = b"a" * shift + "€".encode() * 30_000 + "😀".encode() * 30_000
        chunks, total = pieces((OUT, data))
        body = windowed(chunks, total)
        assert body.valid_utf8
        assert "\ufffd" not in body.text
        assert body[:3] == render_output(chunks, total)[:3]


STREAMS = st.sampled_from([OUT, ERR])
PARTS = st.lists(
    st.tuples(
        STREAMS,
        st.one_of(
            st.binary(max_size=12),
            st.lists(
                st.sampled_from([b"\r", b"\n", b"\r\n", b"a", "é".encode(), "€".encode(), b"\xf0"]),
                max_size=6,
            ).map(b"".join),
        ),
    ),
    max_size=12,
)


def reference(parts: list[tuple[int, bytes]]) -> dict[int, list[tuple[bytes, bytes]]]:
    """The lines of each stream with their ends, one byte at a time."""
    found: dict[int, list[tuple[bytes, bytes]]] = {OUT: [], ERR: []}
    for stream, lines in found.items():
        data = b"".join(part for number, part in parts if number == stream)
        line, i = b"", 0
        while i < len(data):
            end = data[i : i + 2] if data[i : i + 2] == b"\r\n" else data[i : i + 1]
            if end in (b"\n", b"\r", b"\r\n"):
                lines.append((line, end))
                line = b""
            else:
                line += end
            i += len(end) if end in (b"\n", b"\r", b"\r\n") else 1
        if line:
            lines.append((line, b""))
    return found


@given(PARTS)
def test_each_stream_shows_its_lines_however_it_is_cut(parts: list[tuple[int, bytes]]) -> None:
    flag = {b"\n": "", b"\r": "cr", b"\r\n": "crlf", b"": "no_nl"}
    text = render(*parts).text
    shown = text.split("\n") if text else []
    for stream, name in ((OUT, "out"), (ERR, "err")):
        expected = []
        for raw, end in reference(parts)[stream]:
            line = raw.decode(errors="replace")
            flags = ["invalid-utf8"] if line.encode() != raw else []
            flags += [flag[end]] if flag[end] else []
            expected.append(f"{name}{'(' + ','.join(flags) + ')' if flags else ''} {line}")
        assert [line for line in shown if line.startswith(name)] == expected


BIG = st.lists(
    st.tuples(
        STREAMS,
        st.builds(
            lambda unit, count: unit * count,
            st.sampled_from(
                [b"\n", b"x\n", b"\r", b"\r\n", b"abcdefg", b"\xff", b"\xe2\x82", "€".encode()]
            ),
            st.integers(0, 30_000),
        ),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(BIG)
def test_the_caps_hold_for_any_input(parts: list[tuple[int, bytes]]) -> None:
    for body in (render(*parts), windowed(*pieces(*parts))):
        assert len(body.text.encode()) <= MAX_BYTES
        assert body.text.count("\n") <= MAX_LINES
        prefixes = ("out ", "out(", "err ", "err(")
        lines = body.text.split("\n") if body.text else []
        assert all(line == "..." or line.startswith(prefixes) for line in lines)
        assert ("..." in lines) == body.truncated


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=800, max_size=1500))
def test_the_windows_are_enough_for_one_stream(shape: list[tuple[int, bool]]) -> None:
    data = b"".join(("é" if wide else "y").encode() * length + b"\n" for length, wide in shape)
    chunks, size = pieces(*[(OUT, data[i : i + 4096]) for i in range(0, len(data), 4096)])
    assert windowed(chunks, size)[:3] == render_output(chunks, size)[:3]


def test_the_work_is_linear() -> None:
    def measure(count: int) -> float:
        parts = [(OUT if i % 2 else ERR, b"a\rb\r\nc\xff") for i in range(count)]
        chunks, size = pieces(*parts)
        best = 9.9
        for _ in range(3):
            began = time.perf_counter()
            render_output(chunks, size)
            best = min(best, time.perf_counter() - began)
        return best

    assert measure(40_000) < 30 * measure(4_000) + 0.05


def test_an_endless_line_in_small_pieces_is_linear() -> None:
    chunks, size = pieces(*[(OUT, b"x")] * 200_000)
    began = time.perf_counter()
    render_output(chunks, size)
    assert time.perf_counter() - began < 5
