"""What a scenario can name; README.md has the same table."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from scenario import Fault, Step
from values import find, object_of

import pinfold
from pinfold.v1 import call_service_pb2

if TYPE_CHECKING:
    from run import Run


def raw(value: Any) -> Any:
    """A string, or bytes where it is {base64: ...}."""
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


class Arguments:
    """The arguments of one operation."""

    def __init__(self, run: Run, step: Step, values: dict[str, Any]) -> None:
        self.run = run
        self.step = step
        self.values = values

    def __call__(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def some(self, *keys: str, **renamed: str) -> dict[str, Any]:
        """Those that are given, as keyword arguments: by their names, or renamed."""
        names = {**{key: key for key in keys}, **renamed}
        return {name: self.values[key] for name, key in names.items() if key in self.values}

    @property
    def client(self) -> pinfold.Client:
        return self.run.clients[self.step.client]

    @property
    def agent(self) -> pinfold.Agent:
        found = self.named("agent")
        return self.client.agent(found.agent_id) if self.step.client else found

    def named(self, key: str) -> pinfold.Agent:
        name = self.values.get(key)
        if name not in self.run.agents:
            raise Fault(f"{self.step.op}: no agent {name!r}")
        return self.run.agents[name]


# Agents


async def open_agent(a: Arguments) -> Any:
    options = a.some(
        "surface", "label", "cwd", "max_running_calls", "max_active_tasks", "hidden_tools"
    )
    env = {name: raw(value) for name, value in a("env", {}).items()}
    agent = await a.client.open_agent(a("id", ""), env=env, **options)
    a.run.keep(a("as"), agent, opened=True)
    return {"agent_id": agent.agent_id}


async def attach_agent(a: Arguments) -> Any:
    a.run.keep(a("as"), a.client.agent(a("id")), opened=False)


async def get_agent(a: Arguments) -> Any:
    return await a.agent.info()


async def list_agents(a: Arguments) -> Any:
    return {"agents": await a.client.list_agents(**a.some("live_only", parent_id="parent"))}


async def stop_agent(a: Arguments) -> Any:
    return await a.agent.stop(**a.some("reason", "grace"))


async def start_agent(a: Arguments) -> Any:
    return await a.agent.start_agent(a("prompt"), **a.some("role", "mode", call_id="call"))


async def next_turn(a: Arguments) -> Any:
    turn = await a.agent.next_turn(a("timeout"))
    if turn is None:
        return None
    return {
        "turn_id": turn.turn_id,
        "prompts": turn.prompts,
        "delivery_id": turn.delivery_id,
        "resumed": turn.resumed,
    }


async def take_prompts(a: Arguments) -> Any:
    taken = await a.agent.take_prompts()
    return {
        "prompts": taken.prompts,
        "delivery_id": taken.delivery_id,
        "turn_cancelled": taken.turn_cancelled,
    }


async def end_turn(a: Arguments) -> Any:
    await a.agent.end_turn(a("turn"), a("answer", ""))


async def cancel_turn(a: Arguments) -> Any:
    return {"cancelled_calls": await a.agent.cancel_turn(**a.some("reason"))}


async def send_prompt(a: Arguments) -> Any:
    return {"prompt_id": await a.agent.send_prompt(a("text"), **a.some("passive", "request_id"))}


async def send_message(a: Arguments) -> Any:
    return await a.agent.message(a("to"), a("message"), **a.some("request_id"))


async def watch_agent(a: Arguments) -> Any:
    return {"text": await a.agent.watch_agent(a("watched"), enable=a("enable", True))}


async def status(a: Arguments) -> Any:
    return {"text": await a.agent.status(a("state"), a("title"))}


# Calls


def _command(a: Arguments) -> tuple[Any, dict[str, Any]]:
    options = a.some(
        "timeout",
        "background",
        "exclusive",
        "stdin",
        "grace",
        "kill_leftovers",
        "label",
        "shell",
        "foreground_budget",
        call_id="call",
    )
    if "cwd" in a.values:
        options["cwd"] = raw(a("cwd"))
    if "input" in a.values:
        text = raw(a("input"))
        options["input"] = text.encode() if isinstance(text, str) else text
    if "env" in a.values:
        options["env"] = {name: raw(value) for name, value in a("env").items()}
    if "rows" in a.values:
        options["terminal"] = (a("rows"), a("columns"))
    if "output_bytes" in a.values:
        options["limits"] = call_service_pb2.CallLimits(output_bytes=a("output_bytes"))
    if "argv" in a.values:
        return [raw(word) for word in a("argv")], options
    return raw(a("script")), options


async def run_shell(a: Arguments) -> Any:
    command, options = _command(a)
    answer = await a.agent.run(command, **options)
    found = {"call_id": answer.call_id, "task_id": answer.task_id}
    if isinstance(answer, pinfold.Placeholder):
        return {**found, "placeholder": answer.text}
    return {**found, "result": answer.message}


async def start_shell(a: Arguments) -> Any:
    command, options = _command(a)
    return await a.agent.start(command, **options)


async def get_call(a: Arguments) -> Any:
    return await a.agent.get(a("call"))


async def list_calls(a: Arguments) -> Any:
    return {"calls": await a.agent.list(**a.some("live_only"))}


async def ended(a: Arguments) -> Any:
    return (await a.agent.ended(a("call"))).message


async def cancel(a: Arguments) -> Any:
    return await a.agent.cancel(a("call"), **a.some("reason", "grace"))


async def write_input(a: Arguments) -> Any:
    data = raw(a("data"))
    await a.agent.write_input(a("call"), data.encode() if isinstance(data, str) else data)


async def close_input(a: Arguments) -> Any:
    await a.agent.close_input(a("call"))


async def resize(a: Arguments) -> Any:
    await a.agent.resize(a("call"), a("rows"), a("columns"))


async def read_output(a: Arguments) -> Any:
    """Chunks that follow each other are joined: how many there are is open."""
    joined: list[dict[str, Any]] = []
    options = a.some("offset", "limit", "stream", "follow", "until_end")
    async for chunk in a.agent.output(a("call"), **options):
        stream = "gap" if chunk.dropped else chunk.stream
        last = joined[-1] if joined else None
        if last and last["stream"] == stream and last["end"] == chunk.offset:
            last["data"] += chunk.data
            last["dropped"] += chunk.dropped
            last["end"] = chunk.end
        else:
            joined.append(
                {
                    "stream": stream,
                    "offset": chunk.offset,
                    "data": chunk.data,
                    "dropped": chunk.dropped,
                    "end": chunk.end,
                }
            )
    chunks = [
        {
            "stream": chunk["stream"],
            "offset": chunk["offset"],
            "base64": base64.b64encode(chunk["data"]).decode(),
            "dropped": chunk["dropped"],
        }
        for chunk in joined
    ]
    return {"chunks": chunks}


def _wait(a: Arguments) -> dict[str, Any]:
    return a.some("timeout", "wait_id")


async def wait_exact(a: Arguments) -> Any:
    return (await a.agent.wait_exact(a("call"), **_wait(a))).message


async def wait_all(a: Arguments) -> Any:
    return (await a.agent.wait_all(a("calls"), **_wait(a))).message


async def wait_any(a: Arguments) -> Any:
    return (await a.agent.wait_any(a("calls"), **_wait(a))).message


async def wait_bare(a: Arguments) -> Any:
    return (await a.agent.wait_any_background(**_wait(a))).message


async def wait_input(a: Arguments) -> Any:
    return (await a.agent.wait_for_input(**_wait(a))).message


# Tools and tasks


async def list_tools(a: Arguments) -> Any:
    if "agent" in a.values:
        return await a.agent.list_tools()
    return await a.client.list_tools(a("surface", ""))


async def call_tool(a: Arguments) -> Any:
    return await a.agent.call_tool(a("name"), a("arguments", ""), **a.some(tool_call_id="call"))


async def read_task(a: Arguments) -> Any:
    return await a.agent.task_output(a("task"), **a.some("wait", "timeout", "read_id"))


async def list_tasks(a: Arguments) -> Any:
    return {"tasks": await a.agent.task_list(**a.some("live_only"))}


async def kill_task(a: Arguments) -> Any:
    return await a.agent.task_kill(a("task"), **a.some("reason"))


# The log


def _filter(a: Arguments) -> dict[str, Any]:
    for name in a("agents", []):
        if name not in a.run.agents:
            raise Fault(f"no agent {name!r}")
    return {
        "agents": [a.run.agents[name].agent_id for name in a("agents", [])],
        **a.some("descendants", "names", "stop_at_end", "show_internal", call_id="call"),
    }


async def watch_from(a: Arguments) -> Any:
    wanted = a("count", 0)
    agents: list[Any] = []
    calls: list[Any] = []
    events: list[Any] = []
    bookmark = after = 0
    responses = a.client.watch(int(a("start")), **_filter(a))
    async for response in responses:
        agents += response.snapshot.agents
        calls += response.snapshot.calls
        if response.HasField("bookmark"):
            bookmark = response.bookmark.revision
            after = bookmark + 1
        for event in response.events:
            if wanted and len(events) == wanted:
                break
            events.append(event)
            after = event.revision + 1
        if wanted and len(events) == wanted:
            break
    await responses.aclose()  # type: ignore[attr-defined]
    return {
        "agents": agents,
        "calls": calls,
        "events": events,
        "bookmark": bookmark,
        "next": after,
    }


async def until_event(a: Arguments) -> Any:
    left = a("count", 1)
    events = a.client.events(
        int(a.run.saved["begin"]),
        agents=[a.named("agent").agent_id],
        names=[a("name")],
        call_id=a("call", ""),
    )
    async for event in events:
        seen = object_of(event)
        if all(str(find(seen, path)) == str(value) for path, value in a("where", {}).items()):
            left -= 1
            if left == 0:
                await events.aclose()  # type: ignore[attr-defined]
                return event
    raise Fault("the log ended")


async def sleep(a: Arguments) -> Any:
    await asyncio.sleep(a("seconds"))


# The supervisor


async def info(a: Arguments) -> Any:
    return await a.client.info()


async def drain(a: Arguments) -> Any:
    return {"live_calls": await a.client.drain()}


async def create_token(a: Arguments) -> Any:
    """The secret stays out of the transcript."""
    agent_id = a.named("agent").agent_id if "agent" in a.values else ""
    made = await a.client.create_token(agent_id=agent_id, **a.some("label", "valid_for"))
    a.run.saved[a("as")] = made.token
    return {"token_id": made.token_id}


async def list_tokens(a: Arguments) -> Any:
    return {"tokens": await a.client.list_tokens()}


async def revoke_token(a: Arguments) -> Any:
    await a.client.revoke_token(a("token_id"))


async def connect(a: Arguments) -> Any:
    a.run.clients[a("as")] = pinfold.Client.connect(token=a("token"))


OPERATIONS: dict[str, Callable[[Arguments], Awaitable[Any]]] = {
    operation.__name__: operation
    for operation in (
        open_agent,
        attach_agent,
        get_agent,
        list_agents,
        stop_agent,
        start_agent,
        next_turn,
        take_prompts,
        end_turn,
        cancel_turn,
        send_prompt,
        send_message,
        watch_agent,
        status,
        run_shell,
        start_shell,
        get_call,
        list_calls,
        ended,
        cancel,
        write_input,
        close_input,
        resize,
        read_output,
        wait_exact,
        wait_all,
        wait_any,
        wait_bare,
        wait_input,
        list_tools,
        call_tool,
        read_task,
        list_tasks,
        kill_task,
        watch_from,
        until_event,
        sleep,
        info,
        drain,
        create_token,
        list_tokens,
        revoke_token,
        connect,
    )
}
