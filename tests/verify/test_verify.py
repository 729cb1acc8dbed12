"""`pinfold verify`: the whole plan passes, and the report says what was tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pinfold.verify import plan
from pinfold.verify.report import Check, Note, PhaseResult, Report
from support import Supervisor


def pinfold(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pinfold", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(220)
def test_whole_plan_passes() -> None:
    done = pinfold("verify", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    failed = [
        (phase["name"], check)
        for phase in report["phases"]
        for check in phase["checks"]
        if not check["passed"]
    ]
    assert failed == []
    assert done.returncode == 0, done.stderr
    # No phase is skipped, and each has checked something.
    names = {spec.name for spec in plan.phases()}
    assert {phase["name"] for phase in report["phases"]} == names | {"survivors"}
    assert all(phase["checks"] for phase in report["phases"])
    assert all(one["holds"] for one in report["confirmations"])
    routes = {one["route"] for one in report["routes"]}
    assert routes >= {
        "shell cancellation",
        "unknown id",
        "empty id",
        "unsupported non-shell tool",
        "sub_agent_id",
        "running delegate",
        "no-arg wait",
        "wait suppression",
        "duplicate cancel",
        "completed delegate",
        "sibling isolation",
        "slow delegate duration",
        "inner-tool leak",
    }


def test_section_and_phases_can_be_chosen() -> None:
    done = pinfold("verify", "--section", "tasks", "--phase", "tasks-tools")
    assert done.returncode == 0, done.stdout
    assert "tasks: schemas and guidance" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.rstrip().split("\n")[-1].startswith("passed: 2 phases, ")


def test_against_a_supervisor_that_runs(supervisor: Supervisor) -> None:
    address = ("--address", supervisor.address, "--phase", "hidden-prompts")
    refused = pinfold("verify", *address)
    assert refused.returncode == 2
    assert plan.NEEDED_ROLE.strip() in refused.stderr
    settings = supervisor.state / "pinfold.toml"
    settings.write_text(plan.NEEDED_ROLE)
    supervisor.kill()
    supervisor.start()
    done = pinfold("verify", *address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert supervisor.process is not None
    assert supervisor.process.poll() is None


def test_it_could_not_run(tmp_path: Path) -> None:
    done = pinfold("verify", "--state", str(tmp_path), "--phase", "status", timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("pinfold: no supervisor ")
    done = pinfold("verify", "--phase", "no-such-phase")
    assert done.returncode == 2
    assert "no such phase: no-such-phase" in done.stderr


def test_report_of_a_failure() -> None:
    phase = PhaseResult("a-phase", "tau", "a title")
    phase.checks = [
        Check("a route", "good", True, "1", "1", confirms="once"),
        Check("a route", "bad", False, "no prompt", "a stray one", kind="leak", confirms="once"),
    ]
    phase.notes = [Note("timing", "slow today"), Note("", "by typed limits")]
    report = Report("one", [phase], 1.0)
    assert not report.passed
    assert report.routes() == [("tau", "a route", 2, 1)]
    assert report.findings() == [
        ("timing", "a-phase: slow today"),
        ("leak", "a-phase: bad: got a stray one"),
    ]
    assert report.remarks() == ["a-phase: by typed limits"]
    assert [holds for holds, _ in report.confirmations()] == [False]
    plain = report.to_plain()["phases"][0]["checks"]
    assert "got" not in plain[0]
    assert plain[1]["got"] == "a stray one"


def test_a_phase_without_checks_does_not_pass() -> None:
    assert not Report("one", [PhaseResult("empty", "tau", "t")]).passed
    assert not Report("one").passed
