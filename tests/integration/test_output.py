"""Output: every byte, in bounded memory and on a bounded disk, whoever reads it or does not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from integration.harness import Shells, memory
from pinfold import OutputChunk
from pinfold.errors import NotFoundError
from pinfold.v1 import call_service_pb2

MiB = 1 << 20


def limits(output_bytes: int) -> call_service_pb2.CallLimits:
    return call_service_pb2.CallLimits(output_bytes=output_bytes)


async def chunks_of(shells: Shells, call_id: str, **options: object) -> list[OutputChunk]:
    return [chunk async for chunk in shells.agent.output(call_id, **options)]


def spool_bytes(shells: Shells) -> int:
    """What the spools of the supervisor take on the disk."""
    spool = shells.supervisor.state / "spool"
    return sum(path.stat().st_blocks * 512 for path in spool.iterdir())


async def watermark(shells: Shells, call_id: str, size: int) -> int:
    """Returns when so many bytes have been received."""
    async for event in shells.client.events(1, call_id=call_id, names=["call.output"]):
        if event.output_grew.extent.size >= size:
            return event.output_grew.extent.size
    raise AssertionError("the log ended")


async def test_yes_is_bounded_and_counted(shells: Shells) -> None:
    before = spool_bytes(shells)
    call_id = await shells.start("exec yes", limits=limits(MiB), grace=0.2)
    await watermark(shells, call_id, 20 * MiB)
    info = await shells.client.info()
    resident = memory(info.pid), memory(info.keeper_pid)
    size = (await shells.agent.get(call_id)).output.size
    await watermark(shells, call_id, size + 200 * MiB)
    for was, pid in zip(resident, (info.pid, info.keeper_pid)):
        assert memory(pid) - was < 8 * MiB
    assert spool_bytes(shells) - before < 16 * MiB
    await shells.cancel(call_id)
    result = await shells.ended(call_id)
    output = result.message.output
    assert output.size > 220 * MiB
    assert output.lines == output.size // 2
    chunks = await chunks_of(shells, call_id)
    kept = b"".join(chunk.data for chunk in chunks)
    assert len(kept) + output.dropped == output.size
    assert sum(chunk.dropped for chunk in chunks) == output.dropped
    assert len(kept) <= MiB
    assert len(kept) >= MiB * 3 // 4
    position = 0
    for chunk in chunks:
        assert chunk.offset == position
        assert chunk.data == (b"y\ny" if position % 2 == 0 else b"\ny\n")[:2] * (
            len(chunk.data) // 2
        ) + (b"y" if position % 2 == 0 else b"\n") * (len(chunk.data) % 2)
        position = chunk.end
    assert position == output.size
    assert f"dropped_bytes: {output.dropped}" in result.text


async def test_a_reader_that_stops_reading(shells: Shells) -> None:
    call_id = await shells.start("exec yes", limits=limits(64 * MiB), grace=0.2)
    request = call_service_pb2.ReadOutputRequest(agent_id=shells.id, call_id=call_id, follow=True)
    stalled = shells.client.connection.calls.ReadOutput(request)
    first = await stalled.read()
    assert first.data.startswith(b"y\n")
    await watermark(shells, call_id, 20 * MiB)
    info = await shells.client.info()
    was = memory(info.pid)
    size = (await shells.agent.get(call_id)).output.size
    await watermark(shells, call_id, size + 100 * MiB)
    assert memory(info.pid) - was < 16 * MiB
    # Another one is served as ever.
    begun = time.monotonic()
    assert (await shells.run("echo quick")).text.endswith("out quick")
    assert time.monotonic() - begun < 2.0
    await shells.cancel(call_id)
    await shells.ended(call_id)
    # What it gets now is whole: no byte twice, the gap named.
    position = len(first.data)
    while (response := await stalled.read()) is not grpc.aio.EOF:
        if response.data or response.dropped:
            assert response.offset == position
            position += len(response.data) + response.dropped
        else:
            assert response.extent.size == position


async def test_ten_megabytes_without_a_newline(shells: Shells) -> None:
    result = await shells.run("head -c 10000000 /dev/zero | tr '\\0' a; echo; echo tail")
    assert result.message.output.size == 10_000_006
    assert result.text.endswith("\nout tail")
    assert "total_bytes: 10000006" in result.text
    data = await shells.output(result.call_id)
    assert data == b"a" * 10_000_000 + b"\ntail\n"


async def test_seq_200_times(shells: Shells) -> None:
    expected = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    assert len(expected) == 588_895
    for _ in range(50):
        results = await asyncio.gather(*(shells.run("seq 1 100000") for _ in range(4)))
        for result in results:
            assert result.message.output.size == 588_895
            assert await shells.output(result.call_id) == expected


async def test_the_end_of_a_long_output_and_the_count_of_the_rest(shells: Shells) -> None:
    script = "seq 1 1000000; echo FATAL >&2; exit 1"
    result = await shells.run(script, limits=limits(MiB))
    everything = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode() + b"FATAL\n"
    output = result.message.output
    assert output.size == len(everything)
    assert output.lines == 1_000_001
    assert result.exit_code == 1
    assert "err FATAL" in result.text
    assert "out 1\n" in result.text
    assert f"total_lines: 1000001\ntotal_bytes: {len(everything)}\n" in result.text
    assert f"dropped_bytes: {output.dropped}\n" in result.text
    gaps = 0
    for chunk in await chunks_of(shells, result.call_id):
        assert everything[chunk.offset : chunk.offset + len(chunk.data)] == chunk.data
        gaps += chunk.dropped
    assert gaps == output.dropped > 0


async def test_a_character_in_two_writes(shells: Shells) -> None:
    result = await shells.run(r"printf '\342\224'; sleep 0.3; printf '\200\n'")
    assert result.text.endswith("\n\nout ─")
    assert "valid_utf8" not in result.text


async def test_bytes_that_are_not_text(shells: Shells) -> None:
    result = await shells.run(r"printf '\xf0\x28\x8c\x28'; printf 'a\0b'")
    assert await shells.output(result.call_id) == b"\xf0\x28\x8c\x28a\0b"
    assert "valid_utf8: false\n" in result.text
    assert "out(invalid-utf8,no_nl) " in result.text
    result = await shells.run(r"printf 'x\xff\n'; printf 'y\xfe' >&2")
    assert result.text == (
        "valid_utf8: false\nstatus: 0\n\nout(invalid-utf8) x\ufffd\nerr(invalid-utf8,no_nl) y\ufffd"
    )


async def test_streams_that_are_opened_again(shells: Shells) -> None:
    result = await shells.run("echo one; echo two >/dev/stdout; echo three")
    assert result.text == "status: 0\n\nout one\nout two\nout three"


async def test_line_ends(shells: Shells) -> None:
    result = await shells.run(r"printf 'a\r\nb\rc\n'")
    assert result.text == "status: 0\n\nout(crlf) a\nout(cr) b\nout c"


async def test_more_lines_than_are_shown(shells: Shells) -> None:
    result = await shells.run("seq 1 4002")
    head, body = result.text.split("\n\n")
    assert head.startswith("truncated: true\ntotal_lines: 4002\n")
    lines = body.split("\n")
    assert len(lines) == 2001
    assert (lines[999], lines[1000], lines[1001]) == ("out 1000", "...", "out 3003")


async def test_both_streams_in_the_order_of_arrival(shells: Shells) -> None:
    result = await shells.run(
        "for i in 1 2 3; do echo o$i; sleep 0.02; echo e$i >&2; sleep 0.02; done"
    )
    assert result.text == "status: 0\n\nout o1\nerr e1\nout o2\nerr e2\nout o3\nerr e3"
    out = await shells.output(result.call_id, stream="out")
    err = await shells.output(result.call_id, stream="err")
    assert (out, err) == (b"o1\no2\no3\n", b"e1\ne2\ne3\n")


# ---------------------------------------------------------------- ReadOutput


async def test_by_offset_and_limit(shells: Shells) -> None:
    result = await shells.run("seq 1 1000")
    everything = await shells.output(result.call_id)
    for offset, limit in (
        (0, 1),
        (1, 10),
        (100, 0),
        (len(everything) - 1, 0),
        (len(everything), 0),
        (len(everything) + 5, 7),
    ):
        wanted = everything[offset : offset + limit] if limit else everything[offset:]
        got = await shells.output(result.call_id, offset=offset, limit=limit, follow=False)
        assert got == wanted
    by_task = await shells.output("shell-1", follow=False)
    assert by_task == everything


async def test_without_follow_what_there_is_now(shells: Shells) -> None:
    call_id = await shells.start("echo first; sleep 1000", grace=0.1)
    await shells.until_output(call_id)
    assert await shells.output(call_id, follow=False) == b"first\n"


async def test_many_followers_see_the_same(shells: Shells) -> None:
    call_id = await shells.start("for i in {1..40}; do echo $i; sleep 0.01; done")
    followers = [shells.output(call_id) for _ in range(20)]
    seen = await asyncio.gather(*followers)
    assert set(seen) == {"".join(f"{n}\n" for n in range(1, 41)).encode()}


async def test_until_end_does_not_wait_for_leftovers(shells: Shells) -> None:
    call_id = await shells.detach("(sleep 1000; echo never) & echo now")
    assert await shells.output(call_id, until_end=True) == b"now\n"


async def test_a_follower_of_a_call_that_ended_long_ago(shells: Shells) -> None:
    result = await shells.run("true")
    for until_end in (True, False):
        assert await shells.output(result.call_id, until_end=until_end) == b""


async def test_a_follower_of_a_call_that_could_not_start(shells: Shells) -> None:
    result = await shells.run("true", cwd="/nonexistent")
    for until_end in (True, False):
        assert await shells.output(result.call_id, until_end=until_end) == b""


async def test_a_follower_of_a_call_that_is_queued(shells: Shells) -> None:
    agent = await shells.client.open_agent(max_running_calls=1)
    first = (await agent.start("sleep 0.5", background=True)).call_id
    second = (await agent.start("echo later", background=True)).call_id
    assert b"".join([chunk.data async for chunk in agent.output(second)]) == b"later\n"
    assert (await agent.ended(first)).ok
    await agent.stop()


async def test_errors(shells: Shells) -> None:
    with pytest.raises(NotFoundError, match="unknown tool call: `nope`"):
        await shells.output("nope")
    result = await shells.run("true")
    for field in ({"offset": -1}, {"limit": -1}):
        request = call_service_pb2.ReadOutputRequest(
            agent_id=shells.id, call_id=result.call_id, **field
        )
        stream = shells.client.connection.calls.ReadOutput(request)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "must not be negative" in str(caught.value.details())


async def test_the_last_message_says_where_things_stand(shells: Shells) -> None:
    result = await shells.run("echo all")
    request = call_service_pb2.ReadOutputRequest(agent_id=shells.id, call_id=result.call_id)
    responses = [r async for r in shells.client.connection.calls.ReadOutput(request)]
    assert responses[0].data == b"all\n"
    assert responses[0].HasField("time")
    extent = responses[-1].extent
    assert (extent.size, extent.lines, extent.dropped, extent.closed) == (4, 1, 0, True)


async def test_the_spool_is_private(shells: Shells) -> None:
    await shells.run("echo secret")
    for path in [shells.supervisor.state, *Path(shells.supervisor.state / "spool").iterdir()]:
        assert path.stat().st_mode & 0o077 == 0
