"""The state: what the events so far say. It has no behaviour but look-ups.

Only `core.apply` changes it. A snapshot is this structure, encoded.
"""

from __future__ import annotations

from msgspec import Struct, field

from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import (
    LIVE,
    AgentState,
    CallState,
    Exit,
    Extent,
    PromptKind,
    ReportedState,
    Result,
    Surface,
    WaitMode,
    WaitOutcome,
)


class Call(Struct, gc=False):
    """One tool call that runs for a while: a shell, or a sub-agent as a call."""

    id: str
    agent: str
    tool: str  # shell | agent_start
    kind: str  # of the task: shell | agent
    number: int  # of the task, per kind and agent
    label: str
    digest: str  # of the arguments: tells a repeat from a reuse of the id
    exclusive: bool
    budget: float | None  # seconds in the foreground; None: stays there
    timeout: float | None  # seconds of running time
    grace: float
    kill_leftovers: bool
    queued_mono: float
    queued_wall: float
    background: bool = False
    state: CallState = CallState.QUEUED
    spec: bytes | None = None  # what the keeper needs; dropped once it has started
    group: int = 0
    sub_agent: str = ""
    pid: int = 0
    started_mono: float | None = None
    started_wall: float | None = None
    ended_wall: float | None = None
    paused: bool = False
    output: Extent = field(default_factory=Extent)
    closed: bool = False
    stop_cause: str = ""  # cancelled | timeout, while stopping and afterwards
    stop_reason: str = ""
    cancel_asked: bool = False  # also when something else ends it
    exit_seen: Exit | None = None  # the leader ended while the stop was under way
    leftover: int = 0
    group_live: bool = False  # processes of the group may be there
    result: Result | None = None
    waiter: str | None = None  # the exact (or any-of-set) wait on it
    reserved: str | None = None  # the all-of-set wait it belongs to
    consumed: bool = False  # delivered: in the foreground, by a wait or a task read
    refused_wait: bool = False  # a wait was told that it returned in the foreground
    reported: bool = False  # the task tools or the owner's kill have told of its end
    notice: str = ""  # the id of its pending notice
    notice_given: bool = False  # a notice was delivered: never repeated
    passive_end: bool = False  # a user cancelled its turn: the notice wakes nobody
    cursor: int = 0  # of the owner's task reads
    reads: list[TaskReadRecord] = field(default_factory=list)  # the last ones, for repeats

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def task_id(self) -> str:
        return f"{self.kind}-{self.number}"

    def task_read(self, read_id: str) -> TaskReadRecord | None:
        """The read of this id, if it was one of the last."""
        if read_id:
            for record in reversed(self.reads):
                if record.read_id == read_id:
                    return record
        return None


class TaskReadRecord(Struct, array_like=True, gc=False):
    read_id: str
    start: int
    end: int
    live: bool
    timed_out: bool = False
    status: str = ""


class Wait(Struct, gc=False):
    """An installed wait."""

    id: str
    agent: str
    mode: WaitMode
    calls: list[str]
    digest: str
    deadline: float | None  # monotonic seconds


class SettledWait(Struct, array_like=True, gc=False):
    """What a wait was answered with, so that a repeat gets the same.

    It outlives its calls where retention forgets them first: a bare wait that is sent again
    must not take another result in place of one that is gone.
    """

    mode: WaitMode
    digest: str
    outcome: WaitOutcome
    calls: list[str]  # whose results the answer carries, in its order
    revision: int
    reason: Reason | None = None
    details: dict[str, str] = field(default_factory=dict)
    advice: bool = False


class Prompt(Struct, gc=False):
    id: str
    kind: PromptKind
    activating: bool
    body: str
    queued_wall: float
    from_agent: str = ""
    call: str = ""
    detail: str = ""  # what its text needs besides: a status, a message id
    delivered: bool = False  # before: its watchers know of it


class Delivery(Struct, gc=False):
    """Prompts handed to a driver, not yet acknowledged."""

    id: str
    prompts: list[Prompt]


class StatusReport(Struct, array_like=True, gc=False):
    state: ReportedState
    title: str


class Worker(Struct, gc=False):
    group: int
    pid: int = 0
    running: bool = False
    starts: list[float] = field(default_factory=list)  # monotonic, within the restart window
    restarts: int = 0
    restart_at: float | None = None


class ToolRecord(Struct, array_like=True, gc=False):
    """A tool call that is decided at once (message, status, cancel …): for repeats and `cancel`."""

    tool: str
    digest: str
    answer: str = ""  # what the repeat needs, such as a message id


