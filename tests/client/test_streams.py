"""Output by offset and events by revision, over connections that break."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from fake import Fake, drop, refuse, sequence

from pinfold import Client, errors
from pinfold.v1 import call_pb2, call_service_pb2, watch_service_pb2

OUT = call_pb2.OUTPUT_STREAM_OUT
ERR = call_pb2.OUTPUT_STREAM_ERR
DATA = bytes(range(256)) * 40


async def test_output_goes_on_at_its_offset(fake: Fake, fake_client: Client) -> None:
    async def read(
        request: call_service_pb2.ReadOutputRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[call_service_pb2.ReadOutputResponse]:
        offset = request.offset
        for _ in range(3):
            piece = DATA[offset : offset + 1000]
            if not piece:
                extent = call_pb2.OutputExtent(size=len(DATA), closed=True)
                yield call_service_pb2.ReadOutputResponse(extent=extent)
                return
            yield call_service_pb2.ReadOutputResponse(stream=OUT, offset=offset, data=piece)
            offset += len(piece)
        await drop(context)

    fake.on("ReadOutput", read)
    chunks = [chunk async for chunk in fake_client.agent("a").output("c")]
    assert b"".join(chunk.data for chunk in chunks) == DATA
    assert [request.offset for request in fake.sent("ReadOutput")] == [0, 3000, 6000, 9000]


async def test_dropped_bytes_count(fake: Fake, fake_client: Client) -> None:
    async def read(
        request: call_service_pb2.ReadOutputRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[call_service_pb2.ReadOutputResponse]:
        if request.offset == 0:
            yield call_service_pb2.ReadOutputResponse(stream=ERR, offset=0, data=b"abc")
            yield call_service_pb2.ReadOutputResponse(stream=OUT, offset=3, dropped=97)
            await drop(context)
        assert request.offset == 100
        yield call_service_pb2.ReadOutputResponse(stream=OUT, offset=100, data=b"z")

    fake.on("ReadOutput", read)
    chunks = [chunk async for chunk in fake_client.agent("a").output("c")]
    assert [(c.stream, c.offset, c.data, c.dropped) for c in chunks] == [
        ("err", 0, b"abc", 0),
        ("out", 3, b"", 97),
        ("out", 100, b"z", 0),
    ]


async def test_the_limit_holds_over_a_repeat(fake: Fake, fake_client: Client) -> None:
    async def read(
        request: call_service_pb2.ReadOutputRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[call_service_pb2.ReadOutputResponse]:
        yield call_service_pb2.ReadOutputResponse(
            stream=OUT, offset=request.offset, data=b"x" * min(5, request.limit)
        )
        await drop(context)

    fake.on("ReadOutput", read)
    chunks = [chunk async for chunk in fake_client.agent("a").output("c", limit=8)]
    assert sum(len(chunk.data) for chunk in chunks) == 8
    assert [request.limit for request in fake.sent("ReadOutput")] == [8, 3]


async def test_leaving_early_ends_the_stream(fake: Fake, fake_client: Client) -> None:
    ended = False

    async def read(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        nonlocal ended
        try:
            while True:
                yield call_service_pb2.ReadOutputResponse(stream=OUT, data=b"y" * 65536)
        finally:
            ended = True

    fake.on("ReadOutput", read)
    output = fake_client.agent("a").output("c")
    async for _ in output:
        break
    await output.aclose()  # type: ignore[attr-defined]
    fake.on("GetCall", sequence(call_service_pb2.GetCallResponse()))
    for _ in range(100):
        await fake_client.agent("a").get("c")
        if ended:
            break
    assert ended


def events(*revisions: int) -> watch_service_pb2.WatchResponse:
    return watch_service_pb2.WatchResponse(
        events=[watch_service_pb2.Event(revision=revision) for revision in revisions]
    )


async def test_watch_goes_on_behind_what_was_seen(fake: Fake, fake_client: Client) -> None:
    async def watch(
        request: watch_service_pb2.WatchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[watch_service_pb2.WatchResponse]:
        start = request.start_revision
        if start == 0:
            snapshot = watch_service_pb2.Snapshot(calls=[call_pb2.Call(call_id="c")])
            yield watch_service_pb2.WatchResponse(snapshot=snapshot)
            if len(fake.requests) == 1:
                await drop(context)
            bookmark = watch_service_pb2.Bookmark(revision=9)
            yield watch_service_pb2.WatchResponse(bookmark=bookmark)
            await drop(context)
        elif start == 10:
            yield events(10, 11)
            yield watch_service_pb2.WatchResponse(progress=watch_service_pb2.Progress(revision=20))
            await drop(context)
        else:
            yield events(start)

    fake.on("Watch", watch)
    seen = [
        event.revision
        async for response in fake_client.watch(0, names=["call.*"])
        for event in response.events
    ]
    assert seen == [10, 11, 21]
    assert [request.start_revision for request in fake.sent("Watch")] == [0, 0, 10, 21]
    assert all(request.filter.names == ["call.*"] for request in fake.sent("Watch"))


async def test_a_revision_that_is_not_kept(fake: Fake, fake_client: Client) -> None:
    async def watch(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        await refuse(
            context,
            grpc.StatusCode.OUT_OF_RANGE,
            "compacted",
            reason="REVISION_COMPACTED",
            metadata={"oldest_revision": "12"},
        )
        yield events(1)

    fake.on("Watch", watch)
    with pytest.raises(errors.OutOfRangeError) as caught:
        async for _ in fake_client.events(3):
            pass
    assert caught.value.metadata["oldest_revision"] == "12"


async def test_ended_does_not_miss_an_end_before_the_snapshot(
    fake: Fake, fake_client: Client
) -> None:
    live = call_pb2.Call(call_id="c", state=call_pb2.CALL_STATE_RUNNING)
    done = call_pb2.Call(call_id="c", result=call_pb2.CallResult(call_id="c", error="x"))
    fake.on(
        "GetCall",
        sequence(
            call_service_pb2.GetCallResponse(call=live), call_service_pb2.GetCallResponse(call=done)
        ),
    )

    async def watch(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        yield watch_service_pb2.WatchResponse(bookmark=watch_service_pb2.Bookmark(revision=5))
        await drop(context)

    fake.on("Watch", watch)
    assert (await fake_client.agent("a").ended("c")).error == "x"


async def test_ended_by_event(fake: Fake, fake_client: Client) -> None:
    live = call_pb2.Call(call_id="c", state=call_pb2.CALL_STATE_RUNNING)
    done = call_pb2.Call(call_id="c", result=call_pb2.CallResult(call_id="c", error="x"))
    calls = [live, live, done]

    async def get(request: Any, context: Any) -> call_service_pb2.GetCallResponse:
        return call_service_pb2.GetCallResponse(call=calls.pop(0))

    async def watch(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        yield watch_service_pb2.WatchResponse(bookmark=watch_service_pb2.Bookmark(revision=5))
        ended = watch_service_pb2.CallEnded(result=done.result)
        yield watch_service_pb2.WatchResponse(
            events=[watch_service_pb2.Event(revision=6, call_ended=ended)]
        )

    fake.on("GetCall", get)
    fake.on("Watch", watch)
    assert (await fake_client.agent("a").ended("c")).error == "x"
