from __future__ import annotations

import math
from enum import Enum
from typing import Any, get_args

import msgspec
import pytest
from google.protobuf.descriptor import EnumDescriptor
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinfold.v1 import agent_pb2, call_pb2, call_service_pb2, task_service_pb2, watch_service_pb2
from pinfoldd.core import events as e
from pinfoldd.core import model
from pinfoldd.core.apply import apply
from pinfoldd.core.values import (
    AgentState,
    CallState,
    Cause,
    Exit,
    Extent,
    PromptKind,
    Receipt,
    ReportedState,
    Result,
    Signalled,
    Stamp,
    Surface,
    Survivor,
    WaitMode,
    WaitOutcome,
)
from pinfoldd.rpc import convert, enums, wire
from pinfoldd.rpc.event_bodies import BODIES
from pinfoldd.rpc.event_names import NAMES, event_name
from unit.event_samples import EVENTS, of

STAMP = Stamp(7, 6, 12.5, 1_700_000_000.25)
EMPTY = model.State()
SECRET = "s3cr3t"


class Rendered:
    def placeholder(self, event: e.CallBackgrounded, state: model.State) -> str:
        return f"{event.call} is in the background"

    def prompt(self, prompt: model.Prompt, agent: str, state: model.State) -> str:
        return f"<{prompt.body}>"

    def error(self, tool: str, result: Result) -> str:
        return "rendered" if result.error else ""


def queued(call: str = "c1", **changes: Any) -> e.CallQueued:
    fields: dict[str, Any] = {
        "agent": "root", "call": call, "tool": "shell", "kind": "shell", "number": 3,
        "label": "make", "digest": "d", "exclusive": True, "background": True, "budget": 2.0,
        "timeout": None, "grace": 2.0, "kill_leftovers": False, "spec": SECRET.encode(),
    }  # fmt: skip
    return e.CallQueued(**{**fields, **changes})


def opened(agent: str, parent: str = "") -> e.AgentOpened:
    return e.AgentOpened(
        agent, parent, Surface.TAU, "a label", "d", cwd=SECRET, env={"KEY": SECRET}
    )


def state_of(*events: e.Event) -> model.State:
    state = model.State()
    for revision, event in enumerate(events, 1):
        apply(state, event, Stamp(revision, revision, 1.0, 2.0))
    return state


def sent(
    event: e.Event, state: model.State = EMPTY, texts: Any = wire.PLAIN
) -> tuple[watch_service_pb2.Event, watch_service_pb2.Event]:
    """The event as watchers get it, and as those do who ask for internal prompts."""
    name, public, internal = wire.serialized(STAMP, event, state, texts)
    (shown,) = watch_service_pb2.WatchResponse.FromString(public).events
    (whole,) = watch_service_pb2.WatchResponse.FromString(internal or public).events
    assert shown.name == whole.name == name
    return shown, whole


def only(event: e.Event, state: model.State = EMPTY, texts: Any = wire.PLAIN) -> Any:
    """The body of the event, after it has been on the wire."""
    _, message = sent(event, state, texts)
    field = message.WhichOneof("body")
    assert field is not None
    return getattr(message, field)


# ------------------------------------------------------------ completeness


def test_every_event_has_a_name_and_no_two_tables_disagree() -> None:
    every = set(e.Event.__subclasses__())
    assert set(get_args(e.AnyEvent)) == every
    assert set(NAMES) == every
    assert set(BODIES) <= every


NAME_ONLY = {
    e.AgentForgotten, e.ToolRecorded, e.WorkerStarting, e.CallStopping, e.LeaderExited,
    e.LeftoversStopping, e.CallsForgotten, e.PromptsReturned,
}  # fmt: skip


def test_events_without_a_body_are_meant_to_have_none() -> None:
    assert set(NAMES) - set(BODIES) == NAME_ONLY


def test_every_body_of_the_contract_is_used() -> None:
    oneof = watch_service_pb2.Event.DESCRIPTOR.oneofs_by_name["body"]
    assert {field.name for field in oneof.fields} == {field for field, _ in BODIES.values()}


def small(value: Any) -> Any:
    """The sample with numbers that processes, counters and clocks can have."""
    if isinstance(value, bool | Enum):
        return value
    if isinstance(value, int):
        return abs(value) % 2**31
    if isinstance(value, float):
        return abs(value) % 1e9 if math.isfinite(value) else 1.0
    if isinstance(value, list):
        return [small(v) for v in value]
    if isinstance(value, msgspec.Struct):
        return type(value)(*[small(getattr(value, f)) for f in value.__struct_fields__])
    return value


