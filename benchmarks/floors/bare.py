"""The contract with nothing behind it: grpc.aio and uvloop, no state, no log, no processes.

   python -m benchmarks.floors.bare SOCKET

- GetInfo answers at once.
- Wait parks until CancelCall, which releases all waits; with a call_id only the newest.
- ReadOutput sends `limit` bytes in messages of `offset` bytes.
- Watch sends the messages of the file that `filter.call_id` names, each to every watcher.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from pinfold.v1 import (
    call_pb2,
    call_service_pb2,
    supervisor_service_pb2,
    watch_service_pb2,
)

OPTIONS = [
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ("grpc.max_concurrent_streams", 200_000),
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.max_send_message_length", 32 << 20),
    ("grpc.so_reuseport", 0),
]
_LENGTH = struct.Struct("<I")


def write_messages(path: Path, messages: list[bytes]) -> None:
    """The file of a bare Watch."""
    path.write_bytes(b"".join(_LENGTH.pack(len(message)) + message for message in messages))


@cache
def read_messages(path: str) -> list[bytes]:
    data = Path(path).read_bytes()
    messages, at = [], 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        messages.append(data[at : at + length])
        at += length
    return messages


class Bare:
    def __init__(self) -> None:
        self._parked: list[asyncio.Future[None]] = []

    async def GetInfo(
        self, request: supervisor_service_pb2.GetInfoRequest, context: object
    ) -> supervisor_service_pb2.GetInfoResponse:
        return supervisor_service_pb2.GetInfoResponse(
            version="0", pid=os.getpid(), parked_waits=len(self._parked)
        )

    async def Wait(
        self, request: call_service_pb2.WaitRequest, context: object
    ) -> call_service_pb2.WaitResponse:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(future)
        await future
        return call_service_pb2.WaitResponse(
            wait_id=request.wait_id, outcome=call_service_pb2.WAIT_OUTCOME_INTERRUPTED
        )

    async def CancelCall(
        self, request: call_service_pb2.CancelCallRequest, context: object
    ) -> call_service_pb2.CancelCallResponse:
        first = -1 if request.call_id else 0
        parked, self._parked = self._parked[first:], self._parked[:first]
        for future in parked:
            if not future.done():
                future.set_result(None)
        return call_service_pb2.CancelCallResponse()

    async def ReadOutput(
        self, request: call_service_pb2.ReadOutputRequest, context: object
    ) -> AsyncIterator[call_service_pb2.ReadOutputResponse]:
        piece = bytes(request.offset)
        for offset in range(0, request.limit, request.offset):
            yield call_service_pb2.ReadOutputResponse(
                stream=call_pb2.OUTPUT_STREAM_OUT, offset=offset, data=piece
            )

    async def Watch(
        self, request: watch_service_pb2.WatchRequest, context: object
    ) -> AsyncIterator[bytes]:
        for message in read_messages(request.filter.call_id):
            yield message


def _handlers(bare: Bare) -> list[grpc.GenericRpcHandler]:
    def serialize(message: Any) -> bytes:
        return message if isinstance(message, bytes) else bytes(message.SerializeToString())

    def unary(method: Any, request: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(method, request.FromString, serialize)

    def stream(method: Any, request: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(method, request.FromString, serialize)

    services: dict[str, dict[str, Any]] = {
        "SupervisorService": {
            "GetInfo": unary(bare.GetInfo, supervisor_service_pb2.GetInfoRequest)
        },
        "CallService": {
            "Wait": unary(bare.Wait, call_service_pb2.WaitRequest),
            "CancelCall": unary(bare.CancelCall, call_service_pb2.CancelCallRequest),
            "ReadOutput": stream(bare.ReadOutput, call_service_pb2.ReadOutputRequest),
        },
        "WatchService": {"Watch": stream(bare.Watch, watch_service_pb2.WatchRequest)},
    }
    make: Callable[..., grpc.GenericRpcHandler] = grpc.method_handlers_generic_handler
    return [make(f"pinfold.v1.{name}", methods) for name, methods in services.items()]


async def main(socket: str) -> None:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(_handlers(Bare()))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
