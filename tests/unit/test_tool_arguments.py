"""A model's arguments: what is accepted, and the exact text for what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfoldd.core.values import ReportedState, WaitMode
from pinfoldd.rpc.tool_arguments import (
    _PARSERS,
    MAX_SECONDS,
    TOOLS,
    AgentStartArguments,
    AgentWatchArguments,
    ArgumentError,
    Bounds,
    CancelArguments,
    MessageArguments,
    ShellArguments,
    StatusArguments,
    TaskKillArguments,
    TaskListArguments,
    TaskOutputArguments,
    WaitArguments,
    parse,
)


def refusal(name: str, arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    with pytest.raises(ArgumentError) as caught:
        parse(name, text)
    return caught.value.message


IDS = [f"c{i}" for i in range(64)]

ACCEPTED: list[tuple[str, Any, Any]] = [
    ("shell", {"command": "true"}, ShellArguments("true")),
    (
        "shell",
        {
            "command": " a\n",
            "timeout": 0,
            "cwd": "/x",
            "env": {"A": ""},
            "background": True,
            "exclusive": True,
        },
        ShellArguments(" a\n", 0, "/x", {"A": ""}, background=True, exclusive=True),
    ),
    ("shell", {"command": "x", "timeout": 10**400}, ShellArguments("x", MAX_SECONDS)),
    ("wait", {}, WaitArguments(WaitMode.ANY_BACKGROUND)),
    ("wait", "", WaitArguments(WaitMode.ANY_BACKGROUND)),
    ("wait", {"tool_call_id": "  X "}, WaitArguments(WaitMode.EXACT, ["X"])),
    ("wait", {"tool_call_ids": [" X"]}, WaitArguments(WaitMode.EXACT_ALL, ["X"])),
    ("wait", {"tool_call_ids": IDS}, WaitArguments(WaitMode.EXACT_ALL, IDS)),
    ("wait", {"timeout_minutes": 1}, WaitArguments(WaitMode.ACTIVATING_INPUT, minutes=5)),
    ("wait", {"timeout_minutes": 7}, WaitArguments(WaitMode.ACTIVATING_INPUT, minutes=7)),
    (
        "wait",
        {"timeout_minutes": 2**63 - 1},
        WaitArguments(WaitMode.ACTIVATING_INPUT, minutes=1440),
    ),
    (
        "wait",
        '{"timeout_minutes": ' + "9" * 100_000 + "}",
        WaitArguments(WaitMode.ACTIVATING_INPUT, minutes=1440),
    ),
    ("cancel", {"tool_call_id": " X "}, CancelArguments("X")),
    ("agent_start", {"prompt": " p "}, AgentStartArguments(" p ")),
    (
        "agent_start",
        {"prompt": "p", "role": "r", "mode": "call"},
        AgentStartArguments("p", "r", as_call=True),
    ),
    ("agent_start", {"prompt": "p", "mode": "watch"}, AgentStartArguments("p")),
    ("agent_watch", {"agent_id": "a", "enable": False}, AgentWatchArguments("a", enable=False)),
    (
        "message",
        {"recipient_id": " a ", "message": " b\n"},
        MessageArguments("a", " b\n"),
    ),
    (
        "status",
        {"state": "done", "title": " é" * 1 + "x" * 158 + "\n"},
        StatusArguments(ReportedState.DONE, "é" + "x" * 158),
    ),
    ("task_output", {"task_id": "shell-1"}, TaskOutputArguments("shell-1")),
    (
        "task_output",
        {"task_id": "shell-1", "wait": True, "timeout_ms": 1.5},
        TaskOutputArguments("shell-1", wait=True, timeout_ms=1.5),
    ),
    (
        "task_output",
        {"task_id": "shell-1", "timeout_ms": 10**500},
        TaskOutputArguments("shell-1", timeout_ms=MAX_SECONDS * 1000.0),
    ),
    ("task_list", {}, TaskListArguments()),
    ("task_kill", {"task_id": "shell-1"}, TaskKillArguments("shell-1")),
    ("task_kill", {"task_id": "s", "reason": " why "}, TaskKillArguments("s", "why")),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), ACCEPTED)
def test_accepted(name: str, arguments: Any, expected: Any) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert parse(name, text) == expected


WRONG_INTEGERS: list[Any] = [True, 1.0, 1.5, "1", None, [], {}]
NO_STRINGS: list[Any] = [True, 1, 1.5, None, [], {}]

REFUSED: list[tuple[str, Any, str]] = [
    # wait
    *[("wait", {"tool_call_id": v}, "`tool_call_id` must be a string") for v in NO_STRINGS],
    ("wait", {"tool_call_id": ""}, "`tool_call_id` must not be empty"),
    ("wait", {"tool_call_id": " \n"}, "`tool_call_id` must not be empty"),
    *[
        ("wait", {"timeout_minutes": v}, "`timeout_minutes` must be an integer")
        for v in WRONG_INTEGERS
    ],
    ("wait", {"timeout_minutes": 0}, "`timeout_minutes` must be at least 1"),
    ("wait", {"timeout_minutes": -(2**70)}, "`timeout_minutes` must be at least 1"),
    (
        "wait",
        {"tool_call_id": "X", "timeout_minutes": 1},
        "`tool_call_id` and `timeout_minutes` are mutually exclusive",
    ),
    *[
        (
            "wait",
            arguments,
            "`tool_call_id`, `tool_call_ids` and `timeout_minutes` are mutually exclusive",
        )
        for arguments in (
            {"tool_call_id": "X", "tool_call_ids": ["X"]},
            {"tool_call_ids": ["X"], "timeout_minutes": 1},
            {"tool_call_id": "X", "tool_call_ids": ["X"], "timeout_minutes": 1},
        )
    ],
    ("wait", {"tool_call_ids": "X"}, "`tool_call_ids` must be an array of strings"),
    ("wait", {"tool_call_ids": []}, "`tool_call_ids` must not be empty"),
    ("wait", {"tool_call_ids": [*IDS, "y"]}, "`tool_call_ids` must have at most 64 entries"),
    ("wait", {"tool_call_ids": ["a", True]}, "`tool_call_ids[1]` must be a string"),
    ("wait", {"tool_call_ids": [" "]}, "`tool_call_ids[0]` must not be empty"),
    ("wait", {"tool_call_ids": ["a", " a"]}, "`tool_call_ids` must be distinct"),
    (
        "wait",
        '{"tool_call_id": "X", "tool_call_id": "X"}',
        "argument `tool_call_id` is given more than once",
    ),
    (
        "wait",
        {"timeout": 1},
        "unknown argument: `timeout`; expected `tool_call_id`, `tool_call_ids`, `timeout_minutes`",
    ),
    # cancel
    ("cancel", {}, "`tool_call_id` is required"),
    ("cancel", {"tool_call_id": "  "}, "`tool_call_id` must not be empty"),
    ("cancel", {"tool_call_id": 7}, "`tool_call_id` must be a string"),
    # shell
    ("shell", {"command": "x", "timeout": -1}, "`timeout` must be at least 0"),
    *[
        ("shell", {"command": "x", "timeout": v}, "`timeout` must be an integer")
        for v in WRONG_INTEGERS
    ],
    ("shell", {}, "`command` is required"),
    ("shell", {"command": ""}, "`command` must not be empty"),
    ("shell", {"command": ["ls"]}, "`command` must be a string"),
    ("shell", {"command": "x", "background": 1}, "`background` must be a boolean"),
    ("shell", {"command": "x", "exclusive": "true"}, "`exclusive` must be a boolean"),
    ("shell", {"command": "x", "env": []}, "`env` must be an object of strings"),
    ("shell", {"command": "x", "env": {"A": 1}}, "`env`: `A` must be a string"),
    ("shell", {"command": "x", "cwd": None}, "`cwd` must be a string"),
    (
        "shell",
        '{"command": "x", "env": {"A": "1", "A": "2"}}',
        "argument `A` is given more than once",
    ),
    # agents
    ("agent_start", {"prompt": " "}, "`prompt` must not be empty"),
    ("agent_start", {"prompt": "p", "mode": "x"}, "`mode` must be one of `watch`, `call`"),
    ("agent_watch", {"agent_id": "a", "enable": 1}, "`enable` must be a boolean"),
    ("agent_watch", {"agent_id": "a"}, "`enable` is required"),
    ("agent_watch", {"agent_id": "", "enable": True}, "`agent_id` must not be empty"),
    ("message", {"recipient_id": "a", "message": ""}, "`message` must not be empty"),
    ("message", {"recipient_id": "a"}, "`message` is required"),
    (
        "status",
        {"state": "idle", "title": "x"},
        "`state` must be one of `working`, `waiting`, `blocked`, `done`",
    ),
    ("status", {"state": "done", "title": " "}, "`title` must not be empty"),
    ("status", {"state": "done", "title": "x" * 161}, "`title` must be at most 160 bytes"),
    ("status", {"state": "done", "title": "é" * 81}, "`title` must be at most 160 bytes"),
    *[
        ("status", {"state": "done", "title": f"a{c}b"}, "`title` must be one line")
        for c in "\n\r\t\u2028\u0085"
    ],
    (
        "status",
        {"state": "done", "title": "x", "more": 1},
        "unknown argument: `more`; expected `state`, `title`",
    ),
    # tasks
    ("task_output", {"task_id": ""}, 'invalid task_id: expected a non-empty string, got ""'),
    ("task_output", {"task_id": 1}, "invalid task_id: expected a non-empty string, got 1"),
    ("task_kill", {}, "invalid task_id: expected a non-empty string, got nothing"),
    *[
        (
            "task_output",
            f'{{"task_id": "shell-1", "wait": true, "timeout_ms": {value}}}',
            f"invalid wait timeout: expected a positive number of milliseconds, got {value}",
        )
        for value in ("0", "-5", "NaN", "Infinity", "-Infinity", "true", '"1"', "null", "0.0")
    ],
    ("task_output", {"task_id": "s", "wait": "yes"}, "`wait` must be a boolean"),
    ("task_list", {"all": True}, "unknown argument: `all`; expected no arguments"),
    ("task_kill", {"task_id": "s", "reason": 1}, "`reason` must be a string"),
    # JSON
    ("wait", "[]", "arguments must be a JSON object, got []"),
    ("wait", "null", "arguments must be a JSON object, got null"),
    ("wait", "{", "arguments are not valid JSON: Expecting property name"),
    ("wait", "[" * 200_000, "arguments are not valid JSON: nested too deeply"),
    ("cancel", '{"tool_call_id": "\\ud800"}', "arguments are not valid JSON: unpaired surrogate"),
    ("cancel", '{"tool_call_id": NaN}', "`tool_call_id` must be a string"),
    ("wait", '{"timeout_minutes": NaN}', "`timeout_minutes` must be an integer"),
    ("wait", '{"timeout_minutes": 1e3}', "`timeout_minutes` must be an integer"),
]


@pytest.mark.parametrize(("name", "arguments", "message"), REFUSED)
def test_refused(name: str, arguments: Any, message: str) -> None:
    said = refusal(name, arguments)
    assert said.startswith(message) if "property name" in message else said == message


def test_a_message_without_text_echoes_its_recipient() -> None:
    with pytest.raises(ArgumentError) as caught:
        parse("message", '{"recipient_id": "a-9", "message": " "}')
    assert caught.value.details == {"recipient_id": "a-9"}


def test_surrogate_pairs_are_characters() -> None:
    assert parse("cancel", '{"tool_call_id": "\\ud83d\\ude00"}') == CancelArguments("😀")


def test_bounds_are_those_of_the_settings() -> None:
    bounds = Bounds(min_minutes=2, max_minutes=3)
    for given_minutes, kept in ((1, 2), (2, 2), (3, 3), (4, 3)):
        parsed = parse("wait", json.dumps({"timeout_minutes": given_minutes}), bounds)
        assert parsed == WaitArguments(WaitMode.ACTIVATING_INPUT, minutes=kept)


def test_an_unknown_tool_is_not_ours_to_judge() -> None:
    with pytest.raises(KeyError):
        parse("nope", "{}")


def test_wrong_values_are_shown_bounded() -> None:
    assert len(refusal("task_output", {"task_id": ["x" * 10_000]})) < 200
    assert len(refusal("wait", {"k" * 10_000: 1})) < 250


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(sorted({key for _, known in _PARSERS.values() for key in known}))


def outcome(name: str, text: str) -> str:
    """What the model would be told; empty where the arguments are accepted."""
    try:
        parse(name, text)
    except ArgumentError as error:
        return error.message
    return ""


@given(name=st.sampled_from(TOOLS), values=st.dictionaries(KEYS, JSON, max_size=3))
def test_any_json_is_parsed_or_refused_in_one_line(name: str, values: dict[str, Any]) -> None:
    message = outcome(name, json.dumps(values))
    assert len(message.splitlines()) <= 1
    message.encode()


@given(name=st.sampled_from(TOOLS), text=st.text(st.characters(exclude_categories=[])))
def test_any_text_is_parsed_or_refused(name: str, text: str) -> None:
    outcome(name, text).encode()
