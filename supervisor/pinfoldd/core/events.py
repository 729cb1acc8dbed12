"""The events of the log: what was decided, as facts. Replaying them is recovery.

Each class is one kind of event. Fields are only ever added at the end, with a default, so
that an older log stays readable.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import (
    Exit,
    Extent,
    PromptKind,
    Receipt,
    ReportedState,
    Result,
    Surface,
    WaitMode,
    WaitOutcome,
)


class Event(Struct, array_like=True, frozen=True, tag=True, gc=False):
    """Base of all events. `agent` is empty for events of the supervisor itself."""

    agent: str


# ------------------------------------------------------------ the supervisor


class SupervisorStarted(Event, frozen=True):
    version: str
    resumed: int = 0
    lost: int = 0


class SupervisorDraining(Event, frozen=True):
    reason: str


class SupervisorStopping(Event, frozen=True):
    reason: str


# ------------------------------------------------------------ agents


class AgentOpened(Event, frozen=True):
    parent: str
    surface: Surface
    label: str
    digest: str
    role: str = ""
    max_running: int = 0
    max_tasks: int = 0
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    hidden_tools: list[str] = field(default_factory=list)
    call: str = ""


class AgentStopping(Event, frozen=True):
    reason: str
    failed: bool = False


class AgentStopped(Event, frozen=True):
    reason: str
    failed: bool = False


class AgentForgotten(Event, frozen=True):
    """Retention: the agent and all its records are gone."""


class TurnStarted(Event, frozen=True):
    turn: str


class TurnEnded(Event, frozen=True):
    turn: str
    answer: str
    cancelled: bool = False


class PromptQueued(Event, frozen=True):
    prompt: str
    kind: PromptKind
    activating: bool
    body: str
    from_agent: str = ""
    call: str = ""
    detail: str = ""


class PromptSuppressed(Event, frozen=True):
    prompt: str
    call: str


class PromptCreated(Event, frozen=True):
    """Prompts were handed to the driver as one delivery."""

    delivery: str
    turn: str
    prompts: list[str]


class DeliveryAcknowledged(Event, frozen=True):
    """`kept`: until the turn ends, for a worker that may have to begin it again."""

    delivery: str
    kept: bool = False


class PromptsReturned(Event, frozen=True):
    """A worker is started again in the middle of a turn: all prompts of the turn are pending
    once more."""


class MessageSent(Event, frozen=True):
    message: str
    recipient: str
    body: str


class WatchChanged(Event, frozen=True):
    watched: str
    enabled: bool


class StatusReported(Event, frozen=True):
    state: ReportedState
    title: str


class ToolRecorded(Event, frozen=True):
    """A tool call that was decided at once, remembered for its repeats."""

    call: str
    tool: str
    digest: str
    answer: str = ""


class WorkerStarting(Event, frozen=True):
    group: int


class WorkerStarted(Event, frozen=True):
    pid: int


class WorkerExited(Event, frozen=True):
    exit: Exit | None
    reason: str
    restart_at: float | None = None


# ------------------------------------------------------------ calls


class CallQueued(Event, frozen=True):
    call: str
    tool: str
    kind: str
    number: int
    label: str
    digest: str
    exclusive: bool
    background: bool
    budget: float | None
    timeout: float | None
    grace: float
    kill_leftovers: bool
    spec: bytes | None


class CallStarting(Event, frozen=True):
    call: str
    group: int = 0
    sub_agent: str = ""


class CallStarted(Event, frozen=True):
    call: str
    pid: int
    mono: float  # of the start itself, as the keeper saw it
    wall: float


class CallBackgrounded(Event, frozen=True):
    call: str


class CallPaused(Event, frozen=True):
    call: str
    paused: bool


class OutputGrew(Event, frozen=True):
    call: str
    output: Extent
    closed: bool = False


class CancelRequested(Event, frozen=True):
    call: str
    by: str  # agent | operator | user | stop
    reason: str
    passive: bool = False  # a user cancelled the turn: its end will wake nobody


class Notice(Event, frozen=True):
    """A notice of the harness, for people and logs."""

    call: str
    text: ClassVar[str] = "tool call cancellation request"


class CallStopping(Event, frozen=True):
    call: str
    cause: str  # cancelled | timeout
    reason: str
    grace: float


class LeaderExited(Event, frozen=True):
    """The leader ended while a stop was under way; the end waits for the proof."""

    call: str
    exit: Exit
    output: Extent


class CallEnded(Event, frozen=True):
    call: str
    result: Result
    background: bool
    group_live: bool = False


class LeftoversStopping(Event, frozen=True):
    call: str
    grace: float


class GroupEmptied(Event, frozen=True):
    """Processes that had outlived their leader are gone."""

    call: str
    receipt: Receipt | None


class CallsForgotten(Event, frozen=True):
    """Retention: these calls and their output are gone."""

    calls: list[str]
    groups: list[int]


class TaskReported(Event, frozen=True):
    """The owner knows of the end, or has asked for it: no notice."""

    call: str


class TaskRead(Event, frozen=True):
    call: str
    read: str
    start: int
    end: int
    live: bool
    consumed: bool
    timed_out: bool = False
    status: str = ""


# ------------------------------------------------------------ waits


class WaitInstalled(Event, frozen=True):
    wait: str
    mode: WaitMode
    calls: list[str]
    digest: str
    deadline: float | None


class WaitSettled(Event, frozen=True):
    """`calls`: whose results the answer carries. `consumed`: those of them it consumed."""

    wait: str
    mode: WaitMode
    digest: str
    outcome: WaitOutcome
    calls: list[str]
    consumed: list[str]
    reason: Reason | None = None
    details: dict[str, str] = field(default_factory=dict)
    advice: bool = False


AnyEvent = (
    SupervisorStarted
    | SupervisorDraining
    | SupervisorStopping
    | AgentOpened
    | AgentStopping
    | AgentStopped
    | AgentForgotten
    | TurnStarted
    | TurnEnded
    | PromptQueued
    | PromptSuppressed
    | PromptCreated
    | DeliveryAcknowledged
    | PromptsReturned
    | MessageSent
    | WatchChanged
    | StatusReported
    | ToolRecorded
    | WorkerStarting
    | WorkerStarted
    | WorkerExited
    | CallQueued
    | CallStarting
    | CallStarted
    | CallBackgrounded
    | CallPaused
    | OutputGrew
    | CancelRequested
    | Notice
    | CallStopping
    | LeaderExited
    | CallEnded
    | LeftoversStopping
    | GroupEmptied
    | CallsForgotten
    | TaskReported
    | TaskRead
    | WaitInstalled
    | WaitSettled
)
