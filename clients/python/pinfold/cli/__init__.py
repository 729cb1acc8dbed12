"""The command line."""

from __future__ import annotations

from pinfold.cli.main import main

__all__ = ["main"]
