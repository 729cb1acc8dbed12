"""Stream tasks: each byte once, no character split, a read repeated is the same read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from pinfold.v1 import call_service_pb2
from support import Supervisor
from tasks.conftest import Open
from tasks.harness import NOTHING, Gate, Owner, owner_of

PIECE = 256 * 1024


async def test_a_read_gives_what_is_new_once(owner: Owner, gate: Gate, via: str) -> None:
    await owner.shell(f"echo line one; {gate}; echo line two")
    await owner.received("shell-1", 9)
    assert await owner.output("shell-1", via=via) == "line one\n[status: running]"
    assert await owner.output("shell-1", via=via) == NOTHING
    gate.open()
    await owner.finished("shell-1")
    assert await owner.output("shell-1", via=via) == "line two\n[status: completed]"
    assert await owner.output("shell-1", via=via) == "(no new output)\n[status: completed]"


async def test_both_ways_share_the_cursor(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo one; {gate}; echo two")
    await owner.received("shell-1", 4)
    typed = await owner.agent.task_output("shell-1")
    assert (typed.output, typed.cursor, typed.task.task_id) == ("one\n", 4, "shell-1")
    assert not typed.task.detail
    assert await owner.read("shell-1") == NOTHING
    gate.open()
    assert await owner.read("shell-1", wait=True) == "two\n[status: completed]"
    # Nothing of whose it is and who was told: those are the supervisor's own matters.
    assert {field.name for field in typed.task.DESCRIPTOR.fields} == {
        "task_id", "kind", "label", "status", "detail", "call_id", "agent_id",
    }  # fmt: skip


async def test_stderr_comes_after_a_mark(owner: Owner) -> None:
    for command, text in (
        ("printf out; echo err >&2", "out\n[stderr]\nerr\n"),
        ("echo out; printf err >&2", "out\n[stderr]\nerr\n"),
        ("echo err >&2", "[stderr]\nerr\n"),
        ("printf no-newline", "no-newline\n"),
        ("printf a; printf 1 >&2; sleep 0.1; printf b; printf 2 >&2", "ab\n[stderr]\n12\n"),
        ("printf '\\n\\n'", "\n\n"),
    ):
        answer = await owner.shell(command)
        task_id = answer.call.task_id
        assert await owner.read(task_id, wait=True) == f"{text}[status: completed]", command


async def test_a_character_is_not_split(owner: Owner, gates: Callable[[], Gate], via: str) -> None:
    first, second, third = gates(), gates(), gates()
    await owner.shell(
        f"printf 'a\\342'; {first}; printf '\\202'; {second}; printf '\\254b\\342'; {third}"
    )
    await owner.received("shell-1", 2)
    assert await owner.output("shell-1", via=via) == "a\n[status: running]"
    first.open()
    await owner.received("shell-1", 3)
    assert await owner.output("shell-1", via=via) == NOTHING
    second.open()
    await owner.received("shell-1", 6)
    assert await owner.output("shell-1", via=via) == "€b\n[status: running]"
    third.open()
    # Nothing can complete this one any more.
    assert await owner.output("shell-1", via=via, wait=True) == "\ufffd\n[status: completed]"


async def test_no_character_is_split_by_the_other_stream(owner: Owner, gate: Gate) -> None:
    await owner.shell(
        f"printf '\\303'; sleep 0.05; printf err >&2; {gate}; printf '\\251'; printf '!' >&2"
    )
    await owner.received("shell-1", 4)
    early = await owner.agent.task_output("shell-1")
    gate.open()
    late = await owner.agent.task_output("shell-1", wait=True)
    text = early.output + late.output
    assert text.count("é") == 1
    assert "\ufffd" not in text
    assert "".join(re.sub(r"é|\[stderr\]|\n", "", text)) == "err!"


async def test_undecodable_bytes_are_replaced_not_held(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"printf 'a\\377\\200b'; {gate}")
    await owner.received("shell-1", 4)
    assert await owner.read("shell-1") == "a\ufffd\ufffdb\n[status: running]"
    gate.open()
    await owner.finished("shell-1")


async def test_a_read_repeated_is_the_same(owner: Owner, gate: Gate, via: str) -> None:
    await owner.shell(f"printf 'one\\n\\303'; {gate}; printf '\\251\\n'; exit 7")
    await owner.received("shell-1", 5)
    first = await owner.output("shell-1", via=via, read_id="r1")
    assert first == "one\n[status: running]"
    assert await owner.output("shell-1", via=via, read_id="r1") == first
    gate.open()
    await owner.finished("shell-1")
    # Also after the end: the status that the read told.
    assert await owner.output("shell-1", via=via, read_id="r1") == first
    last = await owner.output("shell-1", via=via, read_id="r2", wait=True)
    assert last == "é\n[status: completed, exit code: 7]"
    for _ in range(3):
        assert await owner.output("shell-1", via=via, read_id="r2", wait=True) == last
    assert await owner.output("shell-1", via=via, read_id="r1") == first
    rest = await owner.output("shell-1", via=via)
    assert rest == "(no new output)\n[status: completed, exit code: 7]"


async def test_a_waiting_read_that_ran_out_of_time_is_repeated_so(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo one; {gate}; echo two")
    await owner.received("shell-1", 4)
    first = await owner.agent.task_output("shell-1", wait=True, timeout=0.2, read_id="r1")
    assert (first.text, first.timed_out) == ("one\n[status: running]", True)
    gate.open()
    await owner.finished("shell-1")
    again = await owner.agent.task_output("shell-1", wait=True, timeout=0.2, read_id="r1")
    assert (again.text, again.timed_out, again.cursor) == (first.text, True, first.cursor)


async def test_parallel_reads_share_no_byte_and_can_be_repeated(owner: Owner) -> None:
    await owner.shell("for n in $(seq 1 400); do echo $n; sleep 0.002; done")
    reads = {}

    async def read(n: int) -> None:
        await asyncio.sleep(0.06 * (n % 12))
        reads[n] = await owner.agent.task_output("shell-1", read_id=f"r{n}")

    await asyncio.gather(*(read(n) for n in range(48)))
    last = await owner.agent.task_output("shell-1", wait=True)
    parts = sorted([*reads.values(), last], key=lambda read: read.cursor)
    whole = "".join(part.output for part in parts)
    assert whole == "".join(f"{n}\n" for n in range(1, 401))
    # The last of them can be sent again, in any order.
    newest = sorted(reads, key=lambda n: reads[n].cursor)[-6:]
    for n in (*reversed(newest), *newest):
        again = await owner.agent.task_output("shell-1", read_id=f"r{n}")
        assert (again.output, again.text) == (reads[n].output, reads[n].text)


async def test_one_read_sent_many_times_at_once_is_one_read(owner: Owner, gate: Gate) -> None:
    await owner.shell(f"echo one; {gate}; echo two")
    await owner.received("shell-1", 4)
    said = await asyncio.gather(
        *(owner.tool("task_output", "same", task_id="shell-1") for _ in range(20))
    )
    assert {answer.text for answer in said} == {"one\n[status: running]"}
    waiting = [
        asyncio.ensure_future(owner.tool("task_output", "waits", task_id="shell-1", wait=True))
        for _ in range(20)
    ]
    await asyncio.sleep(0.1)
    gate.open()
    said = await asyncio.gather(*waiting)
    assert {answer.text for answer in said} == {"two\n[status: completed]"}


async def test_reads_are_repeated_over_a_restart(
    make_supervisor: Callable[..., Supervisor], gate: Gate
) -> None:
    supervisor = make_supervisor()
    supervisor.start()
    async with supervisor.client() as client, owner_of(supervisor, client) as owner:
        await owner.shell(f"echo one; {gate}; echo two")
        await owner.received("shell-1", 4)
        first = await owner.read("shell-1", tool_call_id="r1")
        supervisor.kill()
        gate.open()
        supervisor.start()
        await owner.finished("shell-1")
        assert await owner.read("shell-1", tool_call_id="r1") == first
        assert await owner.read("shell-1", tool_call_id="r2") == "two\n[status: completed]"
        supervisor.kill()
        supervisor.start()
        assert await owner.read("shell-1", tool_call_id="r1") == first
        assert await owner.read("shell-1", tool_call_id="r2") == "two\n[status: completed]"


async def test_huge_output_comes_in_pieces(owner: Owner) -> None:
    # Three bytes each: no piece of 256 KiB ends between two of them.
    await owner.shell("for n in $(seq 1 300); do printf '€%.0s' $(seq 1 1000); done")
    await owner.finished("shell-1")
    whole = "€" * 300_000
    size = len(whole.encode())
    text, reads = "", 0
    while True:
        read_id = f"r{reads}"
        read = await owner.agent.task_output("shell-1", read_id=read_id)
        reads += 1
        assert 0 < len(read.output.encode()) <= PIECE
        text += read.output
        assert read.cursor == len(text.encode())
        again = await owner.agent.task_output("shell-1", read_id=read_id)
        assert again.text == read.text
        left = size - read.cursor
        if not left:
            break
        assert read.text.endswith(f"\n[{left} more bytes: read again]\n[status: completed]")
        # Its end is told: a notice would say nothing new.
        assert await owner.pending() == 0
    assert read.text.endswith("€\n[status: completed]")
    assert (text, reads) == (whole, 4)
    assert await owner.read("shell-1") == "(no new output)\n[status: completed]"
    assert await owner.pending() == 0


async def test_the_dropped_middle_of_a_flood_is_told(owner: Owner) -> None:
    await owner.agent.run(
        "printf first; head -c 300000 /dev/zero | tr '\\0' x; printf last",
        background=True,
        limits=call_service_pb2.CallLimits(output_bytes=8192),
    )
    read = await owner.agent.task_output("shell-1", wait=True)
    told = re.search(r"\n\[(\d+) bytes not kept\]\n", read.output)
    assert told is not None, read.output[:200]
    assert read.output.startswith("first")
    assert read.output.endswith("last")
    kept = len(read.output.encode()) - len(told[0])
    assert kept + int(told[1]) == 300_009 == read.cursor
    assert read.text.endswith("last\n[status: completed]")


async def test_a_task_that_has_not_its_turn_yet(open_owner: Open, gate: Gate) -> None:
    owner = await open_owner(max_running_calls=1)
    await owner.shell(f"{gate}; echo one")
    await owner.shell("echo two")
    assert await owner.read("shell-2") == NOTHING
    assert (await owner.listed()).endswith("shell-2 [shell] running — echo two")
    gate.open()
    assert await owner.read("shell-2", wait=True) == "two\n[status: completed]"
