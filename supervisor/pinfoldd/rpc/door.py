"""The door: who is calling, what they may touch, and how refusals look.

Every RPC of every service passes `Door.guard`, and its rights are read off its request: a
request with an `agent_id` is about that agent, and anything else is for operators unless it is
named in `_OPEN`. A new RPC is closed until someone decides about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pinfoldd.core.model import State
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.rpc import errors
from pinfoldd.rpc.tokens import Tokens

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Principal(NamedTuple):
    """Who is calling: an operator, or (agent not empty) an agent and what is below it."""

    agent: str = ""

    @property
    def operator(self) -> bool:
        return not self.agent

    def may(self, state: State, agent_id: str) -> bool:
        """Whether the agent is the caller's own or below it."""
        if not self.agent:
            return True
        current: str = agent_id
        while current:
            if current == self.agent:
                return True
            agent = state.agents.get(current)
            if agent is None:
                return False
            current = agent.parent
        return False


FAULT = "a fault of the supervisor; see its log"
_HEAR_SECONDS = 1.0
OPERATOR = Principal()
caller: ContextVar[Principal] = ContextVar("caller", default=OPERATOR)

# Methods that agents may call although their request names no agent: they filter by the
# caller themselves.
_OPEN = frozenset(
    {
        "pinfold.v1.SupervisorService.GetInfo",
        "pinfold.v1.WatchService.Watch",
        "pinfold.v1.CallService.WaitStream",
        "pinfold.v1.AgentService.ListAgents",
    }
)
# Their agent_id may be empty: "all that the caller may see".
_EMPTY_MEANS_ALL = frozenset(
    {
        "pinfold.v1.CallService.ListCalls",
        "pinfold.v1.TaskService.ListTasks",
        "pinfold.v1.ToolService.ListTools",
    }
)
# They name an agent, but are an operator's.
_OPERATOR_ONLY = frozenset(
    {
        "pinfold.v1.AgentService.OpenAgent",
        "pinfold.v1.SupervisorService.CreateToken",
    }
)


async def _heard_out(requests: AsyncIterator[Any]) -> None:
    """A client whose first message is refused while it is still being sent is told of a broken
    stream by some libraries, instead of the reason."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(anext(requests, None), _HEAR_SECONDS)


class Door:
    """Makes gRPC handlers of servicers' methods."""

    def __init__(self, state: Callable[[], State], tokens: Tokens, *, local_is_operator: bool):
        self._state = state
        self._tokens = tokens
        self._local_is_operator = local_is_operator

    def handlers(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """The handler of one service. Each method of the contract must be there."""
        methods = {}
        for method in service.methods:
            behaviour = getattr(servicer, method.name)
            methods[method.name] = self._handler(method, behaviour)
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def _handler(self, method: MethodDescriptor, behaviour: Any) -> grpc.RpcMethodHandler[Any, Any]:
        request_class = GetMessageClass(method.input_type)

        def serialize(response: Message | bytes) -> bytes:
            if isinstance(response, bytes):
                return response
            return response.SerializeToString()

        kinds = (method.client_streaming, method.server_streaming)
        if kinds == (False, False):
            return grpc.unary_unary_rpc_method_handler(
                self._unary(method, behaviour), request_class.FromString, serialize
            )
        if kinds == (False, True):
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, behaviour), request_class.FromString, serialize
            )
        if kinds == (True, True):
            return grpc.stream_stream_rpc_method_handler(
                self._stream(method, behaviour), request_class.FromString, serialize
            )
        raise AssertionError(f"{method.full_name}: no such kind of method in this contract")

    def _unary(
        self, method: MethodDescriptor, behaviour: Callable[[Any], Awaitable[Message]]
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        name = method.full_name
        empty = GetMessageClass(method.output_type)

        async def handle(request: Any, context: Context) -> Any:
            try:
                self._enter(name, request, context)
                return await behaviour(request)
            except Rejected as error:
                await errors.abort(context, error)
            except asyncio.CancelledError:
                # The view is over (client gone, deadline, server stopping). What it looked at
                # goes on, and grpc has nobody to answer.
                return empty()
            except grpc.aio.AbortError:
                raise
            except Exception:
                log.exception("%s failed", name)
                await context.abort(grpc.StatusCode.INTERNAL, FAULT)

        return handle

    def _stream(
        self, method: MethodDescriptor, behaviour: Callable[[Any], AsyncIterator[Any]]
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        name = method.full_name
        many = method.client_streaming

        async def handle(request: Any, context: Context) -> AsyncIterator[Any]:
            entered = False
            try:
                self._enter(name, None if many else request, context)
                entered = True
                async for response in behaviour(request):
                    yield response
            except Rejected as error:
                if many and not entered:
                    await _heard_out(request)
                await errors.abort(context, error)
            except asyncio.CancelledError:
                return
            except grpc.aio.AbortError:
                raise
            except Exception:
                log.exception("%s failed", name)
                await context.abort(grpc.StatusCode.INTERNAL, FAULT)

        return handle

    # ------------------------------------------------------------ rights

    def _enter(self, method: str, request: Any, context: Context) -> None:
        principal = self._principal(context)
        caller.set(principal)
        if principal.operator:
            return
        if method in _OPERATOR_ONLY:
            raise Rejected(Reason.PERMISSION_DENIED)
        agent_id = getattr(request, "agent_id", None)
        if agent_id is None:
            if method not in _OPEN:
                raise Rejected(Reason.PERMISSION_DENIED)
            return
        if not agent_id and method in _EMPTY_MEANS_ALL:
            return
        self.check(principal, agent_id)

    def check(self, principal: Principal, agent_id: str) -> None:
        """Another's agent does not exist: the same answer as for one that never was."""
        if not principal.may(self._state(), agent_id):
            raise Rejected(Reason.AGENT_UNKNOWN, agent_id=agent_id)

    def _principal(self, context: Context) -> Principal:
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                text = value if isinstance(value, str) else value.decode("latin-1")
                scheme, _, token = text.partition(" ")
                agent = self._tokens.check(token.strip()) if scheme.lower() == "bearer" else None
                if agent is None:
                    raise Rejected(Reason.UNAUTHENTICATED)
                return Principal(agent)
        if self._local_is_operator and context.peer().startswith("unix:"):
            return OPERATOR
        raise Rejected(Reason.UNAUTHENTICATED)