@given(EVENTS.map(small))
@settings(max_examples=400, deadline=None)
def test_every_event_converts_whatever_text_is_in_it(event: e.Event) -> None:
    _, message = sent(event, EMPTY, Rendered())
    assert message.revision == 7
    assert message.decision_revision == 6
    assert (message.time.seconds, message.time.nanos) == (1_700_000_000, 250_000_000)
    assert message.name == event_name(event)
    assert message.agent_id == convert.text(event.agent)
    assert message.call_id == convert.text(getattr(event, "call", ""))
    how = BODIES.get(type(event))
    assert message.WhichOneof("body") == (how and how[0])


@pytest.mark.parametrize("event", sorted(get_args(e.AnyEvent), key=lambda c: c.__name__))
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_each_class_of_event_converts(event: type[e.Event], data: st.DataObject) -> None:
    shown, whole = sent(small(data.draw(of(event))))
    assert shown.name == whole.name != ""


ENUMS = [
    (enums.CALL_STATES, CallState, call_pb2.CallState.DESCRIPTOR),
    (enums.CAUSES, Cause, call_pb2.EndCause.DESCRIPTOR),
    (enums.SURFACES, Surface, agent_pb2.Surface.DESCRIPTOR),
    (enums.PROMPT_KINDS, PromptKind, agent_pb2.PromptKind.DESCRIPTOR),
    (enums.REPORTED_STATES, ReportedState, agent_pb2.ReportedState.DESCRIPTOR),
    (enums.TASK_STATUSES, enums.TaskStatus, task_service_pb2.TaskStatus.DESCRIPTOR),
    (enums.WAIT_OUTCOMES, WaitOutcome, call_service_pb2.WaitOutcome.DESCRIPTOR),
]


@pytest.mark.parametrize(("table", "core", "wire_enum"), ENUMS)
def test_every_enum_maps_both_ways(
    table: dict[Any, int], core: type[Enum], wire_enum: EnumDescriptor
) -> None:
    expected = set(core)
    if core is WaitOutcome:
        expected -= {WaitOutcome.CANCELLED, WaitOutcome.ERROR}
    assert set(table) == expected
    assert sorted(table.values()) == [v.number for v in wire_enum.values if v.number]
    for member, number in table.items():
        assert wire_enum.values_by_number[number].name.endswith(f"_{member.name}")


def test_enums_that_come_in_have_a_way_back() -> None:
    assert {enums.SURFACES_BACK[v]: v for v in enums.SURFACES.values()} == enums.SURFACES
    back = enums.REPORTED_STATES_BACK
    assert {back[v]: v for v in enums.REPORTED_STATES.values()} == enums.REPORTED_STATES


# ------------------------------------------------------------ names

ENDS = [
    (CallState.SUCCEEDED, "tool.result", "tool.background_result"),
    (CallState.TIMED_OUT, "tool.result", "tool.background_result"),
    (CallState.FAILED, "tool.error", "tool.background_error"),
    (CallState.LOST, "tool.error", "tool.background_error"),
    (CallState.CANCELLED, "tool.cancelled", "tool.background_error"),
]


@pytest.mark.parametrize(("state", "foreground", "background"), ENDS)
def test_the_name_of_an_end(state: CallState, foreground: str, background: str) -> None:
    result = Result(state, Cause.UNKNOWN)
    assert event_name(e.CallEnded("a", "c", result, False)) == foreground
    assert event_name(e.CallEnded("a", "c", result, True)) == background


def test_names_that_depend_on_the_event() -> None:
    assert event_name(opened("root")) == "agent.opened"
    assert event_name(opened("child", "root")) == "agent.started"
    assert event_name(e.AgentStopping("a", "", True)) == "agent.stopping"
    assert event_name(e.AgentStopped("a", "")) == "agent.stopped"
    assert event_name(e.AgentStopped("a", "", True)) == "agent.failed"
    assert event_name(e.CallPaused("a", "c", True)) == "call.paused"
    assert event_name(e.CallPaused("a", "c", False)) == "call.resumed"


# ------------------------------------------------------------ what is in them


