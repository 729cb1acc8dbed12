"""The load client in Python, over the `pinfold` client.  python -m benchmarks.load.client"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from pinfold import Client, PinfoldError
from pinfold.v1 import call_service_pb2, watch_service_pb2

Answer = dict[str, Any]
now = time.monotonic_ns
_HOUR = 3600.0


class Load:
    def __init__(self) -> None:
        self._clients: dict[tuple[str, int], Client] = {}
        self._stop = asyncio.Event()

    def client(self, address: str, number: int = 0) -> Client:
        """One connection for each number."""
        key = (address, number)
        if key not in self._clients:
            self._clients[key] = Client.connect(address, token="")
        return self._clients[key]

    async def echo(self, address: str, n: int) -> Answer:
        client = self.client(address)
        return {"took": [await _timed(client.info) for _ in range(n)]}

    async def load(self, address: str, rate: float) -> Answer:
        """Open loop: a late answer does not delay the next request."""
        client = self.client(address, 1)
        took: list[int] = []
        pending: set[asyncio.Task[None]] = set()

        async def one() -> None:
            took.append(await _timed(client.info))

        begin, count = time.monotonic(), 0
        while not self._stop.is_set():
            due = begin + count / rate
            if (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            task = asyncio.create_task(one())
            pending.add(task)
            task.add_done_callback(pending.discard)
            count += 1
        if pending:
            await asyncio.wait(pending)
        return {"took": took, "total": int((time.monotonic() - begin) * 1e9)}

    async def stop(self) -> Answer:
        self._stop.set()
        await asyncio.sleep(0.05)
        self._stop = asyncio.Event()
        return {}

    async def run(
        self, address: str, agent: str, n: int, script: str, concurrency: int = 1, shell: str = ""
    ) -> Answer:
        handles = [self.client(address, i % 4).agent(agent) for i in range(concurrency)]

        async def one(lane: int) -> None:
            # Never into the background, however busy the machine is.
            await handles[lane].run(script, shell=shell or None, foreground_budget=_HOUR)

        return await _in_lanes(one, n, concurrency)

    async def start(
        self, address: str, agent: str, n: int, script: str, shell: str, concurrency: int = 16
    ) -> Answer:
        handles = [self.client(address, i % 4).agent(agent) for i in range(concurrency)]
        calls: list[str] = []

        async def one(lane: int) -> None:
            call = await handles[lane].start(script, shell=shell, foreground_budget=_HOUR)
            calls.append(call.call_id)

        return {**await _in_lanes(one, n, concurrency), "calls": calls}

    async def release(self, address: str, agent: str, call: str = "") -> Answer:
        begin = now()
        await self.client(address, 3).agent(agent).cancel(call)
        return {"at": begin}

    async def prompt(self, address: str, agent: str) -> Answer:
        begin = now()
        await self.client(address, 3).agent(agent).send_prompt("come")
        return {"at": begin}

    async def report(self, address: str, agent: str, n: int, concurrency: int = 1) -> Answer:
        handles = [self.client(address, i % 4).agent(agent) for i in range(concurrency)]

        async def one(lane: int) -> None:
            await handles[lane].status("working", f"step {now()}")

        return await _in_lanes(one, n, concurrency)

    async def cancel(
        self,
        address: str,
        agent: str,
        n: int,
        script: str,
        ready: int,
        grace: float,
        shell: str,
        echo: str = "",
    ) -> Answer:
        client = self.client(address)
        handle = client.agent(agent)
        watcher = client.watch(0, agents=[agent], names=["tool.*"])
        async for response in watcher:
            if response.HasField("bookmark"):
                break
        accepted, ended, echoed, left, killed = [], [], [], 0, 0
        for _ in range(n):
            call = await handle.start(script, shell=shell, foreground_budget=_HOUR)
            got = 0
            async for chunk in handle.output(call.call_id):
                got += len(chunk.data)
                if got >= ready:
                    break
            if echo:
                echoed.append(await _timed(self.client(echo).info))
            begin = now()
            await handle.cancel(call.call_id, grace=grace)
            accepted.append(now() - begin)
            event = await _end_of(watcher, call.call_id)
            ended.append(now() - begin)
            receipt = event.call_ended.result.receipt
            left += len(receipt.survivors)
            killed += receipt.ended
        return {
            "accepted": accepted,
            "ended": ended,
            "echoed": echoed,
            "left": left,
            "killed": killed,
        }

    async def wait(
        self, address: str, agent: str, calls: Sequence[str], connections: int = 1
    ) -> Answer:
        at, outcome = [0] * len(calls), [""] * len(calls)

        async def one(index: int, call: str) -> None:
            handle = self.client(address, index % connections).agent(agent)
            try:
                answer = await handle.wait_exact(call)
                outcome[index] = _outcome(answer.outcome)
            except PinfoldError as error:
                outcome[index] = error.reason or str(error)
            at[index] = now()

        await asyncio.gather(*(one(index, call) for index, call in enumerate(calls)))
        return {"at": at, "outcome": outcome}

    async def stream(self, address: str, agent: str, calls: Sequence[str]) -> Answer:
        at, outcome = [], []
        waits = [
            call_service_pb2.WaitRequest(
                agent_id=agent,
                wait_id=f"stream-{now()}-{index}",
                exact=call_service_pb2.WaitRequest.Exact(call_id=call),
            )
            for index, call in enumerate(calls)
        ]
        requests = [call_service_pb2.WaitStreamRequest(waits=waits)]
        stub = self.client(address).connection.calls
        async for response in stub.WaitStream(iter(requests)):
            for answer in response.answers:
                at.append(now())
                outcome.append(
                    answer.failure.reason
                    if answer.HasField("failure")
                    else _outcome(answer.response.outcome)
                )
        return {"at": at, "outcome": outcome}

    async def bare(self, address: str, agent: str) -> Answer:
        handle = self.client(address).agent(agent)
        at: list[int] = []
        calls: list[str] = []
        while True:
            try:
                answer = await handle.wait_any_background()
            except PinfoldError as error:
                if error.reason == "BARE_WAIT_IN_PROGRESS":
                    continue
                return {"at": at, "calls": calls, "end": error.reason}
            at.append(now())
            calls += [result.call_id for result in answer.results]

    async def read(
        self,
        address: str,
        agent: str,
        call: str,
        offset: int = 0,
        limit: int = 0,
        stall: bool = False,
        file: str = "",
    ) -> Answer:
        stub = self.client(address, 2 if stall else 0).connection.calls
        request = call_service_pb2.ReadOutputRequest(
            agent_id=agent, call_id=call, offset=offset, limit=limit, follow=True, until_end=True
        )
        begin, received, messages = now(), 0, 0
        with Path(file).open("wb") if file else contextlib.nullcontext() as to:
            async for response in stub.ReadOutput(request):
                received += len(response.data)
                messages += 1
                if to is not None:
                    to.write(response.data)
                if stall:
                    await self._stop.wait()
        return {"bytes": received, "messages": messages, "total": now() - begin}

    async def watch(
        self,
        address: str,
        start: int,
        watchers: int = 1,
        until: int = 0,
        name: str = "",
        stall: bool = False,
    ) -> Answer:
        """`until`: so many events for each watcher; 0: up to the end of the log."""
        at = [0] * watchers
        events, responses = [0] * watchers, [0] * watchers
        request = watch_service_pb2.WatchRequest(start_revision=start, stop_at_end=not until)
        if name:
            request.filter.call_id = name
        begin = now()

        async def one(number: int) -> None:
            stub = self.client(address, 10 + number % 8).connection.watches
            stream = stub.Watch(request)
            async for response in stream:
                events[number] += len(response.events)
                responses[number] += 1
                if stall:
                    await self._stop.wait()
                    break
                if until and events[number] >= until:
                    break
            at[number] = now()
            stream.cancel()

        await asyncio.gather(*(one(number) for number in range(watchers)))
        return {
            "at": at,
            "events": sum(events),
            "responses": sum(responses),
            "total": max(at) - begin,
        }


async def _timed(work: Callable[[], Awaitable[object]]) -> int:
    begin = now()
    await work()
    return now() - begin


async def _in_lanes(work: Callable[[int], Awaitable[None]], n: int, lanes: int) -> Answer:
    """`n` times, `lanes` at a time."""
    took: list[int] = []
    numbers = iter(range(n))

    async def lane(number: int) -> None:
        for _ in numbers:
            begin = now()
            await work(number)
            took.append(now() - begin)

    begin = now()
    await asyncio.gather(*(lane(number) for number in range(lanes)))
    return {"took": took, "total": now() - begin}


async def _end_of(
    watcher: AsyncIterator[watch_service_pb2.WatchResponse], call: str
) -> watch_service_pb2.Event:
    async for response in watcher:
        for event in response.events:
            if event.call_id == call and event.HasField("call_ended"):
                return event
    raise AssertionError("the watch ended")


def _outcome(value: call_service_pb2.WaitOutcome.ValueType) -> str:
    return call_service_pb2.WaitOutcome.Name(value).removeprefix("WAIT_OUTCOME_")


async def main() -> None:
    load = Load()
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()

    async def answer(request: dict[str, Any]) -> None:
        number, op = request.pop("id"), request.pop("op")
        reply: dict[str, Any] = {"id": number}
        try:
            reply["ok"] = await getattr(load, op)(**request)
        except Exception as error:
            reply["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(reply), flush=True)

    print(json.dumps({"id": 0, "ok": {}}), flush=True)
    while line := await reader.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    uvloop.run(main())
