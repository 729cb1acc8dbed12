"""Supervisors and runners for the conformance scenarios: each profile's supervisor is started
once, each language's runner is run once on it, and the tests look at the transcripts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = HERE / "scenarios"
PROFILES = HERE / "profiles"
EXPECTED = HERE / "expected"
RUN_SECONDS = 600

# Profiles of which every runner has a supervisor of its own.
OWN_SUPERVISOR = frozenset({"drain", "retention"})


@dataclass(frozen=True)
class Language:
    name: str
    # What must be in PATH.
    tools: tuple[str, ...]
    # Builds what is to be run; {bin} is a directory for it.
    build: tuple[tuple[str, ...], ...]
    runner: tuple[str, ...]
    # A sub-agent's worker, as roles of the settings.
    worker: str

    def missing(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]


def _command_worker(*command: str) -> str:
    words = ", ".join(f'"{word}"' for word in command)
    return f'worker = "command"\ncommand = [{words}]'


LANGUAGES = {
    language.name: language
    for language in (
        Language(
            name="python",
            tools=(),
            build=(),
            runner=(sys.executable, str(HERE / "python" / "main.py")),
            worker='worker = "scripted"',
        ),
        Language(
            name="go",
            tools=("go",),
            build=(
                ("go", "-C", str(HERE / "go"), "build", "-o", "{bin}/conformance-go", "."),
                (
                    "go",
                    "-C",
                    str(ROOT / "clients" / "go"),
                    "build",
                    "-o",
                    "{bin}/pinfold-worker-go",
                    "./cmd/pinfold-worker-go",
                ),
            ),
            runner=("{bin}/conformance-go",),
            worker=_command_worker("{bin}/pinfold-worker-go"),
        ),
        Language(
            name="typescript",
            tools=("node", "npm"),
            # It compiles, and has no scenario of that profile to run.
            build=(("sh", str(HERE / "run_typescript.sh"), "--profile", "none"),),
            runner=("sh", str(HERE / "run_typescript.sh")),
            worker=_command_worker(
                "node",
                str(ROOT / "clients" / "typescript" / "dist" / "bin" / "pinfold-worker-ts.js"),
            ),
        ),
    )
}
if own := os.environ.get("CONFORMANCE_RUNNER"):
    LANGUAGES["own"] = Language("own", (), (), tuple(shlex.split(own)), "")


def required() -> set[str]:
    return set(filter(None, os.environ.get("CONFORMANCE_REQUIRE", "").split(",")))


class Supervisor:
    """One `pinfoldd` on a fresh state directory."""

    def __init__(self, settings: str) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="conformance-state-"))
        (self.state / "pinfold.toml").write_text(settings, encoding="utf-8")
        read, write = os.pipe()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")}
        command = [sys.executable, "-m", "pinfoldd", "--state", str(self.state)]
        self._log = (self.state / "pinfoldd.log").open("wb")
        self._process = subprocess.Popen(
            [*command, "--ready-fd", str(write)],
            pass_fds=[write],
            env=environment,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(write)
        with os.fdopen(read, encoding="utf-8") as ready:
            line = ready.readline()
        if not line.startswith("ready "):
            raise RuntimeError((self.state / "pinfoldd.log").read_text(encoding="utf-8"))
        self.address = line.removeprefix("ready ").strip()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._log.close()
            shutil.rmtree(self.state, ignore_errors=True)


class Runs:
    """The transcripts of each profile and language, made when first asked for."""

    def __init__(self) -> None:
        self.bin = Path(tempfile.mkdtemp(prefix="conformance-bin-"))
        self._supervisors: dict[tuple[str, str], Supervisor] = {}
        self._built: dict[str, str] = {}
        self._done: dict[tuple[str, str, str], Path | str] = {}

    def close(self) -> None:
        for supervisor in self._supervisors.values():
            supervisor.close()
        shutil.rmtree(self.bin, ignore_errors=True)

    def build(self, language: Language) -> str:
        """What went wrong; empty: nothing."""
        if language.name not in self._built:
            self._built[language.name] = ""
            for command in language.build:
                done = subprocess.run(
                    self._filled(command), capture_output=True, text=True, check=False
                )
                if done.returncode:
                    self._built[language.name] = done.stdout + done.stderr
        return self._built[language.name]

    def transcripts(self, profile: str, language: str, worker: str = "") -> Path:
        """The directory of the transcripts. Fails the test when the runner failed."""
        key = (profile, language, worker)
        if key not in self._done:
            self._done[key] = self._run(*key)
        done = self._done[key]
        if isinstance(done, str):
            pytest.fail(
                f"the {language} runner failed on profile {profile}:\n{done}", pytrace=False
            )
        return done

    def _run(self, profile: str, language: str, worker: str) -> Path | str:
        chosen = LANGUAGES[language]
        if failure := self.build(chosen):
            return failure
        supervisor = self.supervisor(profile, language, worker)
        out = Path(tempfile.mkdtemp(prefix=f"{profile}-{language}-", dir=self.bin))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")}
        environment["PINFOLD_ADDRESS"] = supervisor.address
        command = [*self._filled(chosen.runner), "--profile", profile]
        command += ["--scenarios", str(SCENARIOS), "--out", str(out)]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it took over {RUN_SECONDS} s"
        return out if done.returncode == 0 else done.stdout + done.stderr

    def supervisor(self, profile: str, language: str = "", worker: str = "") -> Supervisor:
        key = (profile, worker or (language if profile in OWN_SUPERVISOR else ""))
        if key not in self._supervisors:
            settings = (PROFILES / f"{profile}.toml").read_text(encoding="utf-8")
            if worker:
                roles = "\n".join(self._filled([LANGUAGES[worker].worker]))
                settings = settings.replace("# @worker@", roles)
            self._supervisors[key] = Supervisor(settings)
        return self._supervisors[key]

    def _filled(self, words: tuple[str, ...] | list[str]) -> list[str]:
        return [word.replace("{bin}", str(self.bin)) for word in words]
