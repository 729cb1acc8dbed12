"""What a check may expect beside an exact value. Each says in its repr what it accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Expected:
    """Equal to what `accepts` accepts."""

    def __init__(self, words: str) -> None:
        self._words = words

    def accepts(self, got: object) -> bool:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self.accepts(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._words}>"


class like(Expected):  # noqa: N801
    """Text that a regular expression matches as a whole."""

    def __init__(self, pattern: str) -> None:
        super().__init__(f"text that matches {pattern!r}")
        self._pattern = re.compile(pattern, re.DOTALL)

    def accepts(self, got: object) -> bool:
        return isinstance(got, str) and self._pattern.fullmatch(got) is not None


class starting(Expected):  # noqa: N801
    def __init__(self, prefix: str) -> None:
        super().__init__(f"text that starts with {prefix!r}")
        self._prefix = prefix

    def accepts(self, got: object) -> bool:
        return isinstance(got, str) and got.startswith(self._prefix)


class containing(Expected):  # noqa: N801
    """Text with all of these parts in it, in this order."""

    def __init__(self, *parts: str) -> None:
        super().__init__("text with " + ", then ".join(map(repr, parts)))
        self._parts = parts

    def accepts(self, got: object) -> bool:
        if not isinstance(got, str):
            return False
        at = 0
        for part in self._parts:
            at = got.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return True


class without(Expected):  # noqa: N801
    """Text that has none of these parts in it."""

    def __init__(self, *parts: str) -> None:
        super().__init__("text without " + " or ".join(map(repr, parts)))
        self._parts = parts

    def accepts(self, got: object) -> bool:
        return isinstance(got, str) and not any(part in got for part in self._parts)


class between(Expected):  # noqa: N801
    def __init__(self, least: float, most: float) -> None:
        super().__init__(f"a number from {least:g} to {most:g}")
        self._least, self._most = least, most

    def accepts(self, got: object) -> bool:
        return isinstance(got, int | float) and self._least <= got <= self._most


class in_any_order(Expected):  # noqa: N801
    """These values, each as often as it is here."""

    def __init__(self, values: Iterable[object]) -> None:
        self._values = list(values)
        super().__init__(f"in any order {self._values!r}")

    def accepts(self, got: object) -> bool:
        if not isinstance(got, list):
            return False
        left = list(got)
        for value in self._values:
            at = next((i for i, one in enumerate(left) if value == one), None)
            if at is None:
                return False
            del left[at]
        return not left
