"""What all parts of an agent's handle share."""

from __future__ import annotations

from pinfold.connection import Connection


class AgentHandle:
    """`token` is the agent's own when the supervisor made one with it (see `open_agent`)."""

    def __init__(self, connection: Connection, agent_id: str, *, token: str = "") -> None:
        self.connection = connection
        self.agent_id = agent_id
        self.token = token
        # The last delivery of prompts: the next step of the driver acknowledges it.
        self.delivery_id = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.agent_id!r})"
