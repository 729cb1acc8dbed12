"""Transcripts: the rules of normalisation, and canonical JSON (see README.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scenario import Scenario

_BY_KEY = {
    key: mark
    for mark, keys in {
        "<t>": "after created_at duration ended_at expires_at opened_at queued_at started_at "
        "stopped_at system_time time user_time",
        "<pid>": "keeper_pid pid surviving_pids worker_pid",
        "<revision>": "bookmark decision_revision next oldest_revision revision",
        "<n>": "max_rss_bytes",
        "<signals>": "signals",
    }.items()
    for key in keys.split()
}
_IDS = frozenset(
    "agent_id call_id call_ids consumed_call_ids delivery_id from_agent_id instance_id message_id "
    "parent_id prompt_id prompt_ids read_id recipient_id request_id self_agent_id sub_agent_id "
    "token_id tool_call_id turn_id wait_id watched_agent_id watching".split()
)
_TEXTS = [
    (re.compile(r"duration_seconds: [0-9]+"), "duration_seconds: <t>"),
    (re.compile(r"kill_signals: [^\n]*"), "kill_signals: <signals>"),
    (re.compile(r"revision [0-9]+"), "revision <revision>"),
]
_WORD = re.compile(r"[A-Za-z0-9_-]+")


def plain(value: Any) -> Any:
    """Without what differs from run to run, ids aside."""
    if isinstance(value, dict):
        return {key: _BY_KEY.get(key) or plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        for pattern, mark in _TEXTS:
            value = pattern.sub(mark, value)
    return value


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2) + "\n"


def transcript(scenario: Scenario, directory: Path, entries: list[dict[str, Any]]) -> str:
    path = str(directory)
    steps = [_texts(plain(entry), lambda text: text.replace(path, "<dir>")) for entry in entries]
    names: dict[str, str] = {}
    for found in _ids(steps):
        if found and found not in scenario.given and found not in names:
            names[found] = f"<id:{len(names) + 1}>"

    def named(text: str) -> str:
        return _WORD.sub(lambda match: names.get(match[0], match[0]), text)

    return canonical({"scenario": scenario.name, "steps": _texts(steps, named)})


def _texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_texts(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key in sorted(value):
            inner = value[key]
            if key in _IDS:
                values = inner if isinstance(inner, list) else [inner]
                yield from (one for one in values if isinstance(one, str))
            yield from _ids(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ids(inner)
