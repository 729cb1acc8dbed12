"""One phase of the plan while it runs: its checks, its agents, its part of the log."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from pinfold.answers import Result
from pinfold.client import Client
from pinfold.errors import PinfoldError
from pinfold.v1 import supervisor_service_pb2
from pinfold.values import new_id
from pinfold.verify.actor import Actor
from pinfold.verify.log import Log, Missing
from pinfold.verify.report import Check, Note, PhaseResult

T = TypeVar("T")

TAU = "tau"
TASKS = "tasks"


class Abandoned(Exception):
    """A check failed without which the rest of the phase makes no sense."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A phase of the plan. `seconds`: about how long it takes, the longest are begun first."""

    name: str
    section: str
    title: str
    seconds: float
    run: Callable[[Phase], Awaitable[None]]


PHASES: dict[str, Spec] = {}


def phase(
    name: str, section: str, title: str, seconds: float = 3.0
) -> Callable[[Callable[[Phase], Awaitable[None]]], Callable[[Phase], Awaitable[None]]]:
    """Make a function a phase of the plan."""

    def register(run: Callable[[Phase], Awaitable[None]]) -> Callable[[Phase], Awaitable[None]]:
        PHASES[name] = Spec(name, section, title, seconds, run)
        return run

    return register


class Phase:
    """`check` compares and goes on, `require` gives up where going on makes no sense."""

    def __init__(
        self,
        spec: Spec,
        client: Client,
        info: supervisor_service_pb2.GetInfoResponse,
        *,
        role: str,
        serial_role: str,
        patience: float,
    ) -> None:
        self.spec = spec
        self.client = client
        self.info = info
        self.role = role
        """A role of scripted workers."""
        self.serial_role = serial_role
        """The same, with `max_running_calls` = 1."""
        self.patience = patience
        """Seconds after which what has not come is missing."""
        self.result = PhaseResult(spec.name, spec.section, spec.title)
        self._route = spec.title
        self._agents: list[Actor] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._helper: Actor | None = None
        self._scratch = ""
        self._root = ""
        self.log: Log

    # ------------------------------------------------------------ checks

    def route(self, name: str) -> None:
        """What the checks that follow are about, in the report."""
        self._route = name

    def check(
        self, name: str, *, expected: object, got: object, kind: str = "", confirms: str = ""
    ) -> bool:
        passed = bool(expected == got)
        self.result.checks.append(
            Check(self._route, name, passed, _shown(expected), _shown(got), kind, confirms)
        )
        return passed

    def require(self, name: str, *, expected: object, got: object) -> None:
        if not self.check(name, expected=expected, got=got):
            raise Abandoned

    def note(self, text: str, kind: str = "") -> None:
        self.result.notes.append(Note(kind, text))

    # ------------------------------------------------------------ agents

    async def agent(self, *, turn: bool = True, **options: Any) -> Actor:
        """A root agent of this phase, in a turn that a user's prompt began."""
        actor = await self._open(f"{self._root}-{len(self._agents)}", **options)
        if turn:
            await actor.user(f"verify {self.spec.name}")
            await actor.next_turn()
        return actor

    async def _open(self, agent_id: str, **options: Any) -> Actor:
        label = f"pinfold verify: {self.spec.name}"
        actor = Actor(self, await self.client.open_agent(agent_id, label=label, **options))
        self._agents.append(actor)
        return actor

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """In parallel with what follows; ended with the phase."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    # ------------------------------------------------------------ scratch and gates

    async def _do(self, script: str) -> str:
        """A command of the stage hand, who is no part of the play: its output."""
        if self._helper is None:
            self._helper = await self._open(f"{self._root}-helper")
        answer = await self._helper.agent.run(
            script, foreground_budget=self.patience, timeout=self.patience
        )
        if not isinstance(answer, Result) or not answer.ok:
            raise Missing(f"the stage's own command {script!r} failed: {answer.text}")
        return (await self._helper.agent.read_output(answer.call_id)).decode()

    async def scratch(self) -> str:
        """A directory on the supervisor's machine, as a word of the shell; removed with the
        phase."""
        if not self._scratch:
            made = await self._do('mktemp -d "${TMPDIR:-/tmp}/pinfold-verification.XXXXXX"')
            self._scratch = shlex.quote(made.removesuffix("\n"))
        return self._scratch

    async def exists(self, path: str) -> bool:
        return await self._do(f"test -e {path} && echo yes || echo no") == "yes\n"

    async def is_alive(self, pid: str) -> bool:
        """Whether a process is there, and no zombie."""
        state = await self._do(f"grep -s '^State:' /proc/{pid}/status || true")
        return bool(state) and "Z" not in state

    async def gate(self, name: str) -> str:
        """A pipe that holds whoever reads it until it is opened."""
        path = f"{await self.scratch()}/{name}"
        await self._do(f"mkfifo {path}")
        return path

    async def open_gate(self, name: str) -> None:
        await self._do(f": > {self._scratch}/{name}")

    # ------------------------------------------------------------ the run

    async def run(self) -> PhaseResult:
        started = time.monotonic()
        try:
            async with self._prepared():
                await self._play()
        except PinfoldError as error:
            self._refused(error)
        self.result.seconds = time.monotonic() - started
        return self.result

    async def _play(self) -> None:
        try:
            # Patience for one event, several times over: a phase that stands still is ended.
            async with asyncio.timeout(self.spec.seconds * 2 + 4 * self.patience):
                await self.spec.run(self)
        except Abandoned:
            self.note("given up here: what follows needs the check that failed")
        except Missing as error:
            self.check("what should come, comes", expected="in time", got=str(error))
        except TimeoutError:
            self.check("answers come", expected="in time", got="a call that hangs")
        except PinfoldError as error:
            self._refused(error)
        except (IndexError, KeyError, ValueError) as error:
            # What the phase reads its facts from is not there.
            where = traceback.extract_tb(error.__traceback__)[-1]
            got = f"{type(error).__name__}: {error} ({where.line})"
            self.check("the phase can be played to its end", expected="its facts", got=got)

    def _refused(self, error: PinfoldError) -> None:
        got = f"{type(error).__name__} {error.reason}: {error}"
        self.check("no RPC fails", expected="an answer", got=got)

    @contextlib.asynccontextmanager
    async def _prepared(self) -> AsyncIterator[None]:
        info = await self.client.info()
        self._root = new_id(f"verify-{self.spec.name}").replace("_", "-")
        roots = [f"{self._root}-{n}" for n in range(9)]
        self.log = Log(self.client, info.revision + 1, roots, self.patience)
        try:
            async with self.log.following():
                yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._clean()

    async def _clean(self) -> None:
        """Ends the agents, and sees that nothing is left of them."""
        self._route = "nothing is left"
        if self._scratch:
            with contextlib.suppress(Missing):
                await self._do(f"rm -rf {self._scratch}")
        stops = [actor.agent.stop(reason="verified", grace=1.0) for actor in self._agents]
        try:
            async with asyncio.timeout(3 * self.patience):
                stopped = await asyncio.gather(*stops)
        except TimeoutError:
            self.check("agents stop", expected="in time", got="a stop that hangs")
            return
        left = [pid for answer in stopped for pid in answer.receipt.surviving_pids]
        self.check("processes left after the phase", expected=[], got=left)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
