"""A supervisor that answers what a test tells it to: real gRPC, no processes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from pinfold.v1 import (
    agent_service_pb2,
    call_service_pb2,
    supervisor_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    watch_service_pb2,
)

_MODULES = (
    agent_service_pb2,
    call_service_pb2,
    supervisor_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    watch_service_pb2,
)

Unary = Callable[[Any, aio.ServicerContext], Awaitable[Message]]
Stream = Callable[[Any, aio.ServicerContext], AsyncIterator[Message]]


class Fake:
    """Methods are set by name: `fake.on("Wait", handler)`. Requests are kept in `requests`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
        self.socket = self.directory / "pinfold.sock"
        self.requests: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self._handlers: dict[str, Unary | Stream] = {}
        self._server: aio.Server | None = None

    def on(self, method: str, handler: Unary | Stream) -> None:
        self._handlers[method] = handler

    def sent(self, method: str) -> list[Any]:
        return [request for name, request in self.requests if name == method]

    async def start(self) -> None:
        self._server = aio.server()
        for module in _MODULES:
            for service in module.DESCRIPTOR.services_by_name.values():
                handlers = {
                    method.name: self._handler(module, method) for method in service.methods
                }
                self._server.add_generic_rpc_handlers(
                    (grpc.method_handlers_generic_handler(service.full_name, handlers),)
                )
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def close(self) -> None:
        await self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _handler(self, module: Any, method: Any) -> grpc.RpcMethodHandler:
        from google.protobuf import message_factory

        request_type = message_factory.GetMessageClass(method.input_type)

        def note(request: Message, context: aio.ServicerContext) -> Any:
            self.requests.append((method.name, request))
            self.metadata.append(dict(context.invocation_metadata() or ()))
            return self._handlers.get(method.name)

        if method.server_streaming:

            async def stream(request: Any, context: aio.ServicerContext) -> AsyncIterator[Message]:
                handler = note(request, context)
                if handler is None:
                    await context.abort(grpc.StatusCode.UNIMPLEMENTED, method.name)
                async for response in handler(request, context):
                    yield response

            return grpc.unary_stream_rpc_method_handler(
                stream,
                request_deserializer=request_type.FromString,
                response_serializer=lambda response: response.SerializeToString(),
            )

        async def unary(request: Any, context: aio.ServicerContext) -> Message:
            handler = note(request, context)
            if handler is None:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, method.name)
            answer: Message = await handler(request, context)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            unary,
            request_deserializer=request_type.FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )


async def refuse(
    context: aio.ServicerContext,
    code: grpc.StatusCode,
    message: str,
    reason: str = "",
    metadata: dict[str, str] | None = None,
    retry_after: float | None = None,
) -> None:
    """Ends the RPC with a status that carries details, as the supervisor does."""
    details = []
    if reason:
        info = error_details_pb2.ErrorInfo(reason=reason, domain="pinfold", metadata=metadata)
        packed = any_pb2.Any()
        packed.Pack(info)
        details.append(packed)
    if retry_after is not None:
        delay = duration_pb2.Duration(nanos=int(retry_after * 1e9))
        packed = any_pb2.Any()
        packed.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        details.append(packed)
    status = status_pb2.Status(code=code.value[0], message=message, details=details)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, message)


def sequence(*steps: Any) -> Unary:
    """A handler that takes one step per request: a message, or a coroutine function that is
    called with the context. The last step is repeated."""
    left = list(steps)

    async def handle(request: Any, context: aio.ServicerContext) -> Message:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, Message):
            return step
        answer: Message = await step(context)
        return answer

    return handle


async def drop(context: aio.ServicerContext) -> None:
    """As when the connection is lost."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


async def forever(*_: object) -> None:
    await asyncio.Event().wait()
