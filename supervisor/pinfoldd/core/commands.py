"""What the core can be asked: the only way to change the state.

Commands of clients may be rejected (`Rejected`); reports of the keeper never are: what does
not fit any more (a second exit, an unknown group) is ignored.
"""

from __future__ import annotations

from msgspec import Struct, field

from pinfoldd.core.values import (
    Exit,
    Extent,
    Receipt,
    ReportedState,
    Surface,
    WaitMode,
)


class Command(Struct, frozen=True, gc=False):
    pass


# ------------------------------------------------------------ calls


class StartCall(Command, frozen=True):
    """A repeat (same id, same digest) attaches to the call that is there."""

    agent: str
    call: str
    digest: str
    label: str
    spec: bytes
    exclusive: bool = False
    background: bool = False
    budget: float | None = 2.0
    timeout: float | None = None
    grace: float = 2.0
    kill_leftovers: bool = False


class CancelCall(Command, frozen=True):
    agent: str
    call: str
    by: str = "agent"
    reason: str = ""
    grace: float | None = None
    report: bool = False  # the owner's task_kill: its end makes no notice
    record: str = ""  # the cancel's own tool call id, for repeats
    record_digest: str = ""


class CancelTurn(Command, frozen=True):
    agent: str
    reason: str = ""


# ------------------------------------------------------------ waits


class StartWait(Command, frozen=True):
    agent: str
    wait: str
    mode: WaitMode
    calls: list[str] = field(default_factory=list)
    digest: str = ""
    timeout: float | None = None


class CancelWait(Command, frozen=True):
    agent: str
    wait: str


# ------------------------------------------------------------ agents


class OpenAgent(Command, frozen=True):
    agent: str
    surface: Surface
    digest: str
    label: str = ""
    max_running: int = 0
    max_tasks: int = 0
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    hidden_tools: list[str] = field(default_factory=list)


class StartAgent(Command, frozen=True):
    agent: str  # the starter
    call: str
    digest: str
    child: str
    prompt: str
    role: str
    label: str
    as_call: bool = False


class StopAgent(Command, frozen=True):
    agent: str
    by: str = "operator"
    reason: str = ""
    grace: float | None = None


class SendPrompt(Command, frozen=True):
    agent: str
    request: str
    digest: str
    text: str
    activating: bool = True


class SendMessage(Command, frozen=True):
    agent: str
    request: str
    digest: str
    recipient: str
    body: str


class WatchAgent(Command, frozen=True):
    agent: str
    watched: str
    enable: bool
    request: str = ""
    digest: str = ""


class ReportStatus(Command, frozen=True):
    agent: str
    state: ReportedState
    title: str
    request: str = ""
    digest: str = ""


class RecordTool(Command, frozen=True):
    """A tool call of another kind was made: remembered, and it counts as progress."""

    agent: str
    call: str
    tool: str
    digest: str
    answer: str = ""


class NextTurn(Command, frozen=True):
    agent: str
    acknowledge: str = ""


class TakePrompts(Command, frozen=True):
    agent: str
    acknowledge: str = ""


class EndTurn(Command, frozen=True):
    agent: str
    turn: str
    answer: str
    acknowledge: str = ""
    draft: bool = False  # how far it came, for the case that its agent is being ended


# ------------------------------------------------------------ tasks


class ReadTask(Command, frozen=True):
    """The reader has found [start, end) to be what the owner has not had; `start` must be the
    cursor (else another read was faster: look again), and so must `live` be true or not.

    `status`: what the reader is told with it, kept for a repeat."""

    agent: str
    call: str
    read: str
    start: int
    end: int
    timed_out: bool = False
    live: bool | None = None
    status: str = ""


class BeginTaskWait(Command, frozen=True):
    """While it lasts, the end of the call makes no notice: its reader will tell of it."""

    agent: str
    call: str


class EndTaskWait(Command, frozen=True):
    agent: str
    call: str


# ------------------------------------------------------------ reports of the keeper


class GroupStarted(Command, frozen=True):
    group: int
    pid: int
    mono: float
    wall: float


class GroupFailed(Command, frozen=True):
    group: int
    reason: str


class GroupGrew(Command, frozen=True):
    group: int
    output: Extent


class GroupPaused(Command, frozen=True):
    group: int
    paused: bool


class GroupExited(Command, frozen=True):
    group: int
    exit: Exit
    output: Extent
    mono: float
    end: GroupEmpty | None = None  # nothing of the group outlived the leader


class GroupClosed(Command, frozen=True):
    group: int
    output: Extent


class GroupEmpty(Command, frozen=True):
    group: int
    receipt: Receipt | None
    mono: float


class GroupSurvived(Command, frozen=True):
    group: int
    receipt: Receipt
    mono: float


class GroupLost(Command, frozen=True):
    group: int
    output: Extent
    receipt: Receipt | None
    reason: str


# ------------------------------------------------------------ the supervisor


class Recover(Command, frozen=True):
    """The first command of a daemon. `known`: the groups that the keeper has."""

    version: str
    known: frozenset[int]


class Reconcile(Command, frozen=True):
    """A new keeper took over while the daemon ran on."""

    known: frozenset[int]


class Drain(Command, frozen=True):
    reason: str


class StopSupervisor(Command, frozen=True):
    """Drain and end all agents' calls."""

    reason: str
    keep_groups: bool
    grace: float | None = None


class Tick(Command, frozen=True):
    """A deadline may have passed."""
