"""Runs phases side by side: the longest first, so many at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from importlib import import_module

from pinfold.client import Client
from pinfold.verify.phase import PHASES, Phase, Spec
from pinfold.verify.report import PhaseResult, Report

AT_A_TIME = 14
ROLE = "scripted"
SERIAL_ROLE = "verify-serial"

_GROUPS = (
    "tau_shell",
    "tau_background",
    "tau_wait",
    "tau_suppression",
    "tau_interruption",
    "tau_races",
    "tau_input",
    "tau_cancel",
    "tau_turns",
    "tau_agents",
    "tau_delegates",
    "tau_legacy",
    "tau_legacy_more",
    "tau_log",
    "tasks_tools",
    "tasks_output",
    "tasks_kill",
    "tasks_notices",
    "tasks_fences",
    "tasks_settings",
)

# What a supervisor must have in its settings for the plan.
NEEDED_ROLE = f"""[roles.{SERIAL_ROLE}]
worker = "scripted"
max_running_calls = 1
"""


class CannotRun(Exception):
    """The plan could not be run at all: one line for people."""


def phases(section: str = "all", names: Sequence[str] = ()) -> list[Spec]:
    """Those of a section, or those named, in the order of the plan. Raises CannotRun."""
    for group in _GROUPS:
        import_module(f"pinfold.verify.{group}")
    unknown = [name for name in names if name not in PHASES]
    if unknown:
        raise CannotRun(f"no such phase: {', '.join(unknown)} (see `pinfold verify --list`)")
    return [
        spec
        for spec in PHASES.values()
        if section in ("all", spec.section) and (not names or spec.name in names)
    ]


async def run(
    client: Client,
    specs: Sequence[Spec],
    *,
    patience: float,
    done: Callable[[PhaseResult], None] = lambda _: None,
) -> Report:
    """Run phases against a supervisor. `done` hears of each as it ends. Raises CannotRun."""
    started = time.monotonic()
    info = await client.info()
    missing = [role for role in (ROLE, SERIAL_ROLE) if role not in info.roles]
    if missing:
        raise CannotRun(
            f"the supervisor has no role {' and '.join(missing)}: add to its settings file\n"
            + NEEDED_ROLE
        )
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(spec: Spec) -> PhaseResult:
        async with places:
            running = Phase(
                spec, client, info, role=ROLE, serial_role=SERIAL_ROLE, patience=patience
            )
            result = await running.run()
        done(result)
        return result

    longest_first = sorted(specs, key=lambda spec: -spec.seconds)
    results = await asyncio.gather(*map(one, longest_first))
    order = {spec.name: at for at, spec in enumerate(specs)}
    report = Report(f"pinfold {info.version} at {client.address}")
    report.phases = sorted(results, key=lambda result: order[result.name])
    report.seconds = time.monotonic() - started
    return report
