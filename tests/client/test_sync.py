"""The client without `async`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from fake import Fake, sequence

from pinfold import Result, SyncClient, errors
from pinfold.v1 import agent_pb2, agent_service_pb2, call_pb2, call_service_pb2


@pytest.fixture
def server() -> Iterator[Fake]:
    """A fake on a loop of its own thread, as the test's thread blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = Fake()
    asyncio.run_coroutine_threadsafe(fake.start(), loop).result(10)
    yield fake
    asyncio.run_coroutine_threadsafe(fake.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_calls_and_streams(server: Fake) -> None:
    opened = agent_service_pb2.OpenAgentResponse(agent=agent_pb2.Agent(agent_id="a"), token="t")
    server.on("OpenAgent", sequence(opened))
    result = call_pb2.CallResult(call_id="c", process=call_pb2.ProcessEnd(exit_code=7))
    server.on("RunShell", sequence(call_service_pb2.RunShellResponse(call_id="c", result=result)))

    async def read(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        for position in range(5):
            yield call_service_pb2.ReadOutputResponse(offset=position, data=b"x")

    server.on("ReadOutput", read)
    with SyncClient.connect(f"unix:{server.socket}", token="") as client:
        agent = client.open_agent("a")
        assert (agent.agent_id, agent.token) == ("a", "t")
        answer = agent.run("exit 7")
        assert isinstance(answer, Result)
        assert answer.exit_code == 7
        assert agent.read_output("c") == b"xxxxx"
        assert [chunk.offset for chunk in agent.output("c")] == [0, 1, 2, 3, 4]
        for chunk in agent.output("c"):
            assert chunk.offset == 0
            break
    with pytest.raises(errors.UnavailableError, match="closed"):
        client.info()
    client.portal.close()


def test_errors_come_through(server: Fake) -> None:
    with (
        SyncClient.connect(f"unix:{server.socket}", token="") as client,
        pytest.raises(errors.PinfoldError, match="GetInfo") as caught,
    ):
        client.info()
    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED


def test_many_threads(server: Fake) -> None:
    server.on("GetCall", sequence(call_service_pb2.GetCallResponse()))
    failures: list[BaseException] = []
    with SyncClient.connect(f"unix:{server.socket}", token="") as client:
        agent = client.agent("a")

        def work() -> None:
            try:
                for _ in range(20):
                    agent.get("c")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(server.requests) == 160
