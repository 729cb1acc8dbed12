"""The kill receipt as headers: what ending a group took, and what is left of it."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from pinfoldd.core.values import Receipt, Survivor
from pinfoldd.render.headers import Header, one_line

_MAX_NAMED = 16
_MAX_NAME = 80


def signal_name(number: int) -> str:
    """`SIGTERM`, or `signal 99` for one that has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _bounded(items: list[str], separator: str) -> str:
    more = len(items) - _MAX_NAMED
    if more > 0:
        items = [*items[:_MAX_NAMED], f"+{more} more"]
    return separator.join(items)


def pids(survivors: Iterable[Survivor]) -> str:
    return _bounded([str(survivor.pid) for survivor in survivors], ", ")


def _signals(receipt: Receipt) -> str:
    return _bounded(
        [
            f"{signal_name(sent.signal).removeprefix('SIG').replace(' ', '-')}@{sent.after:.2f}s"
            for sent in receipt.signals
        ],
        " ",
    )


def _survivor(survivor: Survivor) -> str:
    name, reason = one_line(survivor.name, _MAX_NAME), one_line(survivor.reason, _MAX_NAME)
    inner = ": ".join(part for part in (name, reason) if part)
    return f"{survivor.pid} ({inner})" if inner else str(survivor.pid)


def receipt_headers(receipt: Receipt | None) -> list[Header]:
    """Each only where it says something.

    `kill_signals: TERM@0.00s KILL@2.00s` (after the stop began), `killed_processes`,
    `killed_outside_group`, `kill_ended_by` (the step after which nothing was left),
    `kill_proof` (how that is known), `survivors: 123 (name: reason), …`.
    """
    if receipt is None:
        return []
    headers: list[Header] = []
    if receipt.signals:
        headers.append(("kill_signals", _signals(receipt)))
    if receipt.ended:
        headers.append(("killed_processes", str(receipt.ended)))
    if receipt.escaped:
        headers.append(("killed_outside_group", str(receipt.escaped)))
    if receipt.ended_by:
        headers.append(("kill_ended_by", receipt.ended_by))
    if receipt.proof:
        headers.append(("kill_proof", receipt.proof))
    return headers + survivor_headers(receipt)


def survivor_headers(receipt: Receipt | None) -> list[Header]:
    if receipt is None or not receipt.survivors:
        return []
    return [("survivors", _bounded([_survivor(one) for one in receipt.survivors], ", "))]
