"""The bodies of events: one table. An event that is not in it is told by its name alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import Message

from pinfold.v1 import agent_pb2
from pinfold.v1 import watch_service_pb2 as pb
from pinfoldd.core import events as e
from pinfoldd.core import model
from pinfoldd.core.values import Result, Stamp
from pinfoldd.render.waits import wait_label
from pinfoldd.rpc import convert
from pinfoldd.rpc.convert import text
from pinfoldd.rpc.enums import REPORTED_STATES, SURFACES


class Texts(Protocol):
    """Where the texts that models read come from."""

    def placeholder(self, event: e.CallBackgrounded, state: model.State) -> str:
        """What the caller of a call was told when it went to the background."""

    def prompt(self, prompt: model.Prompt, agent: str, state: model.State) -> str:
        """What the agent's model reads of a prompt."""

    def error(self, tool: str, result: Result) -> str:
        """The message after "error: " of a call that ended so; empty if it is no error."""


class PlainTexts:
    """For where nobody reads them: no placeholder, prompts and errors as recorded."""

    def placeholder(self, event: e.CallBackgrounded, state: model.State) -> str:
        return ""

    def prompt(self, prompt: model.Prompt, agent: str, state: model.State) -> str:
        return prompt.body

    def error(self, tool: str, result: Result) -> str:
        return result.error


class At(NamedTuple):
    """What the body of an event may need besides the event itself."""

    stamp: Stamp
    state: model.State
    texts: Texts


def _call_of(event: Any, at: At) -> model.Call:
    """The call of an event; an empty one if it has been forgotten since."""
    found = at.state.call(event.agent, event.call)
    return found if found is not None else _unknown_call(event.agent, event.call)


def _unknown_call(agent: str, call: str) -> model.Call:
    return model.Call(
        id=call,
        agent=agent,
        tool="",
        kind="",
        number=0,
        label="",
        digest="",
        exclusive=False,
        budget=None,
        timeout=None,
        grace=0.0,
        kill_leftovers=False,
        queued_mono=0.0,
        queued_wall=0.0,
    )


def _agent_opened(event: e.AgentOpened, at: At) -> Message:
    return pb.AgentOpened(
        parent_id=event.parent,
        surface=SURFACES[event.surface],
        role=text(event.role),
        label=text(event.label),
    )


def _agent_stopping(event: e.AgentStopping, at: At) -> Message:
    return pb.AgentStopped(state=agent_pb2.AGENT_STATE_STOPPING, reason=text(event.reason))


def _agent_stopped(event: e.AgentStopped, at: At) -> Message:
    state = agent_pb2.AGENT_STATE_FAILED if event.failed else agent_pb2.AGENT_STATE_STOPPED
    return pb.AgentStopped(state=state, reason=text(event.reason))


def _prompt_queued(event: e.PromptQueued, at: At) -> Message:
    prompt = model.Prompt(
        id=event.prompt,
        kind=event.kind,
        activating=event.activating,
        body=event.body,
        queued_wall=at.stamp.wall,
        from_agent=event.from_agent,
        call=event.call,
        detail=event.detail,
    )
    shown = at.texts.prompt(prompt, event.agent, at.state)
    return pb.PromptQueued(prompt=convert.prompt(prompt, shown))


def _worker_started(event: e.WorkerStarted, at: At) -> Message:
    agent = at.state.agents.get(event.agent)
    worker = None if agent is None else agent.worker
    return pb.WorkerStarted(pid=event.pid, restarts=worker.restarts if worker else 0)


def _worker_exited(event: e.WorkerExited, at: At) -> Message:
    return pb.WorkerExited(
        process=convert.process_end(event.exit),
        reason=text(event.reason),
        will_restart=event.restart_at is not None,
    )


def _call_queued(event: e.CallQueued, at: At) -> Message:
    return pb.CallQueued(
        tool=event.tool,
        task_id=f"{event.kind}-{event.number}",
        label=text(event.label),
        exclusive=event.exclusive,
        background=event.background,
    )


def _call_ended(event: e.CallEnded, at: At) -> Message:
    call = _call_of(event, at)
    return pb.CallEnded(
        result=convert.result(call, event.result, error=at.texts.error(call.tool, event.result)),
        background=event.background,
        # The notice, where one is owed, is queued in the same decision.
        reported=not event.background or not (call.notice or call.notice_given),
    )


def _wait_installed(event: e.WaitInstalled, at: At) -> Message:
    seconds = None if event.deadline is None else event.deadline - at.stamp.mono
    return pb.WaitInstalled(
        wait_id=event.wait,
        mode=event.mode,
        call_ids=event.calls,
        label=text(wait_label(event.mode, event.calls, seconds)),
    )


