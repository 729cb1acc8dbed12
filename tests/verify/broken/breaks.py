"""Ways to break the supervisor: each replaces one function by a wrong one."""

from __future__ import annotations

from typing import Any

from patching import BREAKS, breaks, patch

from pinfoldd import groups
from pinfoldd.core import apply_calls, calls, engine, notices, tasks, turns, waits
from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import CallState, PromptKind, WaitOutcome
from pinfoldd.render import acknowledgements, headers, results
from pinfoldd.render import tasks as task_texts
from pinfoldd.render import waits as wait_texts
from pinfoldd.rpc import wire

__all__ = ["BREAKS"]


@breaks
def nothing() -> None:
    """The launcher alone: all is as it should be."""


# ------------------------------------------------------------ notices


@breaks
def notice_not_suppressed() -> None:
    """A pending notice stays when its result is consumed."""
    patch(notices, "suppress", lambda d, agent, call: None)


@breaks
def notice_despite_wait() -> None:
    """A call that a wait covers makes a notice all the same."""
    real = waits.call_ended

    def call_ended(d: Any, agent: Any, call: Any) -> None:
        if call.background and not call.notice:
            notices.queue(d, agent, PromptKind.NOTICE, "", activating=False, call=call.id)
        real(d, agent, call)

    patch(waits, "call_ended", call_ended)


@breaks
def notice_twice() -> None:
    real = notices.owe

    def owe(d: Any, agent: Any, call: Any, *, passive: bool = False) -> None:
        before = len(d.events)
        real(d, agent, call, passive=passive)
        if len(d.events) > before:
            queued = d.events[-1][1]
            call.notice = ""
            notices.queue(
                d, agent, PromptKind.NOTICE, "", activating=queued.activating, call=call.id
            )

    patch(notices, "owe", owe)


@breaks
def notice_to_parent() -> None:
    """A delegate's completion is told to its parent as well."""
    real = notices.owe

    def owe(d: Any, agent: Any, call: Any, *, passive: bool = False) -> None:
        real(d, agent, call, passive=passive)
        if agent.parent and not call.live and call.background:
            parent = d.state.agents[agent.parent]
            text = f"[tau-internal] Tool call `{call.id}` completed."
            notices.queue(d, parent, PromptKind.USER, text, activating=True)

    patch(notices, "owe", owe)


@breaks
def notice_lost_after_interruption() -> None:
    """What a wait covered is not announced when the wait is interrupted."""
    patch(waits, "_release", lambda d, agent, covered, passive=False: waits.check_bare(d, agent))


@breaks
def user_cancel_wakes() -> None:
    """The notices of a turn that a user cancelled are like any other."""
    real = notices.owe

    def owe(d: Any, agent: Any, call: Any, *, passive: bool = False) -> None:
        call.passive_end = False
        real(d, agent, call)

    patch(notices, "owe", owe)


@breaks
def prompts_shown() -> None:
    """People see what internal prompts say."""
    patch(wire, "hide", lambda prompt: None)


@breaks
def task_notice_wakes() -> None:
    """The notice of the tasks surface is activating."""
    real = notices.queue

    def queue(d: Any, agent: Any, kind: Any, body: str, *, activating: bool, **more: Any) -> str:
        return real(
            d, agent, kind, body, activating=activating or kind is PromptKind.NOTICE, **more
        )

    patch(notices, "queue", queue)


# ------------------------------------------------------------ waits


@breaks
def result_consumed_twice() -> None:
    """A wait gets a background result that was consumed before."""

    def member(agent: Any, call_id: str) -> Any:
        call = agent.calls.get(call_id)
        if call is None:
            raise Rejected(Reason.CALL_UNKNOWN, tool_call_id=call_id)
        if call.waiter is not None or call.reserved is not None:
            raise Rejected(Reason.WAIT_IN_PROGRESS, tool_call_id=call_id)
        return call

    real = waits.start

    def start(d: Any, command: Any) -> None:
        agent = d.state.agent(command.agent)
        call = agent.calls.get(command.calls[0]) if command.calls else None
        if call is not None and call.consumed and call.background:
            waits._settle_new(d, agent, command, WaitOutcome.RESULT, [call.id])
        else:
            real(d, command)

    patch(waits, "_member", member)
    patch(waits, "start", start)


