"""All RPCs of the contract, found by reflection over its descriptors and called by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

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

METHODS: list[MethodDescriptor] = [
    method
    for module in _MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


class Outcome(NamedTuple):
    code: grpc.StatusCode
    reason: str
    message: str
    responses: list[Message]


async def call(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    request: Message,
    *,
    token: str = "",
    timeout: float = 1.0,
) -> Outcome:
    """One RPC of any kind, with one request. DEADLINE_EXCEEDED means that it parks."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    metadata: Sequence[tuple[str, str]] = (("authorization", f"Bearer {token}"),) if token else ()
    serialize = type(request).SerializeToString
    parse = GetMessageClass(method.output_type).FromString
    responses: list[Message] = []
    try:
        if method.client_streaming:
            stream = channel.stream_stream(path, serialize, parse)(
                iter([request]), metadata=metadata, timeout=timeout
            )
            responses.extend([response async for response in stream])
        elif method.server_streaming:
            stream = channel.unary_stream(path, serialize, parse)(
                request, metadata=metadata, timeout=timeout
            )
            # One by one: what came before a refusal is looked at too.
            async for response in stream:
                responses += [response]
        else:
            responses.append(
                await channel.unary_unary(path, serialize, parse)(
                    request, metadata=metadata, timeout=timeout
                )
            )
    except grpc.aio.AioRpcError as error:
        return Outcome(error.code(), _reason(error), error.details() or "", responses)
    except asyncio.CancelledError:
        return Outcome(grpc.StatusCode.CANCELLED, "", "", responses)
    return Outcome(grpc.StatusCode.OK, "", "", responses)


def _reason(error: grpc.aio.AioRpcError) -> str:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info.reason
    return ""
