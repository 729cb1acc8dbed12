"""What the events of agents do to the state: the tree, turns, prompts, workers."""

from __future__ import annotations

from pinfoldd.core import events as e
from pinfoldd.core.applied import require
from pinfoldd.core.model import (
    Agent,
    Delivery,
    Owner,
    Prompt,
    State,
    StatusReport,
    ToolRecord,
    Worker,
)
from pinfoldd.core.reasons import IllegalTransition
from pinfoldd.core.values import (
    AgentState,
    PromptKind,
    Stamp,
    Surface,
)

KEPT_RECORDS = 512  # of one agent, for repeats
_KEPT_STARTS = 1_000  # of a worker: more than any restart intensity asks about
PROMPT = "prompt"
"""The tool of the record of a user prompt."""


def agent_opened(state: State, event: e.AgentOpened, stamp: Stamp) -> None:
    require(event.agent not in state.agents, event)
    parent = state.agents.get(event.parent) if event.parent else None
    state.agents[event.agent] = Agent(
        id=event.agent,
        parent=event.parent,
        root=parent.root if parent else event.agent,
        depth=parent.depth + 1 if parent else 0,
        surface=event.surface,
        label=event.label,
        digest=event.digest,
        opened_wall=stamp.wall,
        role=event.role,
        max_running=event.max_running,
        max_tasks=event.max_tasks,
        cwd=event.cwd,
        env=event.env,
        hidden_tools=event.hidden_tools,
        call=event.call,
    )
    if parent:
        parent.children.append(event.agent)


