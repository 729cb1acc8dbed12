"""The words of the core: states, causes, and what a call ended with."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field


class CallState(StrEnum):
    """`queued -> running -> (stopping) -> terminal`; `running` begins when the spawn is decided."""

    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"


LIVE = frozenset({CallState.QUEUED, CallState.RUNNING, CallState.STOPPING})


class Cause(StrEnum):
    """Why a call ended, which is not how its process ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    START_ERROR = "start_error"


class AgentState(StrEnum):
    LIVE = "live"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Surface(StrEnum):
    """Which tools an agent collects background work with: decides the notice it gets."""

    TAU = "tau"
    TASKS = "tasks"
    NONE = "none"


class PromptKind(StrEnum):
    USER = "user"
    MESSAGE = "message"
    NOTICE = "notice"
    WATCH_ANSWER = "watch_answer"
    WATCH_PROMPT = "watch_prompt"
    WATCH_STATE = "watch_state"
    START = "start"


class WaitMode(StrEnum):
    EXACT = "exact"
    EXACT_ALL = "exact_all"
    EXACT_ANY = "exact_any"
    ANY_BACKGROUND = "any_background"
    ACTIVATING_INPUT = "activating_input"


class WaitOutcome(StrEnum):
    RESULT = "result"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    INPUT_AVAILABLE = "input_available"
    CANCELLED = "cancelled"
    ERROR = "error"


class ReportedState(StrEnum):
    WORKING = "working"
    WAITING = "waiting"
    BLOCKED = "blocked"
    DONE = "done"


class TaskStatus(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    KILLED = "killed"
    FAILED = "failed"


# `gc=False`: these are trees, never part of a cycle. Without it, each collection walks every
# call that is remembered, and the loop stands still for it.
class Extent(Struct, array_like=True, gc=False):
    """Of the output: bytes received, newlines received, bytes of the middle not kept."""

    size: int = 0
    lines: int = 0
    dropped: int = 0


class Signalled(Struct, array_like=True, gc=False):
    signal: int
    after: float  # seconds after the stop began
    processes: int
    step: str  # term | kill | sweep


class Survivor(Struct, array_like=True, gc=False):
    pid: int
    name: str
    reason: str


class Receipt(Struct, array_like=True, gc=False):
    """What ending a group took, and the proof that nothing is left of it."""

    signals: list[Signalled] = field(default_factory=list)
    ended: int = 0
    escaped: int = 0
    ended_by: str = ""
    proof: str = ""
    survivors: list[Survivor] = field(default_factory=list)
    seconds: float = 0.0


class Exit(Struct, array_like=True, gc=False):
    """How a leader ended. Neither code nor signal: not known, which is never 0."""

    code: int | None = None
    signal: int | None = None
    core_dumped: bool = False
    leftover: int = 0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss: int = 0
    words: str = ""  # of a worker: the last line of its standard error


class Result(Struct, array_like=True, gc=False):
    """What a call ended with: everything a reply, a text or an event says of its end."""

    state: CallState
    cause: Cause
    exit: Exit | None = None
    seconds: float | None = None  # of running time; None: it never ran
    output: Extent = field(default_factory=Extent)
    receipt: Receipt | None = None
    error: str = ""  # a detail for people: why a start failed, what was lost
    answer: str = ""  # of an agent call
    cancel_reason: str = ""


class Now(Struct, frozen=True, gc=False):
    """The moment of a decision, given by the loop. The core has no clock of its own."""

    mono: float  # seconds of the monotonic clock: deadlines and durations
    wall: float  # seconds since the epoch: for people


class Stamp(Struct, frozen=True, gc=False):
    """Where an event stands in the log. Events of one decision share `decision`."""

    revision: int
    decision: int
    mono: float
    wall: float
