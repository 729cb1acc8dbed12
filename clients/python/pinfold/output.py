"""Reading the output of a call: by offset, so that a lost connection loses nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pinfold.answers import OutputChunk
from pinfold.connection import Connection
from pinfold.errors import InvalidRequestError
from pinfold.v1 import call_pb2, call_service_pb2

_STREAMS = {
    None: call_pb2.OutputStream.OUTPUT_STREAM_UNSPECIFIED,
    "out": call_pb2.OutputStream.OUTPUT_STREAM_OUT,
    "err": call_pb2.OutputStream.OUTPUT_STREAM_ERR,
}


async def read_output(
    connection: Connection,
    agent_id: str,
    call_id: str,
    *,
    offset: int = 0,
    follow: bool = True,
    until_end: bool = True,
    stream: str | None = None,
    limit: int = 0,
) -> AsyncIterator[OutputChunk]:
    """See `Agent.output`."""
    if stream not in _STREAMS:
        raise InvalidRequestError(
            f"no such stream: {stream!r} (expected 'out', 'err' or None)", reason="INVALID_STREAM"
        )
    position = offset
    read = 0

    def request() -> call_service_pb2.ReadOutputRequest | None:
        if limit and read >= limit:
            return None
        return call_service_pb2.ReadOutputRequest(
            agent_id=agent_id,
            call_id=call_id,
            offset=position,
            follow=follow,
            until_end=until_end,
            stream=_STREAMS[stream],
            limit=limit - read if limit else 0,
        )

    async for response in connection.stream(connection.calls.ReadOutput, request):
        if response.data or response.dropped:
            chunk = OutputChunk.read(response)
            position = chunk.end
            read += len(chunk.data)
            yield chunk
