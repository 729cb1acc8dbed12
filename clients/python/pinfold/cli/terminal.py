"""The person's terminal while a command has one of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator


def terminal_size() -> tuple[int, int]:
    """Rows and columns of the terminal at hand, or 24 by 80."""
    for descriptor in (1, 0, 2):
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(descriptor)
            if found.lines and found.columns:
                return found.lines, found.columns
    return 24, 80


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too. Restores the terminal whatever happens."""
    descriptor = sys.stdin.fileno()
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
