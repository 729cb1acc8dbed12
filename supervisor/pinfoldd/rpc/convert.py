"""The core's structures as messages. Pure: the same in, the same out.

Text that models read is `render`'s; where a message has such text, it is a parameter here.
The arguments of a call, its environment and anything secret have no way to the wire.
"""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pinfold.v1 import agent_pb2, call_pb2
from pinfoldd.core import model, values
from pinfoldd.rpc.enums import (
    CALL_STATES,
    CAUSES,
    INTERNAL_PROMPTS,
    PROMPT_KINDS,
    REPORTED_STATES,
    SURFACES,
)

_NANOS = 1_000_000_000


def text(value: str) -> str:
    """A string that can go on the wire: what stands for bytes that are no UTF-8 is replaced."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        pass
    else:
        return value
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "replace")


# ------------------------------------------------------------ time


def _parts(seconds: float) -> tuple[int, int]:
    """Whole seconds and nanoseconds of a time that is not negative.

    The fraction is taken first: seconds since the epoch times 1e9 has more digits than a float.
    """
    whole = int(seconds)
    nanos = round((seconds - whole) * 1e9)
    return (whole + 1, 0) if nanos == _NANOS else (whole, nanos)


def duration(seconds: float) -> Duration:
    whole, nanos = _parts(max(seconds, 0.0))
    return Duration(seconds=whole, nanos=nanos)


def timestamp(wall: float) -> Timestamp:
    """Of seconds since the epoch."""
    whole, nanos = _parts(max(wall, 0.0))
    return Timestamp(seconds=whole, nanos=nanos)


def seconds(value: Duration | Timestamp) -> float:
    """The inverse of both: exact to what a float holds. May be negative."""
    return value.seconds + value.nanos / 1e9


# ------------------------------------------------------------ calls


def extent(value: values.Extent, *, closed: bool = False) -> call_pb2.OutputExtent:
    return call_pb2.OutputExtent(
        size=value.size, lines=value.lines, dropped=value.dropped, closed=closed
    )


def process_end(value: values.Exit | None) -> call_pb2.ProcessEnd | None:
    """None if it is not known how the process ended."""
    if value is None or (value.code is None and value.signal is None):
        return None
    return call_pb2.ProcessEnd(
        exit_code=value.code,
        signal=value.signal,
        core_dumped=value.core_dumped,
        user_time=duration(value.user_seconds),
        system_time=duration(value.system_seconds),
        max_rss_bytes=value.max_rss,
    )


def receipt(value: values.Receipt | None) -> call_pb2.KillReceipt | None:
    """None: nothing had to be ended."""
    if value is None:
        return None
    return call_pb2.KillReceipt(
        signals=[
            call_pb2.KillReceipt.Signalled(
                signal=s.signal, after=duration(s.after), processes=s.processes, step=s.step
            )
            for s in value.signals
        ],
        ended=value.ended,
        escaped=value.escaped,
        ended_by=value.ended_by,
        proof=value.proof,
        survivors=[
            call_pb2.KillReceipt.Survivor(pid=s.pid, name=text(s.name), reason=text(s.reason))
            for s in value.survivors
        ],
        duration=duration(value.seconds),
    )


def result(
    call: model.Call, value: values.Result, *, text_for_model: str = "", error: str = ""
) -> call_pb2.CallResult:
    """What a call ended with.

    `error` is the message after "error: "; without it, the detail that was recorded.
    """
    exit_ = value.exit
    return call_pb2.CallResult(
        agent_id=call.agent,
        call_id=call.id,
        task_id=call.task_id,
        tool=call.tool,
        state=CALL_STATES[value.state],
        cause=CAUSES[value.cause],
        process=process_end(exit_),
        error=text(error or value.error),
        duration=None if value.seconds is None else duration(value.seconds),
        output=extent(value.output, closed=call.closed),
        leftover_processes=0 if exit_ is None else exit_.leftover,
        receipt=receipt(value.receipt),
        answer=text(value.answer),
        sub_agent_id=call.sub_agent,
        cancel_reason=text(value.cancel_reason),
        text=text(text_for_model),
    )


def call(value: model.Call, *, text_for_model: str = "", error: str = "") -> call_pb2.Call:
    """A call as it stands. The two texts are those of its result, if it has one."""
    ended = value.result
    return call_pb2.Call(
        agent_id=value.agent,
        call_id=value.id,
        task_id=value.task_id,
        tool=value.tool,
        label=text(value.label),
        state=CALL_STATES[value.state],
        background=value.background,
        paused=value.paused,
        consumed=value.consumed,
        exclusive=value.exclusive,
        pid=value.pid,
        queued_at=timestamp(value.queued_wall),
        started_at=None if value.started_wall is None else timestamp(value.started_wall),
        ended_at=None if value.ended_wall is None else timestamp(value.ended_wall),
        output=extent(value.output, closed=value.closed),
        leftover_processes=value.leftover,
        sub_agent_id=value.sub_agent,
        result=None
        if ended is None
        else result(value, ended, text_for_model=text_for_model, error=error),
    )


# ------------------------------------------------------------ agents


def agent_state(value: model.Agent) -> agent_pb2.AgentState.ValueType:
    match value.state:
        case values.AgentState.LIVE:
            return agent_pb2.AGENT_STATE_TURN if value.turn else agent_pb2.AGENT_STATE_IDLE
        case values.AgentState.STOPPING:
            return agent_pb2.AGENT_STATE_STOPPING
        case values.AgentState.STOPPED:
            return agent_pb2.AGENT_STATE_STOPPED
        case values.AgentState.FAILED:
            return agent_pb2.AGENT_STATE_FAILED


def agent(value: model.Agent) -> agent_pb2.Agent:
    """An agent as it stands."""
    return agent_pb2.Agent(
        agent_id=value.id,
        parent_id=value.parent,
        state=agent_state(value),
        surface=SURFACES[value.surface],
        role=text(value.role),
        label=text(value.label),
        max_running_calls=value.max_running,
        turn_id=value.turn,
        running_calls=value.running(),
        pending_prompts=len(value.prompts),
        status=None if value.status is None else status_report(value.status),
        watching=value.watching,
        opened_at=timestamp(value.opened_wall),
        stopped_at=None if value.stopped_wall is None else timestamp(value.stopped_wall),
        stop_reason=text(value.stop_reason),
        worker_pid=value.worker.pid if value.worker else 0,
    )


def status_report(value: model.StatusReport) -> agent_pb2.StatusReport:
    return agent_pb2.StatusReport(state=REPORTED_STATES[value.state], title=text(value.title))


def prompt(value: model.Prompt, text_for_model: str) -> agent_pb2.Prompt:
    """A prompt in full. The body of a message is beside the text, as it was sent."""
    return agent_pb2.Prompt(
        prompt_id=value.id,
        kind=PROMPT_KINDS[value.kind],
        text=text(text_for_model),
        activating=value.activating,
        internal=value.kind in INTERNAL_PROMPTS,
        from_agent_id=value.from_agent,
        call_id=value.call,
        body=text(value.body) if value.kind is values.PromptKind.MESSAGE else "",
        queued_at=timestamp(value.queued_wall),
    )
