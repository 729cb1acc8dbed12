"""One supervisor: store, core, loop, keeper link and server, put together in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from pinfoldd.config import Config, ConfigError
from pinfoldd.core import apply as core_apply
from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.engine import Engine
from pinfoldd.core.model import Agent, Call, Prompt, State
from pinfoldd.core.reasons import Rejected
from pinfoldd.core.values import Result
from pinfoldd.groups import Groups
from pinfoldd.keeper import messages as m
from pinfoldd.keeper.client import KeeperError, KeeperLink, find_keeper, start_keeper
from pinfoldd.keeper.spool import spooled
from pinfoldd.loop import Loop
from pinfoldd.outputs import Outputs
from pinfoldd.render import errors, results, waits
from pinfoldd.render.prompts import prompt_text
from pinfoldd.rpc import wire
from pinfoldd.rpc.operations import Operations
from pinfoldd.rpc.server import Server
from pinfoldd.rpc.supervisor_service import Identity, pinfold_version
from pinfoldd.rpc.tokens import Tokens
from pinfoldd.store import Store, StoreError
from pinfoldd.workers import PRELOAD, RoleWorkers

log = logging.getLogger(__name__)

_STOP_GRACE = 2.0  # seconds that RPCs under way get when the server stops
_KEEPER_PAUSE = 0.1  # seconds between two tries
_KEEPER_PATIENCE = 15.0  # seconds, at a start
_HELLO_SECONDS = 10.0
# What must not reach the programs that agents run.
_PRIVATE_PREFIXES = ("PINFOLD_", "GRPC_")
_PRIVATE = frozenset({"BASH_ENV", "ENV"})


def _dumps(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # bytes of the system that are no text
        return m.STANDARD.dumps(value)


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return m.STANDARD.loads(data)


# The link's headers are a fifth of a call's cost with the standard library.
QUICK_JSON = m.Json(_dumps, _loads)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the daemon's own environment every call starts with."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _PRIVATE and not name.startswith(_PRIVATE_PREFIXES)
    }


class Texts:
    """Implements `event_bodies.Texts` with what models really read."""

    def placeholder(self, event: e.CallBackgrounded, state: State) -> str:
        call = state.call(event.agent, event.call)
        return "" if call is None else waits.placeholder(call, state.agents[event.agent].surface)

    def prompt(self, prompt: Prompt, agent: str, state: State) -> str:
        owner = state.agents.get(agent)
        if owner is None:
            return prompt.body
        return prompt_text(prompt, owner.surface, owner.calls.get(prompt.call))

    def error(self, tool: str, result: Result) -> str:
        return results.error_message(tool, result)


class KeeperGone(ConfigError):
    """There is a keeper, but it cannot be spoken to: perhaps in a moment."""


class Supervisor:
    """Everything of one daemon. `start`, then `stopped`, once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stop_asked = asyncio.Event()
        self._ended = asyncio.Event()
        self._status = 0
        self._link: KeeperLink | None = None
        self._keeper_process: subprocess.Popen[bytes] | None = None
        self._hello: asyncio.Future[m.Hello] | None = None
        self._store: Store | None = None
        self._server: Server | None = None
        self._keeper_task: asyncio.Task[None] | None = None
        self._serving = False

    # ------------------------------------------------------------ start

    async def start(self) -> list[str]:
        """Returns the addresses it listens on. Raises ConfigError."""
        config = self._config
        # A collection in the middle of a load of 100,000 calls costs more than the load.
        gc.disable()
        try:
            store = self._store = Store.open(config.state, config.durability)
            state, events = store.recover()
            for stamp, event in events:
                core_apply.apply(state, event, stamp)
        except StoreError as error:
            raise ConfigError(str(error)) from error
        finally:
            gc.freeze()
            gc.enable()
        self._identity = Identity(
            config, f"unix:{config.socket}", secrets.token_hex(6), time.time()
        )
        self._identity.pid = os.getpid()
        tokens = Tokens(config.state)
        if config.require_token and not tokens.has_operator():
            raise ConfigError(
                "require_token: there is no operator's token yet, and nobody could make one; start "
                "without it, run `pinfold token create`, keep what it prints, then set it"
            )
        base = inherited(os.environ)
        address = f"unix:{config.socket}"
        workers = RoleWorkers(config, address, tokens.worker)
        self._groups = Groups(base, _environment(address), workers)
        engine = Engine(state, config.core())
        self._loop = Loop(
            engine,
            store,
            partial(wire.serialized, texts=Texts()),
            self._groups,
            keep_events=config.retention.events,
        )
        self._groups.bind(self._loop)
        outputs = Outputs(str(config.state / "spool"), self._groups)
        operations = Operations(self._loop, self._groups, outputs, config)
        await self._recover()
        self._server = Server(
            operations, config, tokens, self._identity, _directory(), self.stop_serving
        )
        try:
            return await self._server.start()
        except ConfigError:
            self._ended.set()
            await self._dismiss_keeper()
            raise

    async def _recover(self) -> None:
        """Connect to the keeper (a new one, or the one that outlived the last daemon) and
        bring the state and its groups together."""
        hello = await self._connect_patiently()
        known = frozenset(group.group for group in hello.groups)
        await self._decide(c.Recover(pinfold_version(), known))
        self._serving = True
        if self._link is not None:
            self._adopt(hello, known)
        else:
            self._lost()

    def _decide(self, command: c.Command) -> asyncio.Future[None]:
        """Also while the store is failing: then it is decided when that is over."""
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: object) -> None:
            if not decided.done():
                decided.set_result(None)

        self._loop.post(command, done)
        return decided

    async def _connect_patiently(self) -> m.Hello:
        """One that is dying has its lock still, and one that ends the groups of an earlier
        keeper does not listen yet: neither keeps a daemon from starting."""
        deadline = time.monotonic() + _KEEPER_PATIENCE
        while True:
            try:
                return await self._connect()
            except KeeperGone:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_KEEPER_PAUSE)

    def _adopt(self, hello: m.Hello, known: frozenset[int]) -> None:
        for group in hello.groups:
            self._groups.replay(group)
        self._groups.resend(known)
        self._sweep = asyncio.ensure_future(self._discard_strays())

    async def _discard_strays(self) -> None:
        """A hundred thousand files take a tenth of a second: not on this thread."""
        with contextlib.suppress(OSError):
            groups = await asyncio.to_thread(spooled, str(self._config.state / "spool"))
            self._groups.discard_unknown(groups)

    async def _connect(self) -> m.Hello:
        config = self._config
        directory = str(config.state)
        try:
            if find_keeper(directory) is None:
                self._keeper_process = await asyncio.to_thread(
                    start_keeper,
                    directory,
                    linger=config.linger,
                    drain=config.shell.drain,
                    umask=int(config.shell.umask, 8),
                    fsync=config.durability == "full",
                    preload=PRELOAD,
                    cgroup=config.cgroup,
                )
        except KeeperError as error:
            raise ConfigError(f"keeper: {error}") from error
        try:
            self._hello = asyncio.get_running_loop().create_future()
            self._link = await KeeperLink.connect(directory, self._report, self._lost, QUICK_JSON)
            hello = await asyncio.wait_for(self._hello, _HELLO_SECONDS)
        except (KeeperError, TimeoutError) as error:
            if self._link is not None:
                self._link.close()
                self._link = None
            why = str(error) or "it does not answer; see keeper.log"
            raise KeeperGone(f"keeper: {why}") from error
        if hello.protocol != m.PROTOCOL:
            raise ConfigError(
                f"keeper: version {hello.version} speaks another protocol; "
                "end its groups with the pinfold that started it"
            )
        self._identity.keeper_pid = hello.pid
        self._identity.containment = hello.containment
        self._groups.attach(self._link)
        return hello

    def _report(self, report: m.Report) -> None:
        if isinstance(report, m.Hello):
            if self._hello is not None and not self._hello.done():
                self._hello.set_result(report)
        else:
            self._groups.report(report)

    def _lost(self) -> None:
        """The keeper is gone, or only the link to it."""
        self._link = None
        self._groups.attach(None)
        if self._hello is not None and not self._hello.done():
            self._hello.set_exception(KeeperError("it ended before it answered"))
        # Also while stopping: what a lost keeper leaves behind has to be ended, too.
        under_way = self._keeper_task is not None and not self._keeper_task.done()
        if self._serving and not self._ended.is_set() and not under_way:
            log.error("the link to the keeper is lost; connecting again")
            self._keeper_task = asyncio.ensure_future(self._reconnect())

    async def _reconnect(self) -> None:
        while not self._ended.is_set():
            if self._keeper_process is not None:
                await asyncio.to_thread(_reap, self._keeper_process)
            try:
                hello = await self._connect()
            except ConfigError as error:
                if not isinstance(error, KeeperGone):
                    log.error("%s", error)
                await asyncio.sleep(_KEEPER_PAUSE)
                continue
            known = frozenset(group.group for group in hello.groups)
            await self._decide(c.Reconcile(known))
            if self._link is not None:  # it may have been lost meanwhile
                self._adopt(hello, known)
                return

    # ------------------------------------------------------------ stop

    def request_stop(self) -> None:
        """SIGTERM and SIGINT: drain, end all groups, leave. Twice: the groups are killed."""
        grace = 0.0 if self._stop_asked.is_set() else None
        self._stop_asked.set()
        self._stopping = asyncio.ensure_future(self._end_groups(grace))

    async def _end_groups(self, grace: float | None) -> None:
        try:
            if self._server is not None:
                await self._server.supervisor.end_groups(
                    "supervisor stopped", keep_groups=False, grace=grace
                )
        except Rejected as error:
            # The store is failing, and nobody is killed without a word in the log.
            log.error("groups run on with their keeper: %s", errors.text(error.reason, {}))
            self._status = 1
        self.stop_serving()

    def stop_serving(self) -> None:
        """What had to be ended is ended: leave."""
        self._stop_asked.set()
        self._ended.set()

    async def stopped(self) -> int:
        """Returns when the supervisor has ended and everything is on the disk: the exit status
        of its process."""
        await self._ended.wait()
        if self._server is not None:
            # `Server.stop` returns before the `finally` of its handlers: they get one turn
            # of the loop to cancel their waits, and the loop then commits that.
            await self._server.stop(_STOP_GRACE)
            await asyncio.sleep(0)
        if self._keeper_task is not None:
            # A keeper that is just being started would be left behind.
            await asyncio.wait([self._keeper_task])
        await self._loop.close()
        await self._dismiss_keeper()
        await self.abandon()
        return self._status

    async def _dismiss_keeper(self) -> None:
        """End the keeper if nothing is left for it to keep."""
        if self._loop.state.groups or self._link is None:
            return
        self._groups.flush()
        self._link.send(m.Shutdown())
        if self._keeper_process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._keeper_process.wait, 2.0)

    async def abandon(self) -> None:
        """Let go of what was opened. Groups run on with their keeper."""
        self._ended.set()
        if self._link is not None:
            self._link.close()
            await asyncio.sleep(0)
        if self._store is not None:
            self._store.close()
        self._config.socket.unlink(missing_ok=True)


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)


def _environment(address: str) -> Callable[[Agent, Call], dict[str, str]]:
    def environment(agent: Agent, call: Call) -> dict[str, str]:
        return {
            **agent.env,
            "PINFOLD_ADDRESS": address,
            "PINFOLD_AGENT_ID": agent.id,
            "PINFOLD_CALL_ID": call.id,
        }

    return environment


def _directory() -> str:
    """Where calls run whose agent names no directory."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"
