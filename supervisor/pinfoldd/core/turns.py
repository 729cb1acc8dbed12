"""Turns and delivery, messages, watches and status reports: what agents say and are told."""

from __future__ import annotations

from pinfoldd.core import agents, calls, commands, notices, waits
from pinfoldd.core import events as e
from pinfoldd.core.apply_agents import PROMPT
from pinfoldd.core.decision import Decision
from pinfoldd.core.model import Agent, Prompt, StatusReport
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.repeats import is_repeat
from pinfoldd.core.values import AgentState, CallState, Cause, PromptKind, Result

_PROMPT_BYTES = 256  # of a prompt besides its body

# ------------------------------------------------------------ turns


def next_turn(d: Decision, c: commands.NextTurn) -> None:
    """Begin a turn if something activating is pending, or was delivered in the turn before
    and perhaps not seen. Inside a turn: as `take`, for a driver that replaces another."""
    agent = d.state.live_agent(c.agent)
    if agent.turn:
        take(d, commands.TakePrompts(c.agent, c.acknowledge))
        return
    _acknowledge(d, agent, c.acknowledge)
    again = agent.unseen()
    # What a user has cancelled does not begin anew by itself.
    waking = agent.prompts if agent.turn_cancelled else again + agent.prompts
    if not any(prompt.activating for prompt in waking):
        return
    d.emit(e.TurnStarted(agent.id, f"t-{d.state.counters.turn + 1}"))
    _deliver(d, agent)
    _tell_watchers(d, agent, PromptKind.WATCH_STATE, "", "turn started")


def take(d: Decision, c: commands.TakePrompts) -> None:
    agent = d.state.live_agent(c.agent)
    _acknowledge(d, agent, c.acknowledge)
    if agent.turn and agent.delivery is None and agent.prompts:
        _deliver(d, agent)


def _acknowledge(d: Decision, agent: Agent, delivery: str) -> None:
    open_one = agent.delivery or agent.unconfirmed
    if delivery and open_one is not None and open_one.id == delivery:
        kept = bool(agent.turn) and agents.role_of(d, agent).restarts > 0
        d.emit(e.DeliveryAcknowledged(agent.id, delivery, kept))


def _deliver(d: Decision, agent: Agent) -> None:
    """Hand over what is pending: all of it, unless it is more than a message should hold."""
    prompts = _share(agent.prompts, d.settings.delivery_bytes)
    fresh = [p for p in prompts if p.kind is PromptKind.USER and not p.delivered]
    d.emit(
        e.PromptCreated(
            agent.id,
            f"d-{d.state.counters.delivery + 1}",
            agent.turn,
            [prompt.id for prompt in prompts],
        )
    )
    for prompt in fresh:
        _tell_watchers(d, agent, PromptKind.WATCH_PROMPT, prompt.body, prompt.id)


def _share(prompts: list[Prompt], most: int) -> list[Prompt]:
    """The first ones, at least one, of at most so many bytes. An agent whose prompts made an
    answer that no client can receive would never get any of them."""
    size = 0
    for number, prompt in enumerate(prompts):
        size += _PROMPT_BYTES + len(prompt.body.encode("utf-8", "surrogatepass"))
        if size > most and number:
            return prompts[:number]
    return list(prompts)


def end_turn(d: Decision, c: commands.EndTurn) -> None:
    agent = d.state.agent(c.agent)
    if c.turn and c.turn == agent.last_turn:
        if agent.is_live:  # a repeat, or the turn was cancelled meanwhile
            _acknowledge(d, agent, c.acknowledge)
        return
    if agent.state is AgentState.STOPPING and agent.call and c.turn and c.turn == agent.turn:
        # Its worker has used the grace to say how far it came. Nobody is told: it is kept
        # as the partial text of the call that the agent was.
        d.emit(e.TurnEnded(agent.id, c.turn, c.answer))
        return
    d.state.require_live(agent)
    if not agent.turn or agent.turn != c.turn:
        raise Rejected(Reason.TURN_UNKNOWN, turn_id=c.turn)
    if c.draft:
        return  # the signal was not ours: half an answer is none
    _acknowledge(d, agent, c.acknowledge)
    d.emit(e.TurnEnded(agent.id, c.turn, c.answer))
    _tell_watchers(d, agent, PromptKind.WATCH_ANSWER, c.answer, c.turn)
    _tell_watchers(d, agent, PromptKind.WATCH_STATE, "", "turn stopped")
    if agent.call:
        _answer_call(d, agent, c.answer)