def agent_stopping(state: State, event: e.AgentStopping, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(agent.state is AgentState.LIVE, event)
    agent.state = AgentState.STOPPING
    agent.stop_reason = event.reason
    agent.failing = event.failed


def agent_stopped(state: State, event: e.AgentStopped, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(agent.state is AgentState.STOPPING and not agent.live, event)
    agent.state = AgentState.FAILED if event.failed else AgentState.STOPPED
    agent.stopped_wall = stamp.wall
    agent.turn = ""
    agent.prompts.clear()
    agent.delivery = None
    agent.unconfirmed = None
    agent.taken.clear()
    agent.completed.clear()  # its results can be read, but nobody is left to consume them
    for watched in agent.watching:
        state.agents[watched].watchers.remove(agent.id)
    for watcher in agent.watchers:
        state.agents[watcher].watching.remove(agent.id)
    agent.watching.clear()
    agent.watchers.clear()


def agent_forgotten(state: State, event: e.AgentForgotten, stamp: Stamp) -> None:
    agent = state.agents.pop(event.agent)
    require(agent.state in (AgentState.STOPPED, AgentState.FAILED), event)
    require(not agent.calls, event)
    parent = state.agents.get(agent.parent)
    if parent:
        parent.children.remove(agent.id)


def turn_started(state: State, event: e.TurnStarted, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(not agent.turn, event)
    agent.turn = event.turn
    agent.turn_cancelled = False
    state.counters.turn += 1
    again = agent.unseen()
    agent.unconfirmed = None
    _put_back(agent, again)
    # A budget of wake-ups keeps two agents from waking each other with notices for ever.
    alone = all(p.kind is PromptKind.NOTICE for p in agent.prompts if p.activating)
    agent.wakes = agent.wakes + 1 if alone and agent.surface is Surface.TASKS else 0


def _put_back(agent: Agent, prompts: list[Prompt]) -> None:
    """Delivered prompts are pending again, before those that have come since."""
    agent.prompts[:0] = prompts
    for prompt in prompts:
        if prompt.kind is PromptKind.NOTICE:
            agent.calls[prompt.call].notice = prompt.id


def turn_ended(state: State, event: e.TurnEnded, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(agent.turn == event.turn, event)
    agent.turn = ""
    agent.last_turn = event.turn
    agent.turn_cancelled = event.cancelled
    if agent.state is AgentState.STOPPING:
        agent.partial = event.answer
    agent.unconfirmed, agent.delivery = agent.delivery, None
    agent.taken.clear()


def prompt_queued(state: State, event: e.PromptQueued, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    state.counters.prompt += 1
    agent.prompts.append(
        Prompt(
            id=event.prompt,
            kind=event.kind,
            activating=event.activating,
            body=event.body,
            queued_wall=stamp.wall,
            from_agent=event.from_agent,
            call=event.call,
            detail=event.detail,
        )
    )
    if event.kind is PromptKind.NOTICE:
        call = agent.calls[event.call]
        require(not call.notice and not call.notice_given and not call.live, event)
        call.notice = event.prompt


def prompt_suppressed(state: State, event: e.PromptSuppressed, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    agent.prompts = [p for p in agent.prompts if p.id != event.prompt]
    call = agent.calls.get(event.call)
    if call is not None:
        call.notice = ""


def prompt_created(state: State, event: e.PromptCreated, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(agent.delivery is None and bool(agent.turn), event)
    named = set(event.prompts)
    delivered = [p for p in agent.prompts if p.id in named]
    agent.prompts = [p for p in agent.prompts if p.id not in named]
    agent.delivery = Delivery(id=event.delivery, prompts=delivered)
    state.counters.delivery += 1
    for prompt in delivered:
        prompt.delivered = True
        if prompt.kind is PromptKind.NOTICE and prompt.call in agent.calls:
            call = agent.calls[prompt.call]
            call.notice = ""
            call.notice_given = True


def delivery_acknowledged(state: State, event: e.DeliveryAcknowledged, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    if agent.delivery is not None and agent.delivery.id == event.delivery:
        if event.kept:
            agent.taken += agent.delivery.prompts
        agent.delivery = None
    else:
        require(agent.unconfirmed is not None and agent.unconfirmed.id == event.delivery, event)
        agent.unconfirmed = None


def prompts_returned(state: State, event: e.PromptsReturned, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    require(bool(agent.turn), event)
    again = agent.of_turn()
    agent.taken.clear()
    agent.delivery = None
    _put_back(agent, again)


def message_sent(state: State, event: e.MessageSent, stamp: Stamp) -> None:
    state.counters.message += 1


def watch_changed(state: State, event: e.WatchChanged, stamp: Stamp) -> None:
    watcher, watched = state.agents[event.agent], state.agents[event.watched]
    require((event.watched in watcher.watching) != event.enabled, event)
    if event.enabled:
        watcher.watching.append(watched.id)
        watched.watchers.append(watcher.id)
    else:
        watcher.watching.remove(watched.id)
        watched.watchers.remove(watcher.id)


def status_reported(state: State, event: e.StatusReported, stamp: Stamp) -> None:
    state.agents[event.agent].status = StatusReport(event.state, event.title)


def tool_recorded(state: State, event: e.ToolRecorded, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    if event.tool != PROMPT:  # that is what others do to the agent
        agent.input_timeouts = 0
    if event.call:
        agent.records[event.call] = ToolRecord(event.tool, event.digest, event.answer)
        while len(agent.records) > KEPT_RECORDS:
            del agent.records[next(iter(agent.records))]


def worker_starting(state: State, event: e.WorkerStarting, stamp: Stamp) -> None:
    agent = state.agents[event.agent]
    state.counters.group = max(state.counters.group, event.group)
    state.groups[event.group] = Owner(event.agent)
    if agent.worker is None:
        agent.worker = Worker(group=event.group)
    else:
        require(not agent.worker.running, event)
        agent.worker.restarts += 1
        agent.worker.group = event.group
        agent.worker.restart_at = None
    agent.worker.running = True
    agent.worker.pid = 0
    agent.worker.starts.append(stamp.mono)
    del agent.worker.starts[:-_KEPT_STARTS]


def worker_started(state: State, event: e.WorkerStarted, stamp: Stamp) -> None:
    worker = state.agents[event.agent].worker
    if worker is None:
        raise IllegalTransition(repr(event))
    worker.pid = event.pid


def worker_exited(state: State, event: e.WorkerExited, stamp: Stamp) -> None:
    worker = state.agents[event.agent].worker
    if worker is None or not worker.running:
        raise IllegalTransition(repr(event))
    worker.running = False
    worker.pid = 0
    worker.restart_at = event.restart_at
    state.groups.pop(worker.group, None)