def test_nothing_secret_is_on_the_wire() -> None:
    for event in (opened("root"), queued()):
        assert SECRET.encode() not in wire.serialized(STAMP, event, EMPTY)[1]
    state = state_of(opened("root"), queued())
    agent, call = state.agents["root"], state.agents["root"].calls["c1"]
    for message in (convert.agent(agent), convert.call(call)):
        assert SECRET.encode() not in message.SerializeToString()


def test_a_call_from_its_queueing_to_its_end() -> None:
    events: list[e.Event] = [
        opened("root"),
        queued(),
        e.CallStarting("root", "c1", 9),
        e.CallStarted("root", "c1", 4711, 3.0, 1_700_000_001.5),
    ]
    state = state_of(*events)
    body = only(events[1], state)
    assert (body.tool, body.task_id, body.label) == ("shell", "shell-3", "make")
    assert body.exclusive
    assert only(events[3], state).pid == 4711
    assert (
        only(e.CallBackgrounded("root", "c1"), state, Rendered()).placeholder
        == "c1 is in the background"
    )
    message = convert.call(state.agents["root"].calls["c1"])
    assert message.state == call_pb2.CALL_STATE_RUNNING
    assert message.background
    assert message.started_at.ToMilliseconds() == 1_700_000_001_500
    assert not message.HasField("ended_at")
    assert not message.HasField("result")

    result = Result(
        CallState.CANCELLED,
        Cause.CANCELLED,
        exit=Exit(signal=15, leftover=2, user_seconds=0.25),
        seconds=6.5,
        output=Extent(100, 3, 1),
        receipt=Receipt(
            [Signalled(15, 0.001, 4, "term")], 4, 1, "term", "", [Survivor(8, "x\udcff", "no")], 0.5
        ),
        error="why",
        cancel_reason="enough",
    )
    end = e.CallEnded("root", "c1", result, True)
    apply(state, end, Stamp(5, 5, 9.0, 9.0))
    body = only(end, state, Rendered())
    assert body.background
    assert body.reported  # no notice was queued with it
    got = body.result
    assert (got.agent_id, got.call_id, got.task_id, got.tool) == ("root", "c1", "shell-3", "shell")
    assert (got.state, got.cause) == (
        call_pb2.CALL_STATE_CANCELLED,
        call_pb2.END_CAUSE_CANCELLED,
    )
    assert got.process.signal == 15
    assert not got.process.HasField("exit_code")
    assert got.process.user_time.ToMilliseconds() == 250
    assert got.duration.ToMilliseconds() == 6500
    assert (got.output.size, got.output.lines, got.output.dropped) == (100, 3, 1)
    assert (got.leftover_processes, got.error, got.cancel_reason) == (2, "rendered", "enough")
    assert got.text == ""
    assert [(s.signal, s.processes, s.step) for s in got.receipt.signals] == [(15, 4, "term")]
    assert got.receipt.signals[0].after.nanos == 1_000_000
    assert (got.receipt.survivors[0].pid, got.receipt.survivors[0].name) == (8, "x\ufffd")
    assert (got.receipt.ended, got.receipt.escaped, got.receipt.ended_by) == (4, 1, "term")

    state.agents["root"].calls["c1"].notice = "p-1"
    assert not only(end, state).reported
    message = convert.call(state.agents["root"].calls["c1"], text_for_model="text")
    assert message.result.text == "text"
    assert message.HasField("ended_at")


def test_an_exit_that_is_not_known_is_absent_and_zero_is_not() -> None:
    assert convert.process_end(None) is None
    assert convert.process_end(Exit()) is None
    zero = convert.process_end(Exit(code=0))
    assert zero is not None
    assert zero.HasField("exit_code")
    assert not zero.HasField("signal")
    call = state_of(opened("root"), queued()).agents["root"].calls["c1"]
    message = convert.result(call, Result(CallState.LOST, Cause.UNKNOWN))
    for field in ("process", "duration", "receipt"):
        assert not message.HasField(field)


