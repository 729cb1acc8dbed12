"""The gRPC server: services, health, reflection, listeners."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pinfold.v1 import (
    agent_service_pb2,
    call_service_pb2,
    supervisor_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    watch_service_pb2,
)
from pinfoldd.config import Config, ConfigError
from pinfoldd.rpc.agent_service import AgentService
from pinfoldd.rpc.answers import Answers
from pinfoldd.rpc.call_service import CallService
from pinfoldd.rpc.door import Door
from pinfoldd.rpc.operations import Operations
from pinfoldd.rpc.supervisor_service import Identity, SupervisorService
from pinfoldd.rpc.task_service import TaskService
from pinfoldd.rpc.tokens import Tokens
from pinfoldd.rpc.tool_service import ToolService
from pinfoldd.rpc.watch_service import WatchService

_OPTIONS = [
    # By default the server drops bursts of over 1,000 calls as bare CANCELLED; the limits of
    # this supervisor are its own, and each says its name.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ("grpc.max_receive_message_length", 32 << 20),
    # An answer that is not sent is lost. What makes one large is bounded where it comes in.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 200_000),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]


class Server:
    """All services of one supervisor on its listeners."""

    def __init__(
        self,
        operations: Operations,
        config: Config,
        tokens: Tokens,
        identity: Identity,
        directory: str,
        stop: Callable[[], None],
    ) -> None:
        self._server = grpc.aio.server(options=_OPTIONS)
        self._config = config
        self._health = health.aio.HealthServicer()
        answers = Answers(operations.state, operations.outputs)
        door = Door(lambda: operations.state, tokens, local_is_operator=not config.require_token)
        calls = CallService(operations, answers, door)
        agents = AgentService(operations, answers, tokens, directory)
        tasks = TaskService(operations, answers)
        self.supervisor = SupervisorService(
            operations, door, tokens, identity, stop, self._not_serving
        )
        servicers = [
            (call_service_pb2, "CallService", calls),
            (agent_service_pb2, "AgentService", agents),
            (task_service_pb2, "TaskService", tasks),
            (
                tool_service_pb2,
                "ToolService",
                ToolService(operations, answers, calls, agents, tasks),
            ),
            (watch_service_pb2, "WatchService", WatchService(operations, answers, door)),
            (supervisor_service_pb2, "SupervisorService", self.supervisor),
        ]
        names = [reflection.SERVICE_NAME, health.SERVICE_NAME]
        for module, name, servicer in servicers:
            descriptor = module.DESCRIPTOR.services_by_name[name]
            self._server.add_generic_rpc_handlers((door.handlers(descriptor, servicer),))
            names.append(descriptor.full_name)
        self._names = ["", *names[2:]]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(names, self._server)

    async def start(self) -> list[str]:
        """Listen. Returns the addresses; raises ConfigError for one that cannot be used."""
        addresses = [self._listen_locally(self._config.socket)]
        if self._config.address:
            addresses.append(self._listen_tcp(self._config.address))
        await self._server.start()
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return addresses

    def _listen_locally(self, path: Path) -> str:
        # The lock is ours: whoever made a socket that is still there is gone.
        path.unlink(missing_ok=True)
        if len(os.fsencode(path)) <= 100:
            where = f"unix:{path}"
        else:
            # A socket's name has at most 107 bytes; a longer one is reached from its directory.
            os.chdir(path.parent)
            where = f"unix:{path.name}"
        try:
            self._server.add_insecure_port(where)
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {path}: {error}") from error
        return f"unix:{path}"

    def _listen_tcp(self, address: str) -> str:
        tls = self._config.tls
        if tls is None:
            raise ConfigError(
                "address: a TCP listener needs [tls] with certificate and key; "
                "without it tokens would travel in clear"
            )
        try:
            pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
            ca = tls.client_ca.read_bytes() if tls.client_ca else None
        except OSError as error:
            raise ConfigError(f"tls: {error.filename}: {error.strerror}") from error
        credentials = grpc.ssl_server_credentials(
            [pair], root_certificates=ca, require_client_auth=ca is not None
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigError(f"address: cannot listen on {address}: {error}") from error
        host = address.rpartition(":")[0]
        return f"{host}:{port}"

    def _not_serving(self) -> None:
        """Draining: streams and health checks hear of it, calls under way go on."""
        import asyncio

        self._draining = asyncio.ensure_future(self._health.enter_graceful_shutdown())

    async def stop(self, grace: float) -> None:
        await self._server.stop(grace)
