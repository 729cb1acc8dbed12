"""The settings of the task tools: checked when they are read, with a line that names the key."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pinfoldd import config
from support import Supervisor
from tasks.harness import configure


def load(directory: Path, text: str) -> config.Tasks:
    (directory / "pinfold.toml").write_text(f"[tasks]\n{text}\n")
    return config.load(directory).tasks


def fault(directory: Path, text: str) -> str:
    with pytest.raises(config.ConfigError) as error:
        load(directory, text)
    return str(error.value)


def test_a_default_above_the_cap_names_both_numbers(tmp_path: Path) -> None:
    said = fault(tmp_path, "waitTimeoutMs = 100\nmaxWaitTimeoutMs = 50")
    assert said == "tasks: waitTimeoutMs (100) is over maxWaitTimeoutMs (50)"
    # Also where only one of them is given.
    assert "waitTimeoutMs (30000) is over maxWaitTimeoutMs (50)" in fault(
        tmp_path, "maxWaitTimeoutMs = 50"
    )
    assert "waitTimeoutMs (700000) is over maxWaitTimeoutMs (600000)" in fault(
        tmp_path, "waitTimeoutMs = 700_000"
    )


def test_equal_ones_load(tmp_path: Path) -> None:
    tasks = load(tmp_path, "waitTimeoutMs = 50\nmaxWaitTimeoutMs = 50")
    assert (tasks.wait_timeout_ms, tasks.max_wait_timeout_ms) == (50, 50)


def test_none_are_the_defaults(tmp_path: Path) -> None:
    tasks = load(tmp_path, "")
    assert (tasks.wait_timeout_ms, tasks.max_wait_timeout_ms) == (30_000, 600_000)
    assert (tasks.completion_delivery, tasks.max_consecutive_wakes) == ("quiet", 3)
    assert tasks.active == 10
    assert config.load(tmp_path / "elsewhere").tasks == tasks


def test_the_keys_have_the_names_of_this_project_too(tmp_path: Path) -> None:
    text = "wait_timeout_ms = 1\nmax_wait_timeout_ms = 2\ncompletion_delivery = 'wakeup'"
    tasks = load(tmp_path, f"{text}\nmax_consecutive_wakes = 4\nactive = 5")
    assert tasks.wait_timeout_ms == 1
    core = config.load(tmp_path).core()
    assert (core.wake_on_task_notice, core.max_consecutive_wakes, core.active_tasks) == (True, 4, 5)


@pytest.mark.parametrize("value", ["'loud'", "''", "true", "1"])
def test_unknown_deliveries(tmp_path: Path, value: str) -> None:
    assert fault(tmp_path, f"completionDelivery = {value}").startswith("tasks.completionDelivery:")


@pytest.mark.parametrize("key", ["maxConsecutiveWakes", "waitTimeoutMs", "active"])
@pytest.mark.parametrize(
    "value", ["0", "-1", "2.5", "2.0", "inf", "nan", "true", "false", "'many'", "[]"]
)
def test_numbers_are_whole_and_positive(tmp_path: Path, key: str, value: str) -> None:
    said = fault(tmp_path, f"{key} = {value}")
    assert said.startswith(f"tasks.{key}: ")
    assert len(said.splitlines()) == 1


def test_unknown_keys(tmp_path: Path) -> None:
    assert fault(tmp_path, "waitTimeout = 5").startswith("tasks.waitTimeout:")


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_TASKS__MAX_CONSECUTIVE_WAKES", "7")
    monkeypatch.setenv("PINFOLD_TASKS__WAIT_TIMEOUT_MS", "250")
    tasks = config.load(tmp_path).tasks
    assert (tasks.max_consecutive_wakes, tasks.wait_timeout_ms) == (7, 250)
    for value in ("0", "2.5", "inf", "true"):
        monkeypatch.setenv("PINFOLD_TASKS__MAX_CONSECUTIVE_WAKES", value)
        with pytest.raises(config.ConfigError, match="ax_consecutive_wakes"):
            config.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("waitTimeoutMs = 100\nmaxWaitTimeoutMs = 50", ["waitTimeoutMs (100)", "(50)"]),
        ("completionDelivery = 'loud'", ["tasks.completionDelivery"]),
        ("maxConsecutiveWakes = inf", ["tasks.maxConsecutiveWakes"]),
    ],
)
def test_a_daemon_does_not_start_and_says_why(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "pinfold.toml").write_text(f"[tasks]\n{text}\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pinfoldd", "--state", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode not in (0, None)
    for word in words:
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "pinfold.sock").exists()


async def test_what_is_set_is_told(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    configure(supervisor, "[tasks]\nwaitTimeoutMs = 1500\nmaxWaitTimeoutMs = 2000\n")
    supervisor.start()
    async with supervisor.client() as client:
        limits = (await client.info()).limits
        assert limits.task_wait_timeout.ToMilliseconds() == 1500
        assert limits.max_task_wait_timeout.ToMilliseconds() == 2000
        listed = await client.list_tools("tasks")
        (tool,) = [tool for tool in listed.tools if tool.name == "task_output"]
        assert "1500" in tool.parameters_json
        assert "2000" in tool.parameters_json
