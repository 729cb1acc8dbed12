"""Status reports: what an agent says it does, checked to the byte and told once."""

from __future__ import annotations

import json

import pytest

from agents.harness import ERROR, RESULT, WATCH_STATE, Actor, texts, watched
from pinfold.errors import InvalidRequestError
from pinfold.v1 import agent_pb2

pytestmark = pytest.mark.timeout(120)

STATES = ("working", "waiting", "blocked", "done")
LONGEST = "é" * 79 + "ab"


@pytest.mark.parametrize("state", STATES)
async def test_each_state(me: Actor, state: str) -> None:
    answer = await me.tool("status", state=state, title="  on it  ")
    assert (answer.kind, answer.text) == (RESULT, f"Status accepted: {state} — on it")
    reported = agent_pb2.StatusReport(
        state=agent_pb2.ReportedState.Value(f"REPORTED_STATE_{state.upper()}"), title="on it"
    )
    assert answer.status == reported
    assert (await me.agent.info()).status == reported
    (event,) = await me.log(names=["agent.status_reported"])
    assert event.status_reported.status == reported
    assert await me.agent.status(state, "on it") == answer.text
    assert len(await me.log(names=["agent.status_reported"])) == 1


@pytest.mark.parametrize("title", ["x", "x" * 160, LONGEST, "🐑" * 40, "\t padded \n"])
async def test_a_title_that_is_taken(me: Actor, title: str) -> None:
    text = f"Status accepted: working — {title.strip()}"
    assert await me.said("status", state="working", title=title) == (RESULT, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"state": "working", "title": "x" * 161}, "`title` must be at most 160 bytes"),
        ({"state": "working", "title": LONGEST + "c"}, "`title` must be at most 160 bytes"),
        ({"state": "working", "title": "🐑" * 41}, "`title` must be at most 160 bytes"),
        ({"state": "working", "title": "a\nb"}, "`title` must be one line"),
        ({"state": "working", "title": "a\rb"}, "`title` must be one line"),
        ({"state": "working", "title": "a\tb"}, "`title` must be one line"),
        ({"state": "working", "title": "a\u2028b"}, "`title` must be one line"),
        ({"state": "working", "title": "a\u0085b"}, "`title` must be one line"),
        ({"state": "working", "title": "a\0b"}, "`title` must be one line"),
        ({"state": "working", "title": ""}, "`title` must not be empty"),
        ({"state": "working", "title": " \n "}, "`title` must not be empty"),
        ({"state": "working", "title": 7}, "`title` must be a string"),
        ({"state": "working"}, "`title` is required"),
        ({"title": "x"}, "`state` is required"),
        (
            {"state": "asleep", "title": "x"},
            "`state` must be one of `working`, `waiting`, `blocked`, `done`",
        ),
        (
            {"state": "working", "title": "x", "more": 1},
            "unknown argument: `more`; expected `state`, `title`",
        ),
    ],
)
async def test_what_is_refused(me: Actor, arguments: dict[str, object], text: str) -> None:
    answer = await me.raw("status", json.dumps(arguments))
    assert (answer.kind, answer.text) == (ERROR, f"error: {text}")
    assert answer.reason == "INVALID_ARGUMENT"
    assert not (await me.agent.info()).HasField("status")
    assert await me.log(names=["agent.status_reported"]) == []


@pytest.mark.parametrize("title", ["", " ", "x" * 161, LONGEST + "c", "a\nb", "a\u2028b"])
async def test_the_typed_rpc_refuses_the_same(me: Actor, title: str) -> None:
    with pytest.raises(InvalidRequestError):
        await me.agent.status("working", title)


async def test_the_same_report_is_told_once(me: Actor) -> None:
    kid = await me.child()
    for state, title in (
        ("working", "one"),
        ("working", "one"),
        ("working", "two"),
        ("waiting", "two"),
        ("waiting", " two "),
        ("working", "one"),
    ):
        answer = await kid.tool("status", state=state, title=title)
        assert answer.text == f"Status accepted: {state} — {title.strip()}"
    assert texts(await me.prompts(WATCH_STATE)) == [
        watched(kid.id, f": status {line}")
        for line in ("working — one", "working — two", "waiting — two", "working — one")
    ]


async def test_a_repeat_of_the_call_changes_nothing(me: Actor) -> None:
    await me.tool("status", "s", state="working", title="one")
    await me.tool("status", state="done", title="two")
    again = await me.tool("status", "s", state="working", title="one")
    assert again.text == "Status accepted: working — one"
    assert (await me.agent.info()).status.title == "two"
