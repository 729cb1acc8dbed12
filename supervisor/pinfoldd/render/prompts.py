"""The text of prompts, as a model reads them (docs/contract.md, Notices and Agents).

Each is self-contained: who reads it may know nothing but what it says.
"""

from __future__ import annotations

from pinfoldd.core.model import Call, Prompt
from pinfoldd.core.values import PromptKind, Surface
from pinfoldd.render.headers import one_line, wrapped
from pinfoldd.render.tasks import task_notice

_MARK = "[tau-internal]"


def prompt_text(prompt: Prompt, surface: Surface = Surface.TAU, call: Call | None = None) -> str:
    """What the agent reads. `call`: for a notice, the call that ended; it may be left out on
    the `tau` surface."""
    whom = one_line(prompt.from_agent)
    match prompt.kind:
        case PromptKind.USER:
            return prompt.body
        case PromptKind.START:
            return start_prompt(prompt.from_agent, prompt.body)
        case PromptKind.NOTICE:
            return _notice(prompt, surface, call)
        case PromptKind.MESSAGE:
            body = wrapped("message", prompt.body)
            return f"{_MARK}: You have received a message from {whom}\n\n{body}"
        case PromptKind.WATCH_ANSWER:
            body = wrapped("response", prompt.body)
            return f"{_MARK}: Agent `{whom}`, which you watch, gave this answer\n\n{body}"
        case PromptKind.WATCH_PROMPT:
            body = wrapped("prompt", prompt.body)
            return f"{_MARK}: Agent `{whom}`, which you watch, received this prompt\n\n{body}"
        case PromptKind.WATCH_STATE:
            state = " — ".join(one_line(part) for part in (prompt.detail, prompt.body) if part)
            return f"{_MARK}: Agent `{whom}`, which you watch: {state}"


def start_prompt(starter: str, body: str) -> str:
    """What a sub-agent begins with."""
    return (
        f"You were started by an agent `{one_line(starter)}`. It gets your final answer; "
        "until then, use `message` with this id to tell it something.\n\n"
        f"{body}"
    )


def _notice(prompt: Prompt, surface: Surface, call: Call | None) -> str:
    if surface is Surface.TASKS and call is not None:
        return task_notice(call)
    return (
        f"{_MARK} Tool call `{one_line(prompt.call)}` completed. "
        "Its result is queued; use `wait` to consume it."
    )
