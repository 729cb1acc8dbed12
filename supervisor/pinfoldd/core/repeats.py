"""An id names one thing of its agent. Sent again it is a repeat; for anything else, refused."""

from __future__ import annotations

from pinfoldd.core.model import Agent, Call, ToolRecord
from pinfoldd.core.reasons import Reason, Rejected

WAIT = "wait"

_NAMES = {
    Reason.CALL_ID_REUSED: "tool_call_id",
    Reason.WAIT_ID_REUSED: "wait_id",
    Reason.REQUEST_ID_REUSED: "request_id",
}


def is_repeat(agent: Agent, id: str, tool: str, digest: str, refusal: Reason) -> bool:
    """Whether this was asked for already. Looked at before anything else, so that a repeat
    gets its answer also when the answer itself has changed what would be decided now."""
    known = (
        agent.calls.get(id) or agent.records.get(id) or agent.waits.get(id) or agent.settled.get(id)
    )
    if known is None:
        return False
    its_tool = known.tool if isinstance(known, Call | ToolRecord) else WAIT
    if its_tool != tool or known.digest != digest:
        raise Rejected(refusal, **{_NAMES[refusal]: id})
    return True