@breaks
def newest_first() -> None:
    """A bare wait takes the newest completion."""

    def next_completion(agent: Any) -> str | None:
        free = [i for i in agent.completed if agent.calls[i].reserved is None]
        return free[-1] if free else None

    patch(waits, "_next_completion", next_completion)


@breaks
def two_exact_waiters() -> None:
    """Installed waits do not exclude each other: a second one gets the answer of the first."""
    real = waits._member

    def member(agent: Any, call_id: str) -> Any:
        call = agent.calls.get(call_id)
        if call is not None and call.waiter is not None:
            return call
        return real(agent, call_id)

    patch(waits, "_member", member)


@breaks
def interruption_names_call() -> None:
    """The interruption says which call was waited for."""
    real = waits.interrupt
    last: list[str] = []

    def interrupt(d: Any, agent: Any) -> None:
        last[:] = [call for wait in agent.waits.values() for call in wait.calls]
        real(d, agent)

    def interrupted(mode: Any) -> str:
        pairs = [("tau_internal", "true"), ("wait_outcome", "interrupted")]
        pairs += [("wait_reason", "activating_input"), ("wait_mode", mode.value)]
        return headers.document([*pairs, ("tool_call_id", ", ".join(last))], "")

    patch(waits, "interrupt", interrupt)
    patch(wait_texts, "interrupted", interrupted)


@breaks
def input_beats_result() -> None:
    """Queued input interrupts a wait whose result is ready."""
    real = waits.start

    def start(d: Any, command: Any) -> None:
        agent = d.state.agent(command.agent)
        known = command.calls and command.calls[0] in agent.calls
        if known and waits._input_queued(agent, command):
            waits._settle_new(d, agent, command, WaitOutcome.INTERRUPTED, [])
        else:
            real(d, command)

    patch(waits, "start", start)


@breaks
def set_fails_fast() -> None:
    """A set ends with the first member that is cancelled."""
    real = waits.call_ended

    def call_ended(d: Any, agent: Any, call: Any) -> None:
        if call.reserved is not None and call.result.state is CallState.CANCELLED:
            waits._settle(d, agent, agent.waits[call.reserved], WaitOutcome.RESULT, [call.id])
        else:
            real(d, agent, call)

    patch(waits, "call_ended", call_ended)


@breaks
def advice_always() -> None:
    real = wait_texts.timed_out
    patch(wait_texts, "timed_out", lambda advice=False: real(advice=True))


@breaks
def bare_wait_hangs() -> None:
    """A bare wait with nothing left is left alone."""
    patch(waits, "check_bare", lambda d, agent: None)


@breaks
def foreign_calls_known() -> None:
    """An error tells another conversation's id from one that never was."""
    real = waits.start

    def start(d: Any, command: Any) -> None:
        for other in d.state.agents.values():
            if other.id != command.agent and set(command.calls) & set(other.calls):
                raise Rejected(Reason.RESULT_CONSUMED, tool_call_id=command.calls[0])
        real(d, command)

    patch(waits, "start", start)


# ------------------------------------------------------------ cancel


@breaks
def cancel_kills_nothing() -> None:
    """A stop is ordered of nobody: the command runs to its normal end."""
    real = groups.Groups.perform

    def perform(self: Any, event: Any) -> None:
        if not isinstance(event, e.CallStopping):
            real(self, event)

    patch(groups.Groups, "perform", perform)


@breaks
def cancel_kills_siblings() -> None:
    real = calls.cancel

    def cancel(d: Any, command: Any) -> None:
        real(d, command)
        agent = d.state.agent(command.agent)
        for call_id in list(agent.live):
            sibling = agent.calls[call_id]
            if sibling.state is CallState.RUNNING:
                calls.stop(d, agent, sibling, cause="cancelled", reason="")

    patch(calls, "cancel", cancel)


@breaks
def cancel_twice() -> None:
    """Every cancel of a live call succeeds."""
    real = calls.cancel

    def cancel(d: Any, command: Any) -> None:
        try:
            real(d, command)
        except Rejected as error:
            if error.reason is not Reason.CALL_ALREADY_CANCELED:
                raise

    patch(calls, "cancel", cancel)


@breaks
def cancel_without_notice() -> None:
    """The harness's notice is not recorded."""
    real = engine.Decision.emit

    def emit(self: Any, event: Any) -> Any:
        if isinstance(event, e.Notice):
            return None
        return real(self, event)

    patch(engine.Decision, "emit", emit)


