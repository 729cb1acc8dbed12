"""What the store raises."""

from __future__ import annotations


class StoreError(Exception):
    """The disk, or what is on it, does not let the store do its work.

    The text is one line for people: which file, what is wrong, and where it helps, what to do.
    Nothing was changed: whatever raised it may be tried again.
    """
