"""A worker that follows a script in its prompt: deterministic, in place of a model.

The script is the prompt it was started with, a directive a line (docs/workers.md):

    shell COMMAND             run it; goes on with the placeholder if it goes to the background
    wait [N]                  wait for the N-th shell call, or for any
    cancel N                  cancel the N-th shell call
    await_message             until a message is there that no other `await_message` took
    message WHO TEXT          WHO: an agent id, or `parent`
    status STATE TITLE
    agent [call] [ROLE]       start a sub-agent; its script is the indented lines that follow
    sleep SECONDS
    say TEXT                  a line of the answer so far: kept when the agent is ended
    on_message DIRECTIVE      from now on, what to do with each message that arrives
    final TEXT                the answer; the turn ends

`{body}` and `{from}` stand for the last message, `{body:NAME}` for the word after `NAME=` in
it, `{parent}` and `{self}` for agent ids, `{out}` for the last tool answer, `{wait}` for the
answer of the last `wait`, `{agent}` for the last sub-agent. Between two directives it takes
what has arrived, as a model's loop does between two rounds of tools.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

from pinfold.v1 import agent_pb2
from pinfold.worker.kit import Turn

_FIELD = re.compile(r"\{(body|from|parent|self|out|wait|agent|body:(\w+))\}")
_LATER = "Received."


class ScriptError(ValueError):
    """A line that is no directive. It is the answer of the agent, so that its author sees it."""


@dataclass
class _Script:
    """Where the script stands; kept over turns."""

    lines: list[str]
    values: dict[str, str]
    first_call: int = 1
    calls: list[str] = field(default_factory=list)
    on_message: str = ""
    arrived: list[agent_pb2.Prompt] = field(default_factory=list)
    """Messages that no `await_message` has taken."""


async def run_turn(turn: Turn) -> str:
    script = turn.memory.get("script")
    if script is None:
        start = next((p for p in turn.prompts if p.kind == agent_pb2.PROMPT_KIND_START), None)
        if start is not None:
            body = start.text.partition("\n\n")[2]
        else:
            # Driven by itself; or started again after its turn: then its script is over.
            body = "\n".join(p.text for p in turn.prompts if p.kind == agent_pb2.PROMPT_KIND_USER)
        parent = start.from_agent_id if start is not None else ""
        script = _Script(
            lines=[line for line in body.split("\n") if line.strip()],
            values={"parent": parent, "self": turn.agent.agent_id},
            # Not those of a worker that died: the same id would be the same call.
            first_call=len(await turn.agent.list()) + 1 if turn.resumed else 1,
        )
        turn.memory["script"] = script
    try:
        answer = await _arrived(turn, script, turn.prompts)
        while answer is None and script.lines:
            answer = await _do(turn, script, script.lines.pop(0))
            if answer is None:
                answer = await _arrived(turn, script, await turn.take())
    except ScriptError as error:
        script.lines.clear()
        return f"error: {error}"
    return _LATER if answer is None else answer


async def _arrived(turn: Turn, script: _Script, prompts: list[agent_pb2.Prompt]) -> str | None:
    for prompt in prompts:
        if prompt.kind != agent_pb2.PROMPT_KIND_MESSAGE:
            continue
        script.arrived.append(prompt)
        _about(script, prompt)
        if script.on_message:
            answer = await _do(turn, script, script.on_message)
            if answer is not None:
                return answer
    return None


async def _do(turn: Turn, script: _Script, line: str) -> str | None:
    """One directive. Returns the answer of the turn if it is `final`."""
    name, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if name == "on_message":
        script.on_message = rest
        return None
    text = _FIELD.sub(lambda match: _value(script, match), rest)
    match name:
        case "final":
            script.lines.clear()
            return text
        case "shell":
            number = script.first_call + len(script.calls)
            call_id = f"{turn.agent.agent_id}-call-{number}"
            script.calls.append(call_id)
            answer = await turn.call_tool("shell", {"command": text}, call_id)
            script.values["out"] = answer.text
        case "wait":
            arguments = {"tool_call_id": _call(script, text)} if text else {}
            script.values["out"] = (await turn.call_tool("wait", arguments)).text
            script.values["wait"] = script.values["out"]
        case "cancel":
            answer = await turn.call_tool("cancel", {"tool_call_id": _call(script, text)})
            script.values["out"] = answer.text
        case "await_message":
            while not script.arrived:
                await turn.agent.wait_for_input()
                answer_now = await _arrived(turn, script, await turn.take())
                if answer_now is not None:
                    return answer_now
            _about(script, script.arrived.pop(0))
        case "message":
            who, _, body = text.partition(" ")
            recipient = script.values["parent"] if who == "parent" else who
            answer = await turn.call_tool("message", {"recipient_id": recipient, "message": body})
            script.values["out"] = answer.text
        case "status":
            state, _, title = text.partition(" ")
            answer = await turn.call_tool("status", {"state": state, "title": title})
            script.values["out"] = answer.text
        case "agent":
            await _start(turn, script, text.split())
        case "say":
            turn.draft += f"{text}\n"
        case "sleep":
            await asyncio.sleep(_seconds(text))
        case _:
            raise ScriptError(f"not a directive: {line.strip()!r}")
    return None


def _about(script: _Script, message: agent_pb2.Prompt) -> None:
    script.values["body"] = message.body
    script.values["from"] = message.from_agent_id


def _value(script: _Script, field: re.Match[str]) -> str:
    if field[2] is None:
        return script.values.get(field[1], "")
    given = re.search(rf"\b{field[2]}=(\S+)", script.values.get("body", ""))
    return given[1] if given else ""


async def _start(turn: Turn, script: _Script, words: list[str]) -> None:
    """Start a sub-agent with the indented lines that follow."""
    inner: list[str] = []
    while script.lines and script.lines[0][:1].isspace():
        inner.append(script.lines.pop(0))
    width = min((len(line) - len(line.lstrip()) for line in inner), default=0)
    arguments = {"prompt": "\n".join(line[width:] for line in inner) or "final done"}
    if words and words[0] == "call":
        arguments["mode"] = words.pop(0)
    if words:
        arguments["role"] = words[0]
    answer = await turn.call_tool("agent_start", arguments)
    script.values["out"] = answer.text
    script.values["agent"] = answer.agent_start.sub_agent_id


def _call(script: _Script, text: str) -> str:
    if not text.isdigit() or not 1 <= int(text) <= len(script.calls):
        raise ScriptError(f"no such shell call: {text!r} of {len(script.calls)}")
    return script.calls[int(text) - 1]


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ScriptError(f"not a number of seconds: {text!r}") from error