def _wait_settled(event: e.WaitSettled, at: At) -> Message:
    return pb.WaitSettled(
        wait_id=event.wait,
        mode=event.mode,
        outcome=event.outcome,
        consumed_call_ids=event.consumed,
        error=event.reason or "",
    )


BODIES: Final[dict[type[e.Event], tuple[str, Callable[[Any, At], Message]]]] = {
    e.SupervisorStarted: (
        "supervisor_started",
        lambda event, at: pb.SupervisorStarted(
            version=event.version, resumed_calls=event.resumed, lost_calls=event.lost
        ),
    ),
    e.SupervisorDraining: (
        "supervisor_stopping",
        lambda event, at: pb.SupervisorStopping(reason=text(event.reason)),
    ),
    e.SupervisorStopping: (
        "supervisor_stopping",
        lambda event, at: pb.SupervisorStopping(reason=text(event.reason)),
    ),
    e.AgentOpened: ("agent_opened", _agent_opened),
    e.AgentStopping: ("agent_stopped", _agent_stopping),
    e.AgentStopped: ("agent_stopped", _agent_stopped),
    e.TurnStarted: ("turn_started", lambda event, at: pb.TurnStarted(turn_id=event.turn)),
    e.TurnEnded: (
        "turn_ended",
        lambda event, at: pb.TurnEnded(
            turn_id=event.turn, answer=text(event.answer), cancelled=event.cancelled
        ),
    ),
    e.PromptQueued: ("prompt_queued", _prompt_queued),
    e.PromptSuppressed: (
        "prompt_suppressed",
        lambda event, at: pb.PromptSuppressed(prompt_id=event.prompt, call_id=event.call),
    ),
    e.PromptCreated: (
        "prompt_created",
        lambda event, at: pb.PromptCreated(
            delivery_id=event.delivery, turn_id=event.turn, prompt_ids=event.prompts
        ),
    ),
    e.DeliveryAcknowledged: (
        "delivery_acknowledged",
        lambda event, at: pb.DeliveryAcknowledged(delivery_id=event.delivery),
    ),
    e.MessageSent: (
        "message_sent",
        lambda event, at: pb.MessageSent(
            message_id=event.message, recipient_id=event.recipient, body=text(event.body)
        ),
    ),
    e.WatchChanged: (
        "watch_changed",
        lambda event, at: pb.WatchChanged(watched_agent_id=event.watched, enabled=event.enabled),
    ),
    e.StatusReported: (
        "status_reported",
        lambda event, at: pb.StatusReported(
            status=agent_pb2.StatusReport(
                state=REPORTED_STATES[event.state], title=text(event.title)
            )
        ),
    ),
    e.WorkerStarted: ("worker_started", _worker_started),
    e.WorkerExited: ("worker_exited", _worker_exited),
    e.CallQueued: ("call_queued", _call_queued),
    e.CallStarting: (
        "call_started",
        lambda event, at: pb.CallStarted(sub_agent_id=event.sub_agent),
    ),
    e.CallStarted: (
        "call_started",
        lambda event, at: pb.CallStarted(pid=event.pid, sub_agent_id=_call_of(event, at).sub_agent),
    ),
    e.CallBackgrounded: (
        "call_backgrounded",
        lambda event, at: pb.CallBackgrounded(
            placeholder=text(at.texts.placeholder(event, at.state))
        ),
    ),
    e.CallPaused: ("call_paused", lambda event, at: pb.CallPaused(paused=event.paused)),
    e.OutputGrew: (
        "output_grew",
        lambda event, at: pb.OutputGrew(extent=convert.extent(event.output, closed=event.closed)),
    ),
    e.CancelRequested: (
        "cancel_requested",
        lambda event, at: pb.CancelRequested(reason=text(event.reason), by=event.by),
    ),
    e.Notice: ("notice", lambda event, at: pb.Notice(text=event.text)),
    e.CallEnded: ("call_ended", _call_ended),
    e.GroupEmptied: (
        "group_emptied",
        lambda event, at: pb.GroupEmptied(receipt=convert.receipt(event.receipt)),
    ),
    e.TaskReported: (
        "task_read",
        lambda event, at: pb.TaskRead(task_id=_call_of(event, at).task_id, reported=True),
    ),
    e.TaskRead: (
        "task_read",
        lambda event, at: pb.TaskRead(
            task_id=_call_of(event, at).task_id, cursor=event.end, reported=event.consumed
        ),
    ),
    e.WaitInstalled: ("wait_installed", _wait_installed),
    e.WaitSettled: ("wait_settled", _wait_settled),
}
"""For each kind of event the field of the `body` oneof, and what makes the message."""
