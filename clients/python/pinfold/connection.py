"""One connection: the stubs of all services, and RPCs that survive a restart of the supervisor."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar, cast

from google.protobuf.message import Message
from grpc import aio

from pinfold.address import Address, Target
from pinfold.channel import Tls, open_channel
from pinfold.errors import PinfoldError, UnavailableError, from_rpc
from pinfold.retry import Outage
from pinfold.v1 import (
    agent_service_pb2_grpc,
    call_service_pb2_grpc,
    supervisor_service_pb2_grpc,
    task_service_pb2_grpc,
    tool_service_pb2_grpc,
    watch_service_pb2_grpc,
)

if TYPE_CHECKING:
    Calls = call_service_pb2_grpc.CallServiceAsyncStub
    Agents = agent_service_pb2_grpc.AgentServiceAsyncStub
    Tasks = task_service_pb2_grpc.TaskServiceAsyncStub
    Tools = tool_service_pb2_grpc.ToolServiceAsyncStub
    Watches = watch_service_pb2_grpc.WatchServiceAsyncStub
    Supervisor = supervisor_service_pb2_grpc.SupervisorServiceAsyncStub

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Connection:
    """Connects with its first RPC, on the event loop that makes it.

    `patience`: seconds to go on trying when the supervisor can't be reached. `deadline`:
    seconds that an RPC that answers at once may take; those that park have none.
    """

    def __init__(
        self,
        address: Address,
        *,
        token: str = "",
        tls: Tls | None = None,
        patience: float = 30.0,
        deadline: float = 60.0,
    ) -> None:
        self.address = address
        self.patience = patience
        self.deadline = deadline
        self._tls = tls
        self._token = token
        self._metadata = (("authorization", f"Bearer {token}"),) if token else None
        self._target: Target | None = None
        self._channel: aio.Channel | None = None
        self._stubs: dict[object, object] = {}
        self._closed = False

    @property
    def channel(self) -> aio.Channel:
        if self._closed:
            raise UnavailableError("the client is closed", reason="CLIENT_CLOSED")
        if self._channel is None:
            self._target = Target(self.address)
            self._channel = open_channel(self.address, self._target, self._tls, self._token)
        return self._channel

    async def close(self) -> None:
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        target, self._target = self._target, None
        if target is not None:
            target.close()

    # The stub classes have one name for both kinds of channel; see their types.

    @property
    def calls(self) -> Calls:
        return cast("Calls", self._stub(call_service_pb2_grpc.CallServiceStub))

    @property
    def agents(self) -> Agents:
        return cast("Agents", self._stub(agent_service_pb2_grpc.AgentServiceStub))

    @property
    def tasks(self) -> Tasks:
        return cast("Tasks", self._stub(task_service_pb2_grpc.TaskServiceStub))

    @property
    def tools(self) -> Tools:
        return cast("Tools", self._stub(tool_service_pb2_grpc.ToolServiceStub))

    @property
    def watches(self) -> Watches:
        return cast("Watches", self._stub(watch_service_pb2_grpc.WatchServiceStub))

    @property
    def supervisor(self) -> Supervisor:
        return cast("Supervisor", self._stub(supervisor_service_pb2_grpc.SupervisorServiceStub))

    def _stub(self, kind: Callable[[aio.Channel], object]) -> object:
        channel = self.channel
        if (stub := self._stubs.get(kind)) is None:
            stub = self._stubs[kind] = kind(channel)
        return stub

    async def unary(
        self,
        method: aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        parks: bool = False,
        repeat: bool = True,
        outage: Outage | None = None,
    ) -> Response:
        """One RPC, sent again after a lost connection unless `repeat` is false.

        `parks`: it may take as long as it likes.
        """
        outage = outage or Outage(self.patience if repeat else 0.0)
        timeout = None if parks else self.deadline
        while True:
            started = time.monotonic()
            try:
                return await method(request, timeout=timeout, metadata=self._metadata)
            except aio.AioRpcError as failure:
                await self.bear(outage, failure, started)

    async def stream(
        self,
        method: aio.UnaryStreamMultiCallable[Request, Response],
        request: Callable[[], Request | None],
    ) -> AsyncIterator[Response]:
        """A server stream, opened again after a lost connection.

        `request` makes the request that goes on where the last one stopped, or `None` when
        there is nothing left to ask for.
        """
        outage = Outage(self.patience)
        while (message := request()) is not None:
            started = time.monotonic()
            call = method(message, metadata=self._metadata)
            try:
                async for response in call:
                    outage.over()
                    yield response
                return
            except aio.AioRpcError as failure:
                await self.bear(outage, failure, started)
            finally:
                call.cancel()

    async def attempt(
        self, method: aio.UnaryUnaryMultiCallable[Request, Response], request: Request
    ) -> Response:
        """One attempt of an RPC that parks."""
        return await method(request, metadata=self._metadata)

    async def bear(self, outage: Outage, failure: aio.AioRpcError, started: float) -> None:
        """Sleeps until the next attempt, or raises what `failure` means."""
        try:
            await outage.bear(failure, started)
        except UnavailableError as error:
            if error.reason:
                raise
            raise unreachable(self.address, failure) from failure


def unreachable(address: Address, failure: aio.AioRpcError) -> PinfoldError:
    """Not there: said so that one knows what to do."""
    error = from_rpc(failure)
    hint = "start it with `pinfold serve`, or see --state and PINFOLD_STATE"
    if address.socket is None:
        hint = f"{error.message}"
    return UnavailableError(f"no supervisor at {address}: {hint}", reason="")
