"""UTF-8 where bytes arrive in pieces: a character is never split (docs/contract.md, Task tools)."""

from __future__ import annotations


def decode(raw: bytes) -> tuple[str, bool]:
    """The text, undecodable bytes replaced, and whether there were none."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), False


def without_tail(raw: bytes) -> bytes:
    """Leave out a last character that is not complete."""
    return raw[: len(raw) - incomplete(raw)]


def without_head(raw: bytes) -> bytes:
    """Leave out the rest of a character whose beginning is not there."""
    start = 0
    while start < min(3, len(raw)) and raw[start] & 0xC0 == 0x80:
        start += 1
    return raw[start:]


def incomplete(raw: bytes) -> int:
    """How many bytes at the end are the beginning of a character that more bytes could complete."""
    for back in range(1, min(3, len(raw)) + 1):
        byte = raw[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 2 if 0xC2 <= byte < 0xE0 else 3 if 0xE0 <= byte < 0xF0 else 4
        if not 0xC2 <= byte < 0xF5 or back >= need or (back > 1 and _overlong(byte, raw[1 - back])):
            return 0
        return back
    return 0


def _overlong(first: int, second: int) -> bool:
    """Whether these two can't begin a character: overlong, a surrogate, or past the last."""
    match first:
        case 0xE0:
            return second < 0xA0
        case 0xED:
            return second > 0x9F
        case 0xF0:
            return second < 0x90
        case 0xF4:
            return second > 0x8F
        case _:
            return False
