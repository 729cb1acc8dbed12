"""Every reason of a refusal, provoked: its code, its ErrorInfo, its text, and docs/errors.md."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from integration.harness import MARKER, error_info
from pinfold import Agent, Client
from pinfold.v1 import (
    agent_service_pb2,
    call_service_pb2,
    supervisor_service_pb2,
    task_service_pb2,
    tool_service_pb2,
    watch_service_pb2,
)
from pinfoldd.core.reasons import Reason
from pinfoldd.rpc.errors import CODES
from support import Supervisor, eventually

DOC = Path(__file__).parents[2] / "docs" / "errors.md"

Wait = call_service_pb2.WaitRequest


class House:
    """A supervisor, one agent, and the bare stubs: no repeats, no translation of errors."""

    def __init__(self, supervisor: Supervisor, client: Client, agent: Agent) -> None:
        self.supervisor = supervisor
        self.client = client
        self.agent = agent
        self.id = agent.agent_id
        connection = client.connection
        self.calls, self.agents, self.tasks = connection.calls, connection.agents, connection.tasks
        self.tools, self.watches = connection.tools, connection.watches
        self.admin = connection.supervisor

    def run(self, script: str, **fields: Any) -> Awaitable[call_service_pb2.RunShellResponse]:
        fields.setdefault("agent_id", self.id)
        return self.calls.RunShell(
            call_service_pb2.RunShellRequest(script=script.encode(), **fields)
        )

    def wait(self, **fields: Any) -> Awaitable[call_service_pb2.WaitResponse]:
        return self.calls.Wait(Wait(agent_id=self.id, **fields))

    def exact(self, call_id: str, **fields: Any) -> Awaitable[call_service_pb2.WaitResponse]:
        return self.wait(exact=Wait.Exact(call_id=call_id), **fields)

    async def sleeper(self, call_id: str = "S", **fields: Any) -> None:
        await self.run("sleep 1000", call_id=call_id, background=True, grace=Duration(), **fields)

    def cancel(self, call_id: str) -> Awaitable[call_service_pb2.CancelCallResponse]:
        return self.calls.CancelCall(
            call_service_pb2.CancelCallRequest(agent_id=self.id, call_id=call_id)
        )

    async def installed(self, wait_id: str) -> None:
        async for event in self.client.events(1, agents=[self.id], names=["wait.installed"]):
            if event.wait_installed.wait_id == wait_id:
                return

    async def child(self, **fields: Any) -> str:
        """A sub-agent that stays idle."""
        fields.setdefault("agent_id", self.id)
        request = agent_service_pb2.StartAgentRequest(prompt="await_message", **fields)
        return (await self.agents.StartAgent(request)).sub_agent_id

    async def stopped_child(self) -> str:
        child = await self.child()
        await self.agents.StopAgent(
            agent_service_pb2.StopAgentRequest(agent_id=child, grace=Duration())
        )
        return child

    def watch(self, watched: str, watcher: str = "") -> Awaitable[Any]:
        return self.agents.WatchAgent(
            agent_service_pb2.WatchAgentRequest(
                agent_id=watcher or self.id, watched_agent_id=watched, enable=True
            )
        )

    def message(self, recipient: str) -> Awaitable[Any]:
        return self.agents.SendMessage(
            agent_service_pb2.SendMessageRequest(
                agent_id=self.id, recipient_id=recipient, message="hello"
            )
        )

    def prompt(self, text: str, request_id: str = "") -> Awaitable[Any]:
        return self.agents.SendPrompt(
            agent_service_pb2.SendPromptRequest(agent_id=self.id, request_id=request_id, text=text)
        )

    def read_task(self, task_id: str) -> Awaitable[Any]:
        return self.tasks.ReadTask(
            task_service_pb2.ReadTaskRequest(agent_id=self.id, task_id=task_id)
        )

    async def events_from(self, revision: int) -> None:
        request = watch_service_pb2.WatchRequest(start_revision=revision)
        await self.watches.Watch(request).read()


Provoke = Callable[[House], Awaitable[Any]]
PROVOKE: dict[Reason, Provoke] = {}
TEXTS: dict[Reason, str] = {}
SETTINGS: dict[Reason, dict[str, str]] = {}


def provokes(reason: Reason, text: str, **settings: str) -> Callable[[Provoke], Provoke]:
    """`text`: a regular expression of the whole message. `settings`: of the supervisor."""

    def register(provoke: Provoke) -> Provoke:
        PROVOKE[reason] = provoke
        TEXTS[reason] = text
        SETTINGS[reason] = {f"PINFOLD_{name}": value for name, value in settings.items()}
        return provoke

    return register


# ---------------------------------------------------------------- agents


@provokes(Reason.AGENT_UNKNOWN, "unknown agent: `nobody`")
async def _(house: House) -> None:
    await house.run("true", agent_id="nobody")


@provokes(Reason.AGENT_STOPPED, "agent is not live: `.*`")
async def _(house: House) -> None:
    await house.agent.stop()
    await house.run("true")


@provokes(Reason.AGENT_ID_REUSED, "agent `.*` is already open with other settings; use another id")
async def _(house: House) -> None:
    request = agent_service_pb2.OpenAgentRequest(agent_id=house.id, label="another")
    await house.agents.OpenAgent(request)


@provokes(
    Reason.AGENT_LIMIT,
    "agent limit reached: 1 agents are live; stop one first",
    LIMITS__AGENTS="1",
)
async def _(house: House) -> None:
    await house.agents.OpenAgent(agent_service_pb2.OpenAgentRequest())


@provokes(
    Reason.AGENT_DEPTH_LIMIT,
    "agent depth limit reached: agents may be nested 1 deep; do this work yourself",
    LIMITS__AGENT_DEPTH="1",
)
async def _(house: House) -> None:
    await house.child(agent_id=await house.child())


@provokes(Reason.ROLE_UNKNOWN, "unknown role: `none`; leave `role` out for the default")
async def _(house: House) -> None:
    await house.child(role="none")


@provokes(
    Reason.TURN_UNKNOWN,
    "this turn is not the current turn; get the current one with NextTurn",
)
async def _(house: House) -> None:
    await house.agents.EndTurn(
        agent_service_pb2.EndTurnRequest(agent_id=house.id, turn_id="t-99", answer="x")
    )


@provokes(
    Reason.PROMPT_LIMIT,
    "prompt limit reached: 1 prompts are pending for the agent; try again when it has taken some",
    LIMITS__PENDING_PROMPTS="1",
)
async def _(house: House) -> None:
    await house.prompt("one")
    await house.prompt("two")


# ---------------------------------------------------------------- calls


@provokes(Reason.CALL_UNKNOWN, "unknown tool call: `nope`")
async def _(house: House) -> None:
    await house.calls.GetCall(call_service_pb2.GetCallRequest(agent_id=house.id, call_id="nope"))


@provokes(
    Reason.CALL_ID_REUSED,
    "tool call id `S` was already used with other arguments; use a new id",
)
async def _(house: House) -> None:
    await house.run("true", call_id="S")
    await house.run("false", call_id="S")


@provokes(
    Reason.CALL_LIMIT,
    "call limit reached: 1 calls are live or have results that nobody collected; "
    "collect results or cancel calls first",
    LIMITS__CALLS_PER_AGENT="1",
)
async def _(house: House) -> None:
    await house.sleeper()
    await house.run("true")


@provokes(
    Reason.GROUP_LIMIT,
    "process group limit reached: 1 groups are live in the supervisor; "
    "cancel calls or try again later",
    LIMITS__LIVE_GROUPS="1",
)
async def _(house: House) -> None:
    await house.sleeper()
    await house.run("true")


@provokes(
    Reason.TASK_LIMIT,
    "background task limit reached: 1 tasks are active; wait for one with "
    "task_output or end one with task_kill first",
    TASKS__ACTIVE="1",
)
async def _(house: House) -> None:
    agent = await house.client.open_agent(surface="tasks")
    for _ in range(2):
        await house.run("sleep 1000", agent_id=agent.agent_id, background=True, grace=Duration())


@provokes(Reason.NO_CONTROL_SURFACE, "background tasks unavailable: no control surface is attached")
async def _(house: House) -> None:
    agent = await house.client.open_agent(surface="none")
    await house.run("true", agent_id=agent.agent_id, background=True)


@provokes(Reason.CALL_ALREADY_CANCELED, "Tool call already canceled")
async def _(house: House) -> None:
    await house.sleeper()
    await house.cancel("S")
    await house.cancel("S")


@provokes(Reason.CALL_ALREADY_DONE, "Tool call is already done")
async def _(house: House) -> None:
    await house.run("true", call_id="S")
    await house.cancel("S")


@provokes(Reason.CALL_NOT_CANCELLABLE, "Tool call is not a running cancellable tool call")
async def _(house: House) -> None:
    await house.sleeper()
    parked = asyncio.ensure_future(house.exact("S", wait_id="W"))
    await house.installed("W")
    try:
        await house.cancel("W")
    finally:
        parked.cancel()


@provokes(Reason.CANCEL_TARGET_UNKNOWN, "Unknown tool call id")
async def _(house: House) -> None:
    await house.cancel("nope")


@provokes(
    Reason.CALL_HAS_NO_INPUT,
    "tool call `S` takes no input; start it with a standard input or a terminal",
)
async def _(house: House) -> None:
    await house.run("true", call_id="S")
    request = call_service_pb2.WriteInputRequest(agent_id=house.id, call_id="S", data=b"x")
    await house.calls.WriteInput(request)


# ---------------------------------------------------------------- waits


@provokes(Reason.RESULT_CONSUMED, "result for tool call `B` already consumed")
async def _(house: House) -> None:
    await house.run("true", call_id="B", background=True)
    await house.exact("B")
    await house.exact("B")


@provokes(Reason.CALL_RETURNED_NORMALLY, "Tool call F returned normally, not backgrounded")
async def _(house: House) -> None:
    await house.run("true", call_id="F")
    await house.exact("F")


async def twice(house: House, **form: Any) -> None:
    await house.sleeper()
    parked = asyncio.ensure_future(house.wait(wait_id="W", **form))
    await house.installed("W")
    try:
        await house.wait(**form)
    finally:
        parked.cancel()


@provokes(Reason.WAIT_IN_PROGRESS, "existing wait for this tool already in progress")
async def _(house: House) -> None:
    await twice(house, exact=Wait.Exact(call_id="S"))


@provokes(
    Reason.BARE_WAIT_IN_PROGRESS,
    "existing wait for a background tool call in this conversation already in progress",
)
async def _(house: House) -> None:
    await twice(house, bare=Wait.Bare())


@provokes(Reason.INPUT_WAIT_IN_PROGRESS, "existing input wait for this agent already in progress")
async def _(house: House) -> None:
    await twice(house, input=Wait.Input())


@provokes(
    Reason.NOTHING_TO_WAIT_FOR,
    r"no background tool calls are running or completed in this conversation; use "
    r'`wait\(\{"timeout_minutes": N\}\)` with a positive integer N to wait for new '
    "activating input",
)
async def _(house: House) -> None:
    await house.wait(bare=Wait.Bare())


@provokes(Reason.WAIT_ID_REUSED, "wait id `W` was already used with other arguments; use a new id")
async def _(house: House) -> None:
    await house.wait(wait_id="W", input=Wait.Input(), timeout=Duration())
    await house.wait(wait_id="W", bare=Wait.Bare())


@provokes(
    Reason.WAIT_LIMIT,
    "wait limit reached: 1 waits are parked; try again later",
    LIMITS__WAITS_PER_AGENT="1",
)
async def _(house: House) -> None:
    await house.sleeper()
    parked = asyncio.ensure_future(house.exact("S", wait_id="W"))
    await house.installed("W")
    try:
        await house.wait(input=Wait.Input())
    finally:
        parked.cancel()


@provokes(Reason.WAIT_CANCELLED, "the wait was cancelled; nothing was consumed")
async def _(house: House) -> None:
    parked = asyncio.ensure_future(house.wait(wait_id="W", input=Wait.Input()))
    await house.installed("W")
    await house.agent.cancel_turn()
    await parked


# ---------------------------------------------------------------- messages and watches


@provokes(Reason.RECIPIENT_UNKNOWN, "unknown message recipient: `nobody`")
async def _(house: House) -> None:
    await house.message("nobody")


@provokes(Reason.RECIPIENT_STOPPED, "stopped message recipient: `.*`")
async def _(house: House) -> None:
    await house.message(await house.stopped_child())


@provokes(Reason.WATCH_SELF, "`agent_id` must identify another agent")
async def _(house: House) -> None:
    await house.watch(house.id)


@provokes(Reason.WATCH_TARGET_UNKNOWN, "unknown agent: `nobody`")
async def _(house: House) -> None:
    await house.watch("nobody")


@provokes(Reason.WATCH_TARGET_STOPPED, "agent is not live: `.*`")
async def _(house: House) -> None:
    await house.watch(await house.stopped_child())


@provokes(Reason.WATCH_CYCLE, "agent watch would create a cycle: `.*` -> `.*`")
async def _(house: House) -> None:
    # The starter watches its sub-agent already.
    await house.watch(house.id, watcher=await house.child())


@provokes(
    Reason.REQUEST_ID_REUSED,
    "request id `R` was already used with other arguments; use a new id",
)
async def _(house: House) -> None:
    await house.prompt("one", request_id="R")
    await house.prompt("two", request_id="R")


# ---------------------------------------------------------------- tasks


@provokes(Reason.TASK_UNKNOWN, "unknown task shell-99")
async def _(house: House) -> None:
    await house.read_task("shell-99")


@provokes(
    Reason.TASK_EXPIRED,
    "task shell-1 has expired: it ended, and its output is no longer kept",
    RETENTION__FINISHED_CALLS="1",
)
async def _(house: House) -> None:
    for call_id in ("A", "B", "C"):
        await house.run("true", call_id=call_id, background=True)
        await house.exact(call_id)
    # What is over the bound goes when the supervisor starts, at the latest.
    await asyncio.to_thread(restart, house.supervisor)
    async for event in house.client.events(1, names=["call.forgotten"]):
        assert event.agent_id == house.id
        break
    await house.read_task("shell-1")


def restart(supervisor: Supervisor) -> None:
    supervisor.kill()
    supervisor.start()


# ---------------------------------------------------------------- the supervisor


@provokes(Reason.DRAINING, "the supervisor is draining and takes no new calls; try again later")
async def _(house: House) -> None:
    await house.client.drain()
    await house.run("true")


@provokes(Reason.INVALID_ARGUMENT, "script: must not be empty")
async def _(house: House) -> None:
    await house.run(" ")


@provokes(Reason.UNAUTHENTICATED, "no valid token; send an operator's or this agent's token")
async def _(house: House) -> None:
    await house.admin.GetInfo(
        supervisor_service_pb2.GetInfoRequest(), metadata=(("authorization", "Bearer pf.x.y"),)
    )


@provokes(Reason.PERMISSION_DENIED, "this token does not allow that; an operator's token does")
async def _(house: House) -> None:
    token = (await house.client.create_token(agent_id=house.id)).token
    await house.admin.Drain(
        supervisor_service_pb2.DrainRequest(), metadata=(("authorization", f"Bearer {token}"),)
    )


@provokes(
    Reason.REVISION_COMPACTED,
    r"that revision is no longer kept; start from revision \d+ or from 0",
    RETENTION__EVENTS="100",
)
async def _(house: House) -> None:
    while (await house.client.info()).oldest_revision == 1:
        await asyncio.gather(*(house.run("true") for _ in range(20)))
    await house.events_from(1)


@provokes(
    Reason.REVISION_IN_FUTURE,
    "that revision does not exist yet; start from at most one after the latest",
)
async def _(house: House) -> None:
    await house.events_from(1_000_000)


@provokes(
    Reason.STORE_FAILING,
    "the supervisor can't write its log, so that nothing new is accepted; "
    "check its disk and try again",
)
async def _(house: House) -> None:
    with contextlib.closing(sqlite3.connect(house.supervisor.state / "log.db")) as other:
        other.execute("BEGIN IMMEDIATE")  # nobody else can write
        early: list[asyncio.Future[call_service_pb2.RunShellResponse]] = []
        try:
            # What is decided already waits for the store; what comes then is told.
            while True:
                early.append(asyncio.ensure_future(house.run(f"echo {len(early)}")))
                done, _ = await asyncio.wait(early, timeout=1.0)
                for refused in done:
                    early.remove(refused)
                    refused.result()
        finally:
            other.rollback()
            for answer in await asyncio.gather(*early):
                assert "status: 0" in answer.result.text


@provokes(Reason.KEEPER_UNAVAILABLE, "the keeper of processes is not available; try again")
async def _(house: House) -> None:
    os.kill((await house.client.info()).keeper_pid, signal.SIGKILL)
    # No other keeper can start as long as somebody holds its lock.
    with (house.supervisor.state / "keeper.lock").open("rb") as lock:
        assert await asyncio.to_thread(eventually, lambda: flock(lock.fileno()))
        while True:
            await asyncio.wait_for(house.run("true"), 10.0)


def flock(fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@provokes(Reason.TOKEN_UNKNOWN, "unknown token id; the list of tokens has the valid ones")
async def _(house: House) -> None:
    await house.admin.RevokeToken(supervisor_service_pb2.RevokeTokenRequest(token_id="nope"))


# ---------------------------------------------------------------- the tests

ANSWERS = {Reason.TOOL_UNKNOWN}  # what a model reads, never a status


@contextlib.asynccontextmanager
async def house_of(supervisor: Supervisor, marker: str = "errors") -> AsyncIterator[House]:
    async with supervisor.client() as client:
        agent = await client.open_agent(env={MARKER: marker})
        yield House(supervisor, client, agent)


ALONE = (Reason.DRAINING, Reason.STORE_FAILING, Reason.KEEPER_UNAVAILABLE)


@pytest.mark.parametrize("reason", PROVOKE)
async def test_provoked(
    reason: Reason, shared: Supervisor, make_supervisor: Callable[..., Supervisor]
) -> None:
    supervisor = shared
    if SETTINGS[reason] or reason in ALONE:
        supervisor = make_supervisor(env=SETTINGS[reason])
        await asyncio.to_thread(supervisor.start)
    async with house_of(supervisor) as house:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await PROVOKE[reason](house)
        error = caught.value
        if reason is not Reason.AGENT_STOPPED and reason not in ALONE:
            await house.agent.stop(grace=0.0)
    assert error.code() is CODES[reason]
    info = error_info(error)
    assert (info.reason, info.domain) == (reason.value, "pinfold")
    text = error.details() or ""
    assert re.fullmatch(TEXTS[reason], text), text
    assert text.isascii()


async def test_what_a_model_reads(shared: Supervisor) -> None:
    async with house_of(shared) as house:
        answer = await house.tools.CallTool(
            tool_service_pb2.CallToolRequest(agent_id=house.id, name="nope")
        )
        assert answer.kind == tool_service_pb2.TOOL_ANSWER_KIND_ERROR
        assert answer.reason == "TOOL_UNKNOWN"
        assert answer.text == "error: unknown tool: `nope`; use one of the listed tools"
        answer = await house.tools.CallTool(
            tool_service_pb2.CallToolRequest(
                agent_id=house.id, name="cancel", arguments_json='{"tool_call_id": "nope"}'
            )
        )
        assert answer.text == "error: Unknown tool call id\ntool_call_id: nope"
        await house.agent.stop()


def test_every_reason_is_provoked() -> None:
    assert set(PROVOKE) | ANSWERS == set(Reason)


def test_ids_cannot_make_lines_or_break_the_status(shared: Supervisor) -> None:
    strange = "x\ny: z\u202e\u2028ünï\x00" + "w" * 5000

    async def ask() -> grpc.aio.AioRpcError:
        async with house_of(shared) as house:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await house.exact(strange)
            await house.agent.stop()
            return caught.value

    error = asyncio.run(ask())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "\n" not in (error.details() or "")
    assert len(error.details() or "") <= 1000
    assert error_info(error).reason == "CALL_UNKNOWN"


def test_the_table_for_people_is_the_table() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| (.+) \|$", DOC.read_text(), re.MULTILINE)
    assert {Reason(name): code for name, code, _ in rows} == {
        reason: code.name for reason, code in CODES.items()
    }
    assert len(rows) == len(Reason) == len(CODES)
