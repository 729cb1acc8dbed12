"""Every client does the same, to the byte (see README.md)."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance_driver import EXPECTED, LANGUAGES, SCENARIOS, Runs

from pinfoldd.core.reasons import Reason

pytestmark = pytest.mark.timeout(900)

# The supervisor's own tests inject these faults (README.md).
ELSEWHERE = {"STORE_FAILING", "KEEPER_UNAVAILABLE"}
RECORDING = os.environ.get("CONFORMANCE_RECORD", "")


def _load(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return loaded


ALL = {file.stem: _load(file) for file in sorted(SCENARIOS.glob("*.yaml"))}
OF_CLIENTS = [name for name, scenario in ALL.items() if scenario.get("profile") != "workers"]
OF_WORKERS = [name for name, scenario in ALL.items() if scenario.get("profile") == "workers"]


@pytest.mark.parametrize("language", LANGUAGES, indirect=True)
@pytest.mark.parametrize("scenario", OF_CLIENTS)
def test_client(runs: Runs, language: str, scenario: str) -> None:
    profile = ALL[scenario].get("profile", "default")
    _compare(runs.transcripts(profile, language) / f"{scenario}.json", language)


@pytest.mark.parametrize(
    "language", [name for name, one in LANGUAGES.items() if one.worker], indirect=True
)
@pytest.mark.parametrize("scenario", OF_WORKERS)
def test_worker(runs: Runs, language: str, scenario: str) -> None:
    """The scenarios that a worker of the language must pass, driven by the Python client."""
    if failure := runs.build(LANGUAGES[language]):
        pytest.fail(failure, pytrace=False)
    transcripts = runs.transcripts("workers", "python", worker=language)
    _compare(transcripts / f"{scenario}.json", language)


def _compare(transcript: Path, language: str) -> None:
    got = transcript.read_text(encoding="utf-8")
    file = EXPECTED / transcript.name
    if language == RECORDING:
        file.write_text(got, encoding="utf-8")
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    if got != expected:
        difference = difflib.unified_diff(
            expected.splitlines(), got.splitlines(), "expected", language, lineterm="", n=8
        )
        pytest.fail("\n".join(difference), pytrace=False)


@pytest.mark.parametrize("scenario", ALL)
def test_expected_errors(scenario: str) -> None:
    """A step fails where the scenario says so, with that reason, and nowhere else."""
    said = _said(ALL[scenario]["steps"])
    recorded = json.loads((EXPECTED / f"{scenario}.json").read_text(encoding="utf-8"))
    failed = {
        entry["step"]: entry["error"].get("reason")
        for entry in recorded["steps"]
        if "error" in entry
    }
    assert failed == said


def _said(steps: list[dict[str, Any]]) -> dict[int, str]:
    """The reason by the number of the step; what a `join` says is of the step that it joins."""
    beside = {step["async"]: number for number, step in enumerate(steps, 1) if "async" in step}
    return {
        beside[step["join"]] if "join" in step else number: step["error"]
        for number, step in enumerate(steps, 1)
        if "error" in step
    }


def test_every_reason_is_provoked() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in EXPECTED.glob("*.json"))
    missing = {reason.value for reason in Reason if f'"reason": "{reason}"' not in text}
    assert missing <= ELSEWHERE


def test_enough_scenarios() -> None:
    assert len(ALL) >= 60
    assert {file.stem for file in EXPECTED.glob("*.json")} == set(ALL)
