"""Answers to waits, from what is still remembered."""

from __future__ import annotations

import pytest

from pinfoldd.core.model import Agent, State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import Surface, WaitMode, WaitOutcome
from pinfoldd.groups import Output
from pinfoldd.outputs import Outputs
from pinfoldd.rpc.answers import Answers
from pinfoldd.rpc.operations import Settled


class NoGroups:
    outputs: dict[int, Output] = {}  # noqa: RUF012


@pytest.mark.parametrize("mode", [WaitMode.EXACT, WaitMode.EXACT_ALL, WaitMode.ANY_BACKGROUND])
def test_a_repeat_after_retention_says_that_the_result_is_gone(mode: WaitMode) -> None:
    agent = Agent("a", "", "a", 0, Surface.TAU, "", "", 0.0)
    answers = Answers(State(agents={"a": agent}), Outputs("/none", NoGroups()))  # type: ignore[arg-type]
    settled = Settled(mode, WaitOutcome.RESULT, ["X"], False, 7)
    with pytest.raises(Rejected) as refused:
        answers.wait(agent, "w", settled)
    assert refused.value.reason is Reason.RESULT_CONSUMED
    assert refused.value.details == {"tool_call_id": "X"}
