"""Replaces a function wherever the daemon has it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# With it, everything is imported.
import pinfoldd.supervisor  # noqa: F401

BREAKS: dict[str, Callable[[], None]] = {}


def breaks(function: Callable[[], None]) -> Callable[[], None]:
    """Makes a function a break, by its name."""
    BREAKS[function.__name__] = function
    return function


def patch(home: Any, name: str, new: Any) -> None:
    """Replace `home.name`: in its module or class, under the same name wherever it was imported
    to, and in the tables of a module that lead to it."""
    old = getattr(home, name)
    setattr(home, name, new)
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("pinfoldd"):
            continue
        if getattr(module, name, None) is old:
            setattr(module, name, new)
        for table in list(vars(module).values()):
            if isinstance(table, dict):
                for key, value in list(table.items()):
                    if value is old and callable(old):
                        table[key] = new
