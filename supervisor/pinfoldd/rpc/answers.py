"""Core facts as answers: results with their text, waits, prompts, tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pinfold.v1 import agent_pb2, agent_service_pb2, call_pb2, call_service_pb2, task_service_pb2
from pinfoldd.core.model import Agent, Call, Prompt, State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import CallState, Receipt, WaitMode, WaitOutcome
from pinfoldd.outputs import Outputs
from pinfoldd.render import acknowledgements, results, tasks, waits
from pinfoldd.render.prompts import prompt_text
from pinfoldd.render.shell_output import Chunk
from pinfoldd.render.task_output import read_text
from pinfoldd.rpc import convert
from pinfoldd.rpc.enums import TASK_STATUSES
from pinfoldd.rpc.operations import Settled, TaskDelta

_OUTCOMES = {
    WaitOutcome.RESULT: call_service_pb2.WAIT_OUTCOME_RESULT,
    WaitOutcome.INTERRUPTED: call_service_pb2.WAIT_OUTCOME_INTERRUPTED,
    WaitOutcome.TIMED_OUT: call_service_pb2.WAIT_OUTCOME_TIMED_OUT,
    WaitOutcome.INPUT_AVAILABLE: call_service_pb2.WAIT_OUTCOME_INPUT_AVAILABLE,
}


class Answers:
    """Needs the state for what an answer refers to, and the outputs for its text."""

    def __init__(self, state: State, outputs: Outputs) -> None:
        self._state = state
        self._outputs = outputs

    def result(self, call: Call, chunks: Sequence[Chunk] | None = None) -> call_pb2.CallResult:
        """The result of an ended call, with the text that a model reads. `chunks`: what is shown
        of its output, if that has been read already."""
        if call.result is None:
            raise AssertionError(f"call {call.id} has not ended")
        if chunks is None:
            chunks = self._outputs.shown(call)
        return convert.result(
            call,
            call.result,
            text_for_model=results.result_text(call, chunks),
            error=results.error_message(call.tool, call.result),
        )

    def result_text(self, call: Call) -> str:
        return results.result_text(call, self._outputs.shown(call))

    def call(self, call: Call, *, text: bool = False) -> call_pb2.Call:
        """A call as it stands; its result's text only where one call is asked for."""
        ended = call.result
        message = convert.call(
            call,
            text_for_model=self.result_text(call) if text and ended is not None else "",
            error=results.error_message(call.tool, ended) if ended is not None else "",
        )
        standing = self._outputs.standing(call)
        message.output.CopyFrom(convert.extent(standing.extent, closed=standing.closed))
        return message

    def run(self, call: Call, *, detached: bool) -> call_service_pb2.RunShellResponse:
        response = call_service_pb2.RunShellResponse(call_id=call.id, task_id=call.task_id)
        if detached:
            response.call.CopyFrom(self.call(call))
        elif call.background:
            response.placeholder = self.placeholder(call)
        else:
            response.result.CopyFrom(self.result(call))
        return response

    def placeholder(self, call: Call) -> str:
        return waits.placeholder(call, self._state.agents[call.agent].surface)

    def wait(self, agent: Agent, wait_id: str, settled: Settled) -> call_service_pb2.WaitResponse:
        if settled.outcome is not WaitOutcome.RESULT:
            return call_service_pb2.WaitResponse(
                wait_id=wait_id,
                outcome=_OUTCOMES[settled.outcome],
                text=_without_result(settled.outcome, settled.mode, settled.advice),
                advice=waits.ADVICE if settled.advice else "",
                revision=settled.revision,
            )
        for call_id in settled.calls:
            if call_id not in agent.calls:
                # A repeat of a wait whose result has been forgotten since.
                raise Rejected(Reason.RESULT_CONSUMED, tool_call_id=call_id)
        calls = [agent.calls[call_id] for call_id in settled.calls]
        shown = [(call, self._outputs.shown(call)) for call in calls]
        response = call_service_pb2.WaitResponse(
            wait_id=wait_id,
            outcome=_OUTCOMES[settled.outcome],
            results=[self.result(call, chunks) for call, chunks in shown],
            revision=settled.revision,
        )
        if settled.mode is WaitMode.EXACT:
            response.text = response.results[0].text
        else:
            response.text = convert.text(waits.wait_result(settled.mode, shown))
        return response

    def wait_is_error(self, agent: Agent, settled: Settled) -> bool:
        """Whether a model should see the answer as an error: one result that is one."""
        if settled.outcome is not WaitOutcome.RESULT or settled.mode is WaitMode.EXACT_ALL:
            return False
        return any(
            call_id in agent.calls and is_error(agent.calls[call_id]) for call_id in settled.calls
        )

    def prompt(self, agent: Agent, prompt: Prompt) -> agent_pb2.Prompt:
        text = prompt_text(prompt, agent.surface, agent.calls.get(prompt.call))
        return convert.prompt(prompt, text)

    def task(self, call: Call) -> task_service_pb2.Task:
        return task_service_pb2.Task(
            task_id=call.task_id,
            kind=call.kind,
            label=convert.text(call.label),
            status=TASK_STATUSES[tasks.task_status(call)],
            detail=convert.text(tasks.task_detail(call)),
            call_id=call.id,
            agent_id=call.agent,
        )

    def task_read(self, delta: TaskDelta) -> task_service_pb2.ReadTaskResponse:
        return task_service_pb2.ReadTaskResponse(
            task=self.task(delta.call),
            output=convert.text(delta.text),
            text=convert.text(read_text(delta.text, delta.status, delta.left)),
            cursor=delta.cursor,
            timed_out=delta.timed_out,
        )

    def agent_started(
        self, starter: Agent, child_id: str, call: Call | None, call_id: str
    ) -> agent_service_pb2.StartAgentResponse:
        response = agent_service_pb2.StartAgentResponse(
            self_agent_id=starter.id, sub_agent_id=child_id, call_id=call_id
        )
        if call is None:
            response.text = acknowledgements.agent_started(starter.id, child_id)
        else:
            response.task_id = call.task_id
            response.text = self.placeholder(call)
        return response


@cache
def _without_result(outcome: WaitOutcome, mode: WaitMode, advice: bool) -> str:
    """One prompt may settle ten thousand waits at once: their text is rendered once."""
    match outcome:
        case WaitOutcome.INTERRUPTED:
            return waits.interrupted(mode)
        case WaitOutcome.INPUT_AVAILABLE:
            return waits.input_available()
        case _:
            return waits.timed_out(advice=advice)


def is_error(call: Call) -> bool:
    """A non-zero exit, a signal and a timeout are results; what has no result is an error."""
    return call.state in (CallState.FAILED, CallState.CANCELLED, CallState.LOST)


def stop_receipt(receipts: list[Receipt], seconds: float) -> agent_service_pb2.StopReceipt:
    """One receipt over all groups that were ended together."""
    return agent_service_pb2.StopReceipt(
        ended_processes=sum(receipt.ended for receipt in receipts),
        escaped_processes=sum(receipt.escaped for receipt in receipts),
        surviving_pids=[s.pid for receipt in receipts for s in receipt.survivors],
        duration=convert.duration(seconds),
    )
