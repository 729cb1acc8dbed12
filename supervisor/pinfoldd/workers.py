"""How the worker of a sub-agent is started: a role of the settings as an order to the keeper."""

from __future__ import annotations

import json
from collections.abc import Callable

from pinfoldd.config import Config, Role
from pinfoldd.core.model import Agent
from pinfoldd.keeper.messages import Spawn
from pinfoldd.keeper.spool import STDERR, SpoolReader, paths

PYTHON_KIT = "pinfold.worker.run:main"
# What the keeper's warm process has imported when a worker is forked from it.
PRELOAD = ("grpc.aio", "pinfold.worker.run", "pinfold.worker.scripted", "pinfold.worker.exec")
_WORDS_BYTES = 4096  # of the end of a worker's output: where its last words are looked for
_WORDS = 300  # characters


class RoleWorkers:
    """Implements `groups.Workers` for the roles of the settings.

    Every worker finds PINFOLD_ADDRESS, PINFOLD_AGENT_ID and PINFOLD_TOKEN in its environment;
    the token is a capability for its agent and what is below it.
    """

    def __init__(self, config: Config, address: str, token: Callable[[str], str]) -> None:
        self._roles = config.all_roles()
        self._spool = str(config.state / "spool")
        self._address = address
        self._token = token

    def last_words(self, group: int, size: int) -> str:
        with SpoolReader(*paths(self._spool, group)) as reader:
            chunks = reader.read(max(0, size - _WORDS_BYTES), _WORDS_BYTES, size)
        said = b"".join(chunk.data for chunk in chunks if chunk.stream == STDERR)
        lines = said.decode(errors="replace").split("\n")
        return next((line.strip()[:_WORDS] for line in reversed(lines) if line.strip()), "")

    def spawn(self, agent: Agent, group: int) -> Spawn:
        role = self._roles.get(agent.role)
        if role is None:
            # The settings have changed since: the keeper's answer says so, as for any start.
            role = Role(worker="command", command=[f"<no role {agent.role!r} in the settings>"])
        env = {
            **agent.env,
            **role.env,
            "PINFOLD_ADDRESS": self._address,
            "PINFOLD_AGENT_ID": agent.id,
            "PINFOLD_TOKEN": self._token(agent.id),
        }
        spawn = Spawn(group=group, label=f"worker of {agent.id}", cwd=agent.cwd or "/", env=env)
        match role.worker:
            case "command":
                spawn.argv = list(role.command)
                return spawn
            case "exec":
                env["PINFOLD_WORKER_COMMAND"] = json.dumps(role.command)
                env["PINFOLD_WORKER"] = "pinfold.worker.exec:run_turn"
            case "scripted":
                env["PINFOLD_WORKER"] = "pinfold.worker.scripted:run_turn"
            case "python":
                env["PINFOLD_WORKER"] = role.entry
        spawn.zygote = PYTHON_KIT
        return spawn
