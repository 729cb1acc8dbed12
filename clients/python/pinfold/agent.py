"""The handle of one agent, with everything an agent can do."""

from __future__ import annotations

from pinfold.calls import Calls
from pinfold.tasks import Tasks
from pinfold.turns import Turn, Turns
from pinfold.waits import Waits

__all__ = ["Agent", "Turn"]


class Agent(Calls, Waits, Tasks, Turns):
    """A handle of an agent: cheap, made by `Client.open_agent` or `Client.agent`.

    All times are in seconds. Every error is a `PinfoldError`.
    """
