"""A sub-agent's loop in Python: take a turn, work, answer.

    from pinfold.worker import Turn, run

    async def work(turn: Turn) -> str:
        answer = await turn.call_tool("shell", {"command": "make test"})
        return model(turn.text, answer.text)

    run(work)

The supervisor starts the program and gives it PINFOLD_ADDRESS, PINFOLD_AGENT_ID and
PINFOLD_TOKEN. docs/workers.md has the kinds of workers and how roles choose them.
"""

from pinfold.worker.kit import Turn, TurnCancelled, Worker, run

__all__ = ["Turn", "TurnCancelled", "Worker", "run"]