@breaks
def cancelled_output_lost() -> None:
    """A cancelled call forgets the output it had."""
    real = results.render_output

    def render(chunks: Any, size: int) -> Any:
        return real([], 0)

    text = results.result_text

    def result_text(call: Any, chunks: Any = (), *, collected: bool = False) -> str:
        lost = call.result is not None and call.result.state is CallState.CANCELLED
        results.render_output = render if lost else real
        return text(call, chunks, collected=collected)

    patch(results, "result_text", result_text)


# ------------------------------------------------------------ texts


@breaks
def wrong_placeholder() -> None:
    real = wait_texts.placeholder

    def placeholder(call: Any, *more: Any) -> str:
        return real(call, *more).replace("is running", "runs")

    patch(wait_texts, "placeholder", placeholder)


@breaks
def no_duration() -> None:
    patch(headers, "duration", lambda seconds: [])


@breaks
def chatty_cancel() -> None:
    patch(acknowledgements, "CANCEL_REQUESTED", "Tool cancellation requested; it will end soon")


@breaks
def no_origin() -> None:
    """A bare wait does not say whose result it took."""
    real = results.result_text
    patch(wait_texts, "result_text", lambda call, chunks=(), collected=False: real(call, chunks))


@breaks
def no_status_line() -> None:
    patch(task_texts, "status_line", lambda call: "")


@breaks
def wrong_status() -> None:
    """A command that ends with another exit code than 0 is called failed."""
    real = task_texts.status_line

    def status_line(call: Any) -> str:
        return real(call).replace("completed, exit", "failed, exit")

    patch(task_texts, "status_line", status_line)


# ------------------------------------------------------------ agents


@breaks
def message_does_not_preempt() -> None:
    patch(turns, "_preempt", lambda d, agent: None)


@breaks
def message_preempts_too_much() -> None:
    """A message ends calls that have started."""

    def preempt(d: Any, agent: Any) -> None:
        for call_id in list(agent.live):
            calls.stop(d, agent, agent.calls[call_id], cause="cancelled", reason="a message")

    patch(turns, "_preempt", preempt)


@breaks
def watch_stays_on() -> None:
    """agent_watch off is accepted and does nothing."""
    real = turns.watch

    def watch(d: Any, command: Any) -> None:
        if command.enable:
            real(d, command)

    patch(turns, "watch", watch)


@breaks
def message_not_escaped() -> None:
    """A message can close its own wrapper."""
    patch(headers, "wrapped", lambda tag, body: f"<{tag}>\n{body}\n</{tag}>")


@breaks
def redundant_alias() -> None:
    real = acknowledgements.agent_started
    patch(
        acknowledgements,
        "agent_started",
        lambda mine, sub: f"{real(mine, sub)}\nagent_id: {sub}",
    )


@breaks
def answer_told_twice() -> None:
    real = turns._tell_watchers

    def tell(d: Any, agent: Any, kind: Any, body: str, detail: str) -> None:
        real(d, agent, kind, body, detail)
        if kind is PromptKind.WATCH_ANSWER:
            real(d, agent, kind, body, detail)

    patch(turns, "_tell_watchers", tell)


# ------------------------------------------------------------ tasks


@breaks
def cursor_stands_still() -> None:
    """A read of a stream task gives all of it every time."""
    real = apply_calls.task_read

    def task_read(state: Any, event: Any, stamp: Any) -> None:
        real(state, event, stamp)
        state.agents[event.agent].calls[event.call].cursor = 0

    patch(apply_calls, "task_read", task_read)


@breaks
def tasks_unfenced() -> None:
    """A task of another agent can be read and killed."""
    real = tasks.find

    def find(state: Any, agent_id: str, task_id: str) -> Any:
        try:
            return real(state, agent_id, task_id)
        except Rejected:
            for other in state.agents.values():
                if task_id in other.tasks:
                    return other.calls[other.tasks[task_id]]
            raise

    patch(tasks, "find", find)


@breaks
def no_task_limit() -> None:
    real = calls.admit_new

    def admit(d: Any, agent: Any, *, background: bool) -> None:
        try:
            real(d, agent, background=background)
        except Rejected as error:
            if error.reason is not Reason.TASK_LIMIT:
                raise

    patch(calls, "admit_new", admit)
