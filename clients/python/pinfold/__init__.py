"""Client of the Pinfold supervisor.

    import asyncio, pinfold

    async def main():
        async with pinfold.Client.connect() as client:
            agent = await client.open_agent("me")
            answer = await agent.run("make test")
            print(answer.text)

    asyncio.run(main())

`SyncClient` is the same without `async`. The generated messages are in `pinfold.v1`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinfold.agent import Agent, Turn
    from pinfold.answers import OutputChunk, Placeholder, Result, WaitAnswer
    from pinfold.channel import Tls
    from pinfold.client import Client
    from pinfold.errors import PinfoldError
    from pinfold.sync import SyncAgent, SyncClient

# Loaded on first use: the daemon imports `pinfold.v1` and pays for nothing else.
_HOME = {
    "Agent": "agent",
    "Client": "client",
    "OutputChunk": "answers",
    "PinfoldError": "errors",
    "Placeholder": "answers",
    "Result": "answers",
    "SyncAgent": "sync",
    "SyncClient": "sync",
    "Tls": "channel",
    "Turn": "agent",
    "WaitAnswer": "answers",
}

__all__ = [
    "Agent",
    "Client",
    "OutputChunk",
    "PinfoldError",
    "Placeholder",
    "Result",
    "SyncAgent",
    "SyncClient",
    "Tls",
    "Turn",
    "WaitAnswer",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
