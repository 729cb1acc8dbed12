"""Labels: one escaped, bounded line that people and models know a call by."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pinfoldd.render.headers import one_line, shown

MAX_LABEL = 100
"""Characters of a label."""


def label(text: str | bytes) -> str:
    """Of a command, a prompt, or a label that a client chose."""
    if isinstance(text, bytes):
        # A script may be megabytes: decode no more of it than can be shown.
        text = shown(text[: 4 * (MAX_LABEL + 1) + 1024])
    return one_line(text.strip(), MAX_LABEL)


def argv_label(argv: Sequence[bytes]) -> str:
    """Of an argument vector, quoted as for a shell."""
    words: list[str] = []
    size = 0
    for arg in argv:
        words.append(shlex.quote(shown(arg[: 4 * (MAX_LABEL + 1)])))
        size += len(words[-1])
        if size > MAX_LABEL:
            break
    text = " ".join(words)
    return one_line(text if len(words) == len(argv) else text + " …", MAX_LABEL)