def _answer_call(d: Decision, agent: Agent, answer: str) -> None:
    """The first answer of an agent that is a call is the call's result, and its end."""
    parent = d.state.agents[agent.parent]
    call = parent.calls.get(agent.call)
    if call is not None and call.state is CallState.RUNNING:
        seconds = calls.seconds(call, d.now.mono)
        result = Result(CallState.SUCCEEDED, Cause.EXIT, seconds=seconds, answer=answer)
        calls.end(d, parent, call, result)
        agents.stop(d, agent, "its call has its answer")


def cancel_turn(d: Decision, c: commands.CancelTurn) -> None:
    """A user cancels: calls end with passive notices, and no turn begins because of it."""
    agent = d.state.live_agent(c.agent)
    waits.cancel_all(d, agent, passive=True)
    for call_id in list(agent.live):
        call = agent.calls[call_id]
        if call.live:  # also one that is being ended already: it must not wake the agent
            d.emit(e.CancelRequested(agent.id, call.id, "user", c.reason, passive=True))
            if call.state is not CallState.STOPPING:
                d.emit(e.Notice(agent.id, call.id))
                calls.stop(d, agent, call, cause="cancelled", reason=c.reason)
    if agent.turn:
        d.emit(e.TurnEnded(agent.id, agent.turn, "", cancelled=True))
        _tell_watchers(d, agent, PromptKind.WATCH_STATE, "", "turn stopped")


# ------------------------------------------------------------ prompts and messages


def send_prompt(d: Decision, c: commands.SendPrompt) -> None:
    agent = d.state.agent(c.agent)
    if _recorded(d, agent, c.request, PROMPT, c.digest):
        return
    _room(d, agent)
    answer = f"p-{d.state.counters.prompt + 1}"
    d.emit(e.ToolRecorded(agent.id, c.request, PROMPT, c.digest, answer))
    notices.queue(d, agent, PromptKind.USER, c.text, activating=c.activating)


def send_message(d: Decision, c: commands.SendMessage) -> None:
    """Stored, then the recipient's waits are interrupted, then its queued calls preempted."""
    sender = d.state.agent(c.agent)
    if _recorded(d, sender, c.request, "message", c.digest):
        return
    recipient = d.state.agents.get(c.recipient)
    if recipient is None or recipient.root != sender.root:
        raise Rejected(Reason.RECIPIENT_UNKNOWN, recipient_id=c.recipient)
    if not recipient.is_live:
        raise Rejected(Reason.RECIPIENT_STOPPED, recipient_id=c.recipient)
    _room(d, recipient)
    message = f"m-{d.state.counters.message + 1}"
    d.emit(e.ToolRecorded(sender.id, c.request, "message", c.digest, message))
    d.emit(e.MessageSent(sender.id, message, recipient.id, c.body))
    notices.queue(
        d,
        recipient,
        PromptKind.MESSAGE,
        c.body,
        activating=True,
        from_agent=sender.id,
        detail=message,
    )
    _preempt(d, recipient)