def test_an_agent_as_it_stands() -> None:
    state = state_of(
        opened("root"),
        opened("child", "root"),
        e.WatchChanged("root", "child", True),
        queued(),
        e.CallStarting("root", "c1", 1),
        queued("c2", number=4),
        e.PromptQueued("root", "p-1", PromptKind.USER, True, "hi"),
        e.StatusReported("root", ReportedState.BLOCKED, "title"),
    )
    agent = state.agents["root"]
    message = convert.agent(agent)
    assert message.state == agent_pb2.AGENT_STATE_IDLE
    assert (message.running_calls, message.pending_prompts) == (1, 1)
    assert list(message.watching) == ["child"]
    assert (message.status.state, message.status.title) == (
        agent_pb2.REPORTED_STATE_BLOCKED,
        "title",
    )
    assert message.opened_at.seconds == 2
    assert not message.HasField("stopped_at")
    assert convert.agent(state.agents["child"]).parent_id == "root"
    assert not convert.agent(state.agents["child"]).HasField("status")
    agent.turn = "t-1"
    assert convert.agent_state(agent) == agent_pb2.AGENT_STATE_TURN
    for core in set(AgentState) - {AgentState.LIVE}:
        agent.state = core
        name = agent_pb2.AgentState.Name(convert.agent_state(agent))
        assert name == f"AGENT_STATE_{core.name}"


def test_a_settled_wait() -> None:
    body = only(
        e.WaitSettled("root", "w1", WaitMode.EXACT_ALL, "d", WaitOutcome.RESULT, ["a", "b"], ["b"])
    )
    assert (body.wait_id, body.mode, body.outcome) == ("w1", "exact_all", "result")
    assert list(body.consumed_call_ids) == ["b"]
    assert body.error == ""


@pytest.mark.parametrize("kind", list(PromptKind))
def test_internal_prompts_are_hidden_unless_asked_for(kind: PromptKind) -> None:
    event = e.PromptQueued("root", "p-1", kind, True, "the body", from_agent="x", call="c1")
    _, public, internal = wire.serialized(STAMP, event, EMPTY, Rendered())
    shown, whole = sent(event, EMPTY, Rendered())
    hidden, full = shown.prompt_queued.prompt, whole.prompt_queued.prompt
    assert full.text == "<the body>"
    assert full.body == ("the body" if kind is PromptKind.MESSAGE else "")
    assert full.internal == (kind not in (PromptKind.USER, PromptKind.START))
    assert (internal is not None) == full.internal == (b"the body" not in public)
    full.ClearField("text")
    full.ClearField("body")
    assert not full.internal or hidden == full
    assert (hidden.prompt_id, hidden.kind) == ("p-1", full.kind)
    assert (hidden.from_agent_id, hidden.call_id, shown.revision) == ("x", "c1", 7)


def test_hiding_does_not_touch_other_events() -> None:
    assert wire.serialized(STAMP, e.CallBackgrounded("a", "c"), EMPTY)[2] is None


# ------------------------------------------------------------ bytes, time, text


@given(st.lists(st.text("x", max_size=300), max_size=5), st.integers(0, 70_000))
@example([], 2_097_152)
def test_parts_joined_are_what_protobuf_makes_of_a_response(titles: list[str], size: int) -> None:
    events = [e.AgentOpened("a", "", Surface.TAU, title, "d") for title in [*titles, "x" * size]]
    parts = [wire.serialized(STAMP, event, EMPTY)[1] for event in events]
    whole = watch_service_pb2.WatchResponse(events=[sent(event)[0] for event in events])
    assert b"".join(parts) == whole.SerializeToString()


@pytest.mark.parametrize("length", [0, 1, 127, 128, 4095, 4096, 16383, 16384, 2_097_151, 2_097_152])
def test_a_field_of_bytes_of_every_size(length: int) -> None:
    message = call_service_pb2.ReadOutputResponse(offset=3)
    data = wire.with_bytes(
        message, call_service_pb2.ReadOutputResponse.DATA_FIELD_NUMBER, b"x" * length
    )
    message.data = b"x" * length
    assert data == message.SerializeToString()


@given(st.floats(0, 4e9))
def test_times_are_exact(value: float) -> None:
    for message in (convert.duration(value), convert.timestamp(value)):
        assert 0 <= message.nanos < 10**9
        assert abs(convert.seconds(message) - value) <= max(5e-10, math.ulp(value))
    if value > 1e8:
        assert convert.seconds(convert.timestamp(value)) == value


def test_times_at_the_edges() -> None:
    assert convert.duration(0.9999999999).seconds == 1
    assert convert.duration(-1.0).ToNanoseconds() == 0
    assert convert.duration(0.3).nanos == 300_000_000


@given(st.one_of(st.text(), st.binary().map(lambda b: b.decode("utf-8", "surrogateescape"))))
def test_text_can_always_be_sent_and_is_unchanged_if_it_can(value: str) -> None:
    sent = convert.text(value)
    sent.encode()
    try:
        value.encode()
    except UnicodeEncodeError:
        assert "\ufffd" in sent
    else:
        assert sent is value
