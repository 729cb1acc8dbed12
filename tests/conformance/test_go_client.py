"""The Go client's own tests, against a live supervisor too."""

from __future__ import annotations

import os
import subprocess

import pytest
from conformance_driver import ROOT, Runs

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("language", ["go"], indirect=True)
def test_go_client(runs: Runs, language: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")}
    environment["PINFOLD_TEST_ADDRESS"] = runs.supervisor("default").address
    done = subprocess.run(
        ["go", "-C", str(ROOT / "clients" / "go"), "test", "-count=1", "./..."],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