class Agent(Struct):
    id: str
    parent: str
    root: str
    depth: int
    surface: Surface
    label: str
    digest: str  # of what it was opened with
    opened_wall: float
    role: str = ""
    max_running: int = 0
    max_tasks: int = 0
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    hidden_tools: list[str] = field(default_factory=list)
    call: str = ""  # the parent's call that it is (mode "call")
    state: AgentState = AgentState.LIVE
    stop_reason: str = ""
    failing: bool = False
    partial: str = ""  # the answer it gave while it was being ended
    stopped_wall: float | None = None
    children: list[str] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    live: dict[str, None] = field(default_factory=dict)  # calls without an end, in start order
    leftovers: dict[str, None] = field(default_factory=dict)  # ended, but processes are left
    queue: list[str] = field(default_factory=list)
    exclusive: str = ""  # the exclusive call that runs
    completed: dict[str, None] = field(default_factory=dict)  # unconsumed, in completion order
    tasks: dict[str, str] = field(default_factory=dict)  # task id -> call id
    numbers: dict[str, int] = field(default_factory=dict)  # the last task number of each kind
    waits: dict[str, Wait] = field(default_factory=dict)
    settled: dict[str, SettledWait] = field(default_factory=dict)
    bare_wait: str | None = None
    input_wait: str | None = None
    input_timeouts: int = 0
    wakes: int = 0  # consecutive turns begun by a task notice alone
    records: dict[str, ToolRecord] = field(default_factory=dict)
    prompts: list[Prompt] = field(default_factory=list)
    delivery: Delivery | None = None
    unconfirmed: Delivery | None = None  # of the turn before: it may still be acknowledged
    taken: list[Prompt] = field(default_factory=list)  # of the open turn, for the next worker
    turn: str = ""
    last_turn: str = ""
    turn_cancelled: bool = False
    status: StatusReport | None = None
    watching: list[str] = field(default_factory=list)
    watchers: list[str] = field(default_factory=list)
    worker: Worker | None = None

    @property
    def is_live(self) -> bool:
        return self.state is AgentState.LIVE

    def unseen(self) -> list[Prompt]:
        """What the driver of the turn before has perhaps not seen, without notices of results
        that it has by now."""
        return [] if self.unconfirmed is None else self._untold(self.unconfirmed.prompts)

    def of_turn(self) -> list[Prompt]:
        """All prompts of the open turn, for a worker that begins it again."""
        handed = self.taken + (self.delivery.prompts if self.delivery else [])
        return self._untold(handed)

    def _untold(self, prompts: list[Prompt]) -> list[Prompt]:
        return [p for p in prompts if not self._told(p)]

    def _told(self, prompt: Prompt) -> bool:
        if prompt.kind is not PromptKind.NOTICE:
            return False
        call = self.calls.get(prompt.call)
        return call is None or call.consumed or call.reported

    def running(self) -> int:
        """Calls that hold a place: everything live that is not queued."""
        return len(self.live) - len(self.queue)


class Owner(Struct, array_like=True, gc=False):
    """Whose group it is: a call's, or (call empty) the agent's worker's."""

    agent: str
    call: str = ""


class Counters(Struct):
    group: int = 0
    prompt: int = 0
    delivery: int = 0
    turn: int = 0
    message: int = 0


class State(Struct):
    revision: int = 0
    agents: dict[str, Agent] = field(default_factory=dict)
    groups: dict[int, Owner] = field(default_factory=dict)  # that the keeper may hold
    counters: Counters = field(default_factory=Counters)
    draining: bool = False
    stopping: bool = False
    finished: int = 0  # calls with an end that are still remembered

    def agent(self, agent_id: str) -> Agent:
        agent = self.agents.get(agent_id)
        if agent is None:
            raise Rejected(Reason.AGENT_UNKNOWN, agent_id=agent_id)
        return agent

    def live_agent(self, agent_id: str) -> Agent:
        agent = self.agent(agent_id)
        self.require_live(agent)
        return agent

    def require_live(self, agent: Agent) -> None:
        if not agent.is_live:
            raise Rejected(Reason.AGENT_STOPPED, agent_id=agent.id)

    def call(self, agent_id: str, call_id: str) -> Call | None:
        agent = self.agents.get(agent_id)
        return None if agent is None else agent.calls.get(call_id)

    def below(self, agent_id: str) -> list[Agent]:
        """The agent and all below it, parents before children."""
        found = [self.agents[agent_id]]
        for agent in found:
            found.extend(self.agents[child] for child in agent.children if child in self.agents)
        return found
