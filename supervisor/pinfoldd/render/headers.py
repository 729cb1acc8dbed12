"""HTTP-like text: `name: value` lines, one empty line, the payload (docs/contract.md, How a
result reads).

Lines end in LF. Header values are escaped and bounded here, so that a path, a label or an id
from outside can make neither a header nor a line. A payload is taken as it is: whoever makes
it escapes or prefixes what needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_VALUE = 4096
"""Characters of one header value, and of one value quoted in a message."""

Header = tuple[str, str]

INTERNAL: Header = ("tau_internal", "true")
"""Marks text that the supervisor wrote itself."""

ERROR = "error"

# Control characters and line separators could make lines; the bidirectional controls could
# make one header look like another; lone surrogates can't be sent at all.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def one_line(text: str, limit: int = MAX_VALUE) -> str:
    """The text as one printable line of at most `limit` characters, `…` for what is cut off.

    Ordinary text, backslashes included, stays as it is.
    """
    cut = len(text) > limit
    line = _UNSAFE.sub(_escape, text[:limit] if cut else text)
    if len(line) > limit:
        cut = True
    return line[: limit - 1] + "…" if cut else line


def shown(raw: bytes) -> str:
    """Bytes from outside, such as a path, for a message. Undecodable ones are replaced."""
    return raw.decode("utf-8", "replace")


def document(headers: Iterable[Header], payload: str = "") -> str:
    """The text. Without headers it is the payload alone, without a payload the headers alone."""
    top = "\n".join(f"{name}: {one_line(value)}" for name, value in headers)
    if not payload:
        return top
    return f"{top}\n\n{payload}" if top else payload


def error(message: str, details: Mapping[str, str] | None = None, payload: str = "") -> str:
    """The text of an error: `error: <message>`, then its details as headers."""
    return document([(ERROR, message), *(details or {}).items()], payload)


def wrapped(tag: str, body: str) -> str:
    """`<tag>`, the body, `</tag>`, each on lines of their own.

    Only the exact closing tag is escaped in the body (docs/contract.md, Agents), so that a
    body can't end its wrapper.
    """
    closing = f"</{tag}>"
    return f"<{tag}>\n{body.replace(closing, f'&lt;/{tag}&gt;')}\n{closing}"


def duration(seconds: float | None) -> list[Header]:
    """`duration_seconds`, rounded up, and only where it is over 5 seconds."""
    if seconds is None or seconds <= 5:
        return []
    return [("duration_seconds", str(-int(-seconds // 1)))]
