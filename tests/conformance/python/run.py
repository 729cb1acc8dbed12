"""One scenario on its way."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any, Self

from operations import OPERATIONS, Arguments
from scenario import Fault, Scenario, Step, new_step
from transcript import canonical, plain
from values import error_of, find, object_of, pick

import pinfold

# Recorded only where a step has `record`, or fails.
_SILENT = frozenset({"attach_agent", "connect", "sleep", "until_event"})
_PLACEHOLDER = re.compile(r"\$\{([a-zA-Z0-9_.]+)\}")

Body = dict[str, Any]


class Run:
    def __init__(
        self, scenario: Scenario, client: pinfold.Client, directory: Path, begin: int
    ) -> None:
        self.scenario = scenario
        self.clients = {"": client}
        self.agents: dict[str, pinfold.Agent] = {}
        self.opened: list[pinfold.Agent] = []
        self.saved: dict[str, Any] = {"dir": str(directory), "begin": begin}
        self._beside: dict[str, tuple[Step, asyncio.Task[Body]]] = {}

    @classmethod
    async def begin(cls, scenario: Scenario, client: pinfold.Client, directory: Path) -> Self:
        info = await client.info()
        return cls(scenario, client, directory, info.revision + 1)

    async def close(self) -> None:
        """Stops what the scenario opened; nothing of it is left for the next."""
        for _, task in self._beside.values():
            task.cancel()
        for agent in self.opened:
            # It may have been stopped.
            with contextlib.suppress(pinfold.PinfoldError):
                await agent.stop(grace=0)
        for name, client in self.clients.items():
            if name:
                await client.close()

    async def steps(self) -> list[Body]:
        entries: list[Body] = []
        for step in self.scenario.steps:
            if step.background:
                task = asyncio.create_task(self._perform(step))
                self._beside[step.background] = (step, task)
                # It has sent its request before the next step does.
                await asyncio.sleep(0)
                continue
            try:
                subject, body = await self._finish(step)
            except Fault as fault:
                raise Fault(f"step {step.number}: {fault}") from fault
            entry = _recorded(subject, body)
            if entry is not None:
                entries.append({"step": subject.number, "op": subject.op, **entry})
        return entries

    async def _finish(self, step: Step) -> tuple[Step, Body]:
        """Runs a step to its end. Its entry is that of the step beside, for a `join`."""
        if step.op in ("join", "abandon"):
            if step.args not in self._beside:
                raise Fault(f"nothing runs as {step.args!r}")
            subject, task = self._beside.pop(step.args)
            if step.op == "join":
                body = await task
                self._save(subject, body)
                return subject, body
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return subject, {"answer": {"abandoned": True}}
        if step.op == "race":
            inner = [new_step(step.number, raw) for raw in step.args]
            bodies = await asyncio.gather(*map(self._perform, inner))
            answers = sorted(bodies, key=lambda body: canonical(plain(body)).encode())
            return step, {"answer": {"answers": answers}}
        body = await self._perform(step)
        self._save(step, body)
        return step, body

    async def _perform(self, step: Step) -> Body:
        operation = OPERATIONS.get(step.op)
        if operation is None:
            raise Fault(f"no such operation: {step.op}")
        try:
            answer = await operation(Arguments(self, step, self._expand(step.args) or {}))
        except pinfold.PinfoldError as error:
            return {"error": error_of(error)}
        return {"answer": object_of(answer)}

    def _save(self, step: Step, body: Body) -> None:
        for name, path in step.save.items():
            self.saved[name] = find(body.get("answer"), path)

    def _expand(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._expand(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._expand(inner) for inner in value]
        return _PLACEHOLDER.sub(self._placed, value) if isinstance(value, str) else value

    def _placed(self, match: re.Match[str]) -> str:
        if match[1] not in self.saved:
            raise Fault(f"nothing was saved as {match[0]}")
        return str(self.saved[match[1]])

    def keep(self, name: str, agent: pinfold.Agent, *, opened: bool) -> None:
        self.agents[name] = agent
        self.saved[name] = agent.agent_id
        self.saved[f"{name}.token"] = agent.token
        if opened:
            self.opened.append(agent)


def _recorded(step: Step, body: Body) -> Body | None:
    if "error" in body:
        return body
    if step.record is None:
        return None if step.op in _SILENT else body
    if not step.record:
        return None
    return {"answer": pick(body["answer"], step.record)}
