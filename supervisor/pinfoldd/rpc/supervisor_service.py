"""SupervisorService: what it is, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from pinfold.v1 import supervisor_service_pb2
from pinfoldd.config import Config
from pinfoldd.core import commands as c
from pinfoldd.render import labels
from pinfoldd.rpc import checks, convert
from pinfoldd.rpc.door import Door
from pinfoldd.rpc.operations import Endings, Operations
from pinfoldd.rpc.tokens import Tokens

_LAST_QUESTIONS = 0.25  # seconds


@cache
def pinfold_version() -> str:
    """Read from the metadata of the distribution, which is a file: once, not in each GetInfo."""
    try:
        return version("pinfold")
    except PackageNotFoundError:
        return "0+unknown"


class Identity:
    """What GetInfo tells that does not change while the daemon runs."""

    def __init__(self, config: Config, address: str, instance: str, started: float) -> None:
        self.config = config
        self.address = address
        self.instance = instance
        self.started = started
        self.pid = 0
        self.keeper_pid = 0
        self.containment = ""


class SupervisorService:
    def __init__(
        self,
        operations: Operations,
        door: Door,
        tokens: Tokens,
        identity: Identity,
        stop: Callable[[], None],
        draining: Callable[[], None],
    ) -> None:
        self._do = operations
        self._door = door
        self._tokens = tokens
        self._identity = identity
        self._stop = stop
        self._draining = draining
        self._limits = _limits(identity.config)
        self._roles = sorted(identity.config.all_roles())

    async def GetInfo(
        self, request: supervisor_service_pb2.GetInfoRequest
    ) -> supervisor_service_pb2.GetInfoResponse:
        who = self._identity
        state = self._do.state
        config = who.config
        log = self._do.loop.store.log
        capabilities = ["terminal", "python_workers"]
        if config.tls is not None:
            capabilities.append("tls")
        if "cgroup" in who.containment:
            capabilities.append("cgroup")
        return supervisor_service_pb2.GetInfoResponse(
            version=pinfold_version(),
            instance_id=who.instance,
            started_at=convert.timestamp(who.started),
            pid=who.pid,
            keeper_pid=who.keeper_pid,
            state_directory=bytes(config.state),
            address=who.address,
            revision=self._do.loop.committed_revision,
            oldest_revision=log.oldest_revision(),
            live_calls=sum(len(agent.live) for agent in state.agents.values()),
            live_agents=sum(agent.is_live for agent in state.agents.values()),
            parked_waits=self._do.parked_waits,
            draining=state.draining,
            limits=self._limits,
            capabilities=capabilities,
            durability=config.durability,
            containment=who.containment,
            roles=self._roles,
        )

    async def Drain(
        self, request: supervisor_service_pb2.DrainRequest
    ) -> supervisor_service_pb2.DrainResponse:
        await self._do.loop.submit(c.Drain("asked for"))
        self._draining()
        live = sum(len(agent.live) for agent in self._do.state.agents.values())
        return supervisor_service_pb2.DrainResponse(live_calls=live)

    async def Stop(
        self, request: supervisor_service_pb2.StopRequest
    ) -> supervisor_service_pb2.StopResponse:
        grace = None
        if request.HasField("grace"):
            grace = checks.seconds(request.grace, "grace")
        reason = checks.text(request.reason, "reason", checks.MAX_LABEL_BYTES, empty=True)
        response = await self.end_groups(
            labels.label(reason) or "supervisor stopped",
            keep_groups=request.keep_groups,
            grace=grace,
        )
        self._stop()
        return response

    async def end_groups(
        self, reason: str, *, keep_groups: bool, grace: float | None
    ) -> supervisor_service_pb2.StopResponse:
        """Drain, and unless the groups are to run on, end them and wait for it."""
        state = self._do.state
        calls = [a.calls[i] for a in state.agents.values() for i in (*a.live, *a.leftovers)]
        self._draining()
        with Endings(self._do.loop, calls) as endings:
            await self._do.loop.submit(c.StopSupervisor(reason, keep_groups, grace))
            while not keep_groups and state.groups:
                await self._do.loop.committed()
            receipts = endings.receipts()
        ended = sum(1 for call in calls if not call.live)
        if ended:
            # Who has seen the end of a call's output asks for its result next.
            await asyncio.sleep(_LAST_QUESTIONS)
        return supervisor_service_pb2.StopResponse(
            ended_calls=ended,
            ended_processes=sum(receipt.ended for receipt in receipts),
            surviving_pids=[s.pid for receipt in receipts for s in receipt.survivors],
        )

    # ------------------------------------------------------------ tokens

    async def CreateToken(
        self, request: supervisor_service_pb2.CreateTokenRequest
    ) -> supervisor_service_pb2.CreateTokenResponse:
        if request.agent_id:
            self._do.state.agent(request.agent_id)
        valid_for = None
        if request.HasField("valid_for"):
            valid_for = checks.seconds(request.valid_for, "valid_for")
        label = checks.text(request.label, "label", checks.MAX_LABEL_BYTES, empty=True)
        text, token = await asyncio.to_thread(
            self._tokens.create, request.agent_id, labels.label(label) if label else "", valid_for
        )
        return supervisor_service_pb2.CreateTokenResponse(token=text, token_id=token.id)

    async def ListTokens(
        self, request: supervisor_service_pb2.ListTokensRequest
    ) -> supervisor_service_pb2.ListTokensResponse:
        response = supervisor_service_pb2.ListTokensResponse()
        for token in self._tokens.list():
            response.tokens.add(
                token_id=token.id,
                agent_id=token.agent,
                label=convert.text(token.label),
                created_at=convert.timestamp(token.created),
                expires_at=convert.timestamp(token.expires) if token.expires else None,
            )
        return response

    async def RevokeToken(
        self, request: supervisor_service_pb2.RevokeTokenRequest
    ) -> supervisor_service_pb2.RevokeTokenResponse:
        self._tokens.revoke(request.token_id)
        return supervisor_service_pb2.RevokeTokenResponse()


def _limits(config: Config) -> supervisor_service_pb2.Limits:
    return supervisor_service_pb2.Limits(
        foreground_budget=convert.duration(config.shell.foreground_budget),
        default_timeout=(
            None if config.shell.timeout is None else convert.duration(config.shell.timeout)
        ),
        default_grace=convert.duration(config.shell.grace),
        calls_per_agent=config.limits.calls_per_agent,
        live_groups=config.limits.live_groups,
        output_bytes_per_call=config.shell.output_bytes,
        script_bytes=config.shell.script_bytes,
        message_bytes=config.limits.message_bytes,
        prompt_bytes=config.limits.prompt_bytes,
        parked_waits=config.limits.waits_per_agent,
        active_tasks_per_agent=config.tasks.active,
        task_wait_timeout=convert.duration(config.tasks.wait_timeout_ms / 1000),
        max_task_wait_timeout=convert.duration(config.tasks.max_wait_timeout_ms / 1000),
        min_input_wait_minutes=config.waits.min_input_minutes,
        max_input_wait_minutes=config.waits.max_input_minutes,
        env_value_bytes=config.shell.env_value_bytes,
        agent_depth=config.limits.agent_depth,
    )
