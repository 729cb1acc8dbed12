"""Each deliberate break of the supervisor is caught, by the check that is about it.

All runs are made side by side, a few at a time, by the first test that needs one; each has a
daemon of its own that `broken/launch.py` has broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinfold.verify import own
from support import MARKER, processes_with

LAUNCH = Path(__file__).parent / "broken" / "launch.py"
AT_A_TIME = 8
# What a broken supervisor never does, need not be awaited for long.
PATIENCE = "6"


class Case(NamedTuple):
    broken: str  # a function of broken/breaks.py
    phase: str
    check: str


LATE = "what should come, comes"

CASES = [
    Case("notice_not_suppressed", "suppression", "the prompt is taken back"),
    Case("notice_despite_wait", "suppression", "no prompt is ever queued"),
    Case("notice_twice", "background", "one prompt"),
    Case("notice_to_parent", "delegate-leak", "no stray completion prompt"),
    Case("notice_lost_after_interruption", "restored-notices", LATE),
    Case("task_notice_wakes", "tasks-notices", "it wakes nobody"),
    Case("result_consumed_twice", "races", "one gets the result, the rest an error"),
    Case("newest_first", "wait-bare", "in the order of completion, each named"),
    Case("two_exact_waiters", "races", "one is installed, the rest refused"),
    Case("interruption_names_call", "interruption", "exactly these headers, then optional prose"),
    Case(
        "input_beats_result",
        "interruption-notices",
        "its own prompt does not interrupt, a ready result goes first",
    ),
    Case("bare_wait_hangs", "wait-bare", LATE),
    Case("foreign_calls_known", "wait-exact", "another conversation's"),
    Case("cancel_kills_nothing", "cancel-shell", "nothing of a normal completion"),
    Case("cancel_kills_siblings", "cancel-isolation", "the sibling runs on"),
    Case("cancel_twice", "duplicate-cancel", "of parallel cancels one succeeds"),
    Case("cancel_without_notice", "duplicate-cancel", "one request"),
    Case("cancelled_output_lost", "cancel-shell", "the output so far is kept"),
    Case("user_cancel_wakes", "user-cancel", "no turn starts because of it"),
    Case("prompts_shown", "hidden-prompts", "without its text, for people"),
    Case("set_fails_fast", "wait-set", "a member's error does not end it"),
    Case("advice_always", "input-timeout", "the first two say no more than that"),
    Case("message_not_escaped", "message", "only its own closing tag is escaped"),
    Case("redundant_alias", "agent-start", "both ids at once, nothing else, no placeholder"),
    Case("wrong_placeholder", "background", "placeholder text"),
    Case("no_duration", "duration", "over 5 s, in whole seconds, after the status"),
    Case("chatty_cancel", "cancel-queued", "a queued call can be cancelled"),
    Case("no_origin", "wait-bare", "in the order of completion, each named"),
    Case("no_status_line", "tasks-stream", "what is new"),
    Case("wrong_status", "tasks-stream", "the rest, then the status with its detail"),
    Case("message_does_not_preempt", "parked-delegate", LATE),
    Case(
        "message_preempts_too_much", "busy-delegate", "the call ends by itself, in the foreground"
    ),
    Case("watch_stays_on", "agent-watch", "nothing of a later turn is told"),
    Case("answer_told_twice", "agent-start", "the final answer, once, activating"),
    Case("cursor_stands_still", "tasks-stream", "once"),
    Case("tasks_unfenced", "tasks-fences", "another's task cannot be read"),
    Case("no_task_limit", "tasks-limit", "one more is refused"),
]

pytestmark = pytest.mark.timeout(230)


@dataclass
class Run:
    code: int
    report: dict[str, Any]
    errors: str

    def failed(self) -> list[tuple[str, str]]:
        """Phase and check."""
        return [
            (phase["name"], check["name"])
            for phase in self.report.get("phases", [])
            for check in phase["checks"]
            if not check["passed"]
        ]


async def _run(broken: str, phase: str) -> Run:
    """The phase against a daemon that is broken."""
    directory = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
    marker = uuid.uuid4().hex
    env = {name: value for name, value in os.environ.items() if not name.startswith("PINFOLD_")}
    env[MARKER] = marker
    env["TMPDIR"] = str(directory)
    state = directory / "state"
    state.mkdir(mode=0o700)
    (state / "pinfold.toml").write_text(own.SETTINGS)
    read, write = os.pipe()
    try:
        with (directory / "log").open("wb") as log:
            daemon = await asyncio.create_subprocess_exec(
                sys.executable,
                str(LAUNCH),
                broken,
                "--state",
                str(state),
                "--ready-fd",
                str(write),
                stdout=log,
                stderr=log,
                env=env,
                pass_fds=[write],
            )
        os.close(write)
        ready = await asyncio.to_thread(os.read, read, 4096)
        if not ready:
            return Run(-1, {}, (directory / "log").read_text())
        address = f"unix:{state / 'pinfold.sock'}"
        arguments = ["verify", "--address", address, "--json", "--patience", PATIENCE]
        verify = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pinfold",
            *arguments,
            "--phase",
            phase,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
        out, errors = await verify.communicate()
        with contextlib.suppress(ProcessLookupError):
            daemon.kill()
        await daemon.wait()
        report = json.loads(out) if out else {}
        words = errors.decode() + (directory / "log").read_text()[-4000:]
        return Run(verify.returncode or 0, report, words)
    finally:
        os.close(read)
        for pid in processes_with(MARKER, marker):
            # A broken supervisor may leave anything.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


async def _run_all() -> dict[tuple[str, str], Run]:
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(broken: str, phase: str) -> Run:
        async with places:
            return await _run(broken, phase)

    keys = [(case.broken, case.phase) for case in CASES]
    runs = await asyncio.gather(*(one(*key) for key in keys))
    return dict(zip(keys, runs))


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    return asyncio.run(_run_all())


@pytest.mark.parametrize("case", CASES, ids=[case.broken for case in CASES])
def test_break_is_caught(runs: dict[tuple[str, str], Run], case: Case) -> None:
    run = runs[case.broken, case.phase]
    assert run.code == 1, f"exit code {run.code}: {run.errors}"
    assert run.report["passed"] is False
    assert (case.phase, case.check) in run.failed(), run.errors


def test_launcher_itself_breaks_nothing() -> None:
    run = asyncio.run(_run("nothing", "wait-exact"))
    assert run.failed() == []
    assert run.code == 0, run.errors