def _preempt(d: Decision, agent: Agent) -> None:
    """End a round in which nothing can start any more.

    A call parked behind background work would keep the message from its agent until that
    work ends. Once any call of the round runs in the foreground, the round goes on.
    """
    if not agent.queue:
        return
    queued = set(agent.queue)
    running = [agent.calls[call_id] for call_id in agent.live if call_id not in queued]
    if not running or not all(call.background for call in running):
        return
    for call_id in list(agent.queue):
        call = agent.calls[call_id]
        if call.state is CallState.QUEUED and not call.background:
            calls.stop(d, agent, call, cause="cancelled", reason="a message arrived")


def _recorded(d: Decision, agent: Agent, request: str, tool: str, digest: str) -> bool:
    """Whether it was done already. If not, the agent must be live for it."""
    if request and is_repeat(agent, request, tool, digest, Reason.REQUEST_ID_REUSED):
        return True
    d.state.require_live(agent)
    return False


def _room(d: Decision, agent: Agent) -> None:
    if _is_full(d, agent):
        raise Rejected(Reason.PROMPT_LIMIT, limit=str(d.settings.pending_prompts))


def _is_full(d: Decision, agent: Agent) -> bool:
    return len(agent.prompts) >= d.settings.pending_prompts


# ------------------------------------------------------------ watches and status


def watch(d: Decision, c: commands.WatchAgent) -> None:
    watcher = d.state.agent(c.agent)
    if _recorded(d, watcher, c.request, "agent_watch", c.digest):
        return
    if c.watched == c.agent:
        raise Rejected(Reason.WATCH_SELF, agent_id=c.watched)
    watched = d.state.agents.get(c.watched)
    if watched is None or watched.root != watcher.root:
        raise Rejected(Reason.WATCH_TARGET_UNKNOWN, agent_id=c.watched)
    if c.enable:
        if not watched.is_live:
            raise Rejected(Reason.WATCH_TARGET_STOPPED, agent_id=c.watched)
        if _reaches(d, watched, watcher.id):
            raise Rejected(Reason.WATCH_CYCLE, watcher=watcher.id, watched=watched.id)
    d.emit(e.ToolRecorded(watcher.id, c.request, "agent_watch", c.digest))
    if (watched.id in watcher.watching) != c.enable:
        d.emit(e.WatchChanged(watcher.id, watched.id, c.enable))


def _reaches(d: Decision, start: Agent, target: str) -> bool:
    """Whether `start` watches `target`, directly or through others."""
    seen = {start.id}
    todo = [start]
    while todo:
        for watched in todo.pop().watching:
            if watched == target:
                return True
            if watched not in seen:
                seen.add(watched)
                todo.append(d.state.agents[watched])
    return False


def report_status(d: Decision, c: commands.ReportStatus) -> None:
    agent = d.state.agent(c.agent)
    if _recorded(d, agent, c.request, "status", c.digest):
        return
    same = agent.status == StatusReport(c.state, c.title)
    d.emit(e.ToolRecorded(agent.id, c.request, "status", c.digest))
    if same:
        return  # accepted, but nobody needs to hear it twice
    d.emit(e.StatusReported(agent.id, c.state, c.title))
    _tell_watchers(d, agent, PromptKind.WATCH_STATE, c.title, f"status {c.state}")


def record_tool(d: Decision, c: commands.RecordTool) -> None:
    agent = d.state.agent(c.agent)
    if not _recorded(d, agent, c.call, c.tool, c.digest):
        d.emit(e.ToolRecorded(agent.id, c.call, c.tool, c.digest, c.answer))


def _tell_watchers(d: Decision, agent: Agent, kind: PromptKind, body: str, detail: str) -> None:
    for watcher_id in list(agent.watchers):
        watcher = d.state.agents[watcher_id]
        if kind is PromptKind.WATCH_STATE and _is_full(d, watcher):
            continue  # a watcher that never takes its prompts would have ever more of these
        if watcher.is_live:
            notices.queue(
                d,
                watcher,
                kind,
                body,
                activating=kind is not PromptKind.WATCH_STATE,
                from_agent=agent.id,
                detail=detail,
            )
