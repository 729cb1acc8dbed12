"""What the agent's methods return: thin views of the messages, each with the message itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pinfold.v1 import call_pb2, call_service_pb2
from pinfold.values import seconds

CallState = call_pb2.CallState
EndCause = call_pb2.EndCause
WaitOutcome = call_service_pb2.WaitOutcome


@dataclass(frozen=True, slots=True)
class Result:
    """What a call ended with. A program's failure is a result, never an exception."""

    message: call_pb2.CallResult

    @property
    def call_id(self) -> str:
        return self.message.call_id

    @property
    def task_id(self) -> str:
        return self.message.task_id

    @property
    def state(self) -> call_pb2.CallState.ValueType:
        return self.message.state

    @property
    def cause(self) -> call_pb2.EndCause.ValueType:
        """Why it ended: a program that answers a cancel with exit code 0 was cancelled."""
        return self.message.cause

    @property
    def exit_code(self) -> int | None:
        """`None` when it ended by a signal, or isn't known."""
        process = self.message.process
        return process.exit_code if process.HasField("exit_code") else None

    @property
    def signal(self) -> int | None:
        process = self.message.process
        return process.signal if process.HasField("signal") else None

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0 (an agent: with an answer)."""
        if self.message.state != CallState.CALL_STATE_SUCCEEDED:
            return False
        return self.exit_code in (0, None) and self.signal is None

    @property
    def error(self) -> str:
        return self.message.error

    @property
    def duration(self) -> float:
        """Running time in seconds."""
        return seconds(self.message.duration)

    @property
    def text(self) -> str:
        """What a model reads."""
        return self.message.text

    @property
    def answer(self) -> str:
        """The final answer of a sub-agent."""
        return self.message.answer

    @property
    def receipt(self) -> call_pb2.KillReceipt | None:
        """What ending it took; `None` when it ended by itself."""
        return self.message.receipt if self.message.HasField("receipt") else None


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The call is in the background; collect its result with a wait or the task tools."""

    call_id: str
    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class WaitAnswer:
    """How a wait ended. Running out of time and an interruption are answers too."""

    message: call_service_pb2.WaitResponse

    @property
    def outcome(self) -> call_service_pb2.WaitOutcome.ValueType:
        return self.message.outcome

    @property
    def results(self) -> list[Result]:
        """Consumed by this wait; in request order for a set."""
        return [Result(result) for result in self.message.results]

    @property
    def result(self) -> Result | None:
        """The first of them, or `None`."""
        return Result(self.message.results[0]) if self.message.results else None

    @property
    def timed_out(self) -> bool:
        return self.message.outcome == WaitOutcome.WAIT_OUTCOME_TIMED_OUT

    @property
    def interrupted(self) -> bool:
        return self.message.outcome == WaitOutcome.WAIT_OUTCOME_INTERRUPTED

    @property
    def input_available(self) -> bool:
        return self.message.outcome == WaitOutcome.WAIT_OUTCOME_INPUT_AVAILABLE

    @property
    def text(self) -> str:
        """What a model reads."""
        return self.message.text


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """Consecutive bytes of one stream ("out" or "err"), from `offset` on.

    `dropped` bytes from there on aren't kept; then there is no data.
    """

    stream: str
    offset: int
    data: bytes
    dropped: int
    time: datetime | None

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + len(self.data) + self.dropped

    @classmethod
    def read(cls, message: call_service_pb2.ReadOutputResponse) -> OutputChunk:
        is_err = message.stream == call_pb2.OutputStream.OUTPUT_STREAM_ERR
        return cls(
            stream="err" if is_err else "out",
            offset=message.offset,
            data=message.data,
            dropped=message.dropped,
            time=message.time.ToDatetime(UTC) if message.HasField("time") else None,
        )
