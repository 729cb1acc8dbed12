"""The text form: headers, an empty line, a payload; nothing from outside makes a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfoldd.render.headers import MAX_VALUE, document, duration, error, one_line, wrapped
from pinfoldd.render.labels import MAX_LABEL, argv_label, label

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=300)


def test_a_document_is_headers_an_empty_line_and_the_payload() -> None:
    assert document([("a", "1"), ("b", "2")], "x\ny") == "a: 1\nb: 2\n\nx\ny"
    assert document([("a", "1")]) == "a: 1"
    assert document([], "x") == "x"


def test_an_error_comes_first() -> None:
    assert error("no", {"k": "v"}) == "error: no\nk: v"
    assert error("no") == "error: no"


@given(values=st.lists(ANY_TEXT, min_size=1, max_size=5), payload=st.text(max_size=50))
def test_no_value_makes_a_header_or_a_line(values: list[str], payload: str) -> None:
    text = document([(f"h{i}", value) for i, value in enumerate(values)], payload)
    top = text.split("\n\n", 1)[0] if payload else text
    lines = top.splitlines()
    assert len(lines) == len(values)
    assert all(line.startswith(f"h{i}: ") for i, line in enumerate(lines))
    assert text.endswith(payload)
    text.replace(payload, "").encode() if payload else text.encode()


@given(text=ANY_TEXT, limit=st.integers(1, 50))
def test_one_line_is_bounded_and_can_be_sent(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    line.encode()


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=100))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("a\nerror: b", "a\\nerror: b"),
        ("a\r\tb", "a\\r\\tb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("👩‍🚀 ok — §", "👩‍🚀 ok — §"),
        ("c:\\dir", "c:\\dir"),
    ],
)
def test_escapes(given_text: str, expected: str) -> None:
    assert one_line(given_text) == expected


def test_long_values_are_cut() -> None:
    assert one_line("x" * 10_000) == "x" * (MAX_VALUE - 1) + "…"


def test_only_the_exact_closing_tag_is_escaped() -> None:
    body = "a\n\n<message>é</message></Message>< /message>"
    assert wrapped("message", body) == (
        "<message>\na\n\n<message>é&lt;/message&gt;</Message>< /message>\n</message>"
    )


@given(st.lists(st.sampled_from(["</m", "</m>", ">", "<", "/m>", "x"]), max_size=12))
def test_a_body_cannot_end_its_wrapper(parts: list[str]) -> None:
    assert wrapped("m", "".join(parts)).count("</m>") == 1


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, None),
        (0.0, None),
        (5.0, None),
        (5.0001, "6"),
        (6.0, "6"),
        (6.2, "7"),
        (1e9, "1" + "0" * 9),
    ],
)
def test_duration_is_rounded_up_and_only_over_five_seconds(
    seconds: float | None, shown: str | None
) -> None:
    assert duration(seconds) == ([("duration_seconds", shown)] if shown else [])


def test_labels_are_one_bounded_line() -> None:
    assert label("  for x in a\ndo :\ndone ") == "for x in a\\ndo :\\ndone"
    assert label(b"printf '\xff'") == "printf '\ufffd'"
    assert label(b"x" * 5_000_000) == "x" * (MAX_LABEL - 1) + "…"
    assert argv_label([b"echo", b"a b", b"\n"]) == "echo 'a b' '\\n'"
    assert len(argv_label([b"a" * 3] * 100_000)) <= MAX_LABEL
