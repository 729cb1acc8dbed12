"""`pinfold ps`, `output`, `wait`, `cancel`: calls that were started before."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from pinfold.answers import Result, WaitAnswer
from pinfold.cli import show
from pinfold.cli.plain import to_json, to_plain
from pinfold.cli.settings import (
    INT64_MAX,
    SECONDS,
    Settings,
    agent_option,
    connection_options,
    json_option,
)
from pinfold.errors import PinfoldError, StateError
from pinfold.v1.call_service_pb2 import WaitOutcome, WaitResponse

if TYPE_CHECKING:
    from pinfold.agent import Agent
    from pinfold.client import Client
    from pinfold.v1.call_pb2 import Call

_TIMED_OUT = 124


@click.command()
@connection_options
@click.option("--agent", "agent_id", default="", help="Only this agent's.")
@click.option("-a", "--all", "with_ended", is_flag=True, help="Also those that have ended.")
@json_option
@click.pass_obj
def ps(settings: Settings, agent_id: str, with_ended: bool, as_json: bool) -> None:
    """List calls: those that live, or all."""
    calls = settings.call(
        lambda client: client.list_calls(agent_id=agent_id, live_only=not with_ended)
    )
    if as_json:
        for call in calls:
            click.echo(to_json(call))
        return
    show.table(
        ("AGENT", "CALL", "STATE", "END", "TIME", "PID", "OUTPUT", "COMMAND"),
        [_row(call) for call in calls],
        empty="no calls" if with_ended else "no live calls (all: pinfold ps -a)",
    )


def _row(call: Call) -> tuple[str, ...]:
    begun = call.started_at if call.HasField("started_at") else call.queued_at
    running = show.age(begun, call.ended_at if call.HasField("ended_at") else None)
    state = show.call_state(call)
    if call.leftover_processes:
        state += f", {call.leftover_processes} left"
    return (
        call.agent_id,
        call.call_id,
        state,
        show.call_end(call),
        running,
        str(call.pid or ""),
        show.size(call.output.size),
        call.label,
    )


@click.command()
@connection_options
@agent_option
@click.option("-f", "--follow", is_flag=True, help="Go on until the call has ended.")
@click.option("--offset", type=click.IntRange(0, INT64_MAX), default=0, help="Begin at this byte.")
@click.option(
    "--limit", type=click.IntRange(0, INT64_MAX), default=0, help="Stop after so many bytes."
)
@click.option("--stream", type=click.Choice(["out", "err"]), help="Only this stream.")
@click.argument("call_id", metavar="CALL")
@click.pass_obj
def output(
    settings: Settings,
    agent_id: str,
    follow: bool,
    offset: int,
    limit: int,
    stream: str | None,
    call_id: str,
) -> None:
    """Print the output of a call, byte for byte: its stdout to stdout, its stderr to stderr.

    CALL is a call id or a task id.
    """

    async def copy(client: Client) -> None:
        from pinfold.cli.streams import Writer

        writer = Writer()
        chunks = client.agent(agent_id).output(
            call_id, offset=offset, follow=follow, stream=stream, limit=limit
        )
        async for chunk in chunks:
            if chunk.dropped:
                show.note(f"{chunk.dropped} bytes of output were not kept")
            else:
                await writer.write(2 if chunk.stream == "err" else 1, chunk.data)

    settings.call(copy)


@click.command()
@connection_options
@agent_option
@click.option("--any", "any_of", is_flag=True, help="For the first of the calls only.")
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Stop waiting then.")
@json_option
@click.argument("call_ids", nargs=-1, metavar="[CALL]...")
@click.pass_obj
def wait(
    settings: Settings,
    agent_id: str,
    any_of: bool,
    timeout: float | None,
    as_json: bool,
    call_ids: tuple[str, ...],
) -> int:
    """Wait for calls, take their results and print them; without CALL, for the next result.

    The exit code is the first one that isn't 0, as `pinfold run` gives it; 124 when the time
    ran out. A result can be taken once.
    """

    async def take(client: Client) -> int:
        agent = client.agent(agent_id)
        answer = await _wait(agent, call_ids, any_of, timeout)
        if as_json:
            click.echo(to_json(answer.message))
        else:
            click.echo(answer.text.rstrip("\n"))
        if answer.timed_out:
            return _TIMED_OUT
        codes = [show.exit_code(result.message) for result in answer.results]
        return next((code for code in codes if code), 0)

    return settings.call(take)


async def _wait(
    agent: Agent, call_ids: tuple[str, ...], any_of: bool, timeout: float | None
) -> WaitAnswer:
    """Also takes calls that ended in the foreground: whoever ran one may be gone by now."""
    if not call_ids:
        return await agent.wait_any_background(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    returned: dict[str, Result] = {}
    taken: list[Result] = []
    while left := [call_id for call_id in call_ids if call_id not in returned]:
        remaining = None if until is None else max(0.0, until - time.monotonic())
        try:
            if any_of:
                return await agent.wait_any(left, remaining)
            if len(call_ids) == 1:
                return await agent.wait_exact(left[0], remaining)
            answer = await agent.wait_all(left, remaining)
        except StateError as error:
            if error.reason != "CALL_RETURNED_NORMALLY":
                raise
            named = left[0] if len(left) == 1 else error.metadata.get("tool_call_id", "")
            if named not in left:
                raise
            returned[named] = await agent.ended(named)
            if any_of:
                break
        else:
            if not answer.results or not returned:
                return answer
            taken = answer.results
            break
    found = {**returned, **{result.call_id: result for result in taken}}
    results = [found[call_id] for call_id in call_ids if call_id in found]
    return WaitAnswer(
        WaitResponse(
            outcome=WaitOutcome.WAIT_OUTCOME_RESULT,
            results=[result.message for result in results],
            text="\n".join(result.text.rstrip("\n") for result in results),
        )
    )


@click.command()
@connection_options
@agent_option
@click.option("--reason", default="", help="Recorded, and shown with the result.")
@click.option("--grace", type=SECONDS, metavar="SECONDS", help="From TERM to KILL.")
@click.option("--no-wait", is_flag=True, help="Return before they have ended.")
@json_option
@click.argument("call_ids", nargs=-1, required=True, metavar="CALL...")
@click.pass_obj
def cancel(
    settings: Settings,
    agent_id: str,
    reason: str,
    grace: float | None,
    no_wait: bool,
    as_json: bool,
    call_ids: tuple[str, ...],
) -> int:
    """End calls with everything they started, and show what that took."""

    async def end(agent: Agent, call_id: str) -> bool:
        try:
            answer = await agent.cancel(call_id, reason=reason, grace=grace)
            if no_wait:
                lines = [answer.text]
                plain = {"call_id": call_id, **to_plain(answer)}
            else:
                result = (await agent.ended(call_id)).message
                lines = [show.end_line(result) or "ended by itself first"]
                if result.HasField("receipt"):
                    lines += show.receipt_lines(result.receipt)
                plain = to_plain(result)
        except PinfoldError as error:
            click.echo(f"pinfold: {call_id}: {error}", err=True)
            return False
        if as_json:
            click.echo(to_json(plain))
        else:
            for line in lines:
                click.echo(f"{call_id}: {line}")
        return True

    async def end_all(client: Client) -> int:
        agent = client.agent(agent_id)
        ended = await asyncio.gather(*(end(agent, call_id) for call_id in call_ids))
        return 0 if all(ended) else 1

    return settings.call(end_all)
