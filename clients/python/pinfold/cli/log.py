"""`pinfold watch` and `events`: the log, live or as it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pinfold.cli import show
from pinfold.cli.describe import describe, is_hidden
from pinfold.cli.plain import to_json
from pinfold.cli.settings import INT64_MAX, Settings, connection_options, json_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pinfold.client import Client
    from pinfold.v1.watch_service_pb2 import Event


def _filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--internal", is_flag=True, help="Also prompts that are for models only."),
        click.option("--call", "call_id", default="", help="Only this call's."),
        click.option("--name", "names", multiple=True, help="Only these, such as 'call.*'."),
        click.option("--descendants", is_flag=True, help="Also the agents below them."),
        click.option("--agent", "agents", multiple=True, help="Only these agents'."),
    ):
        function = option(function)
    return function


@click.command()
@connection_options
@_filter_options
@json_option
@click.pass_obj
def watch(
    settings: Settings,
    agents: tuple[str, ...],
    descendants: bool,
    names: tuple[str, ...],
    call_id: str,
    internal: bool,
    as_json: bool,
) -> None:
    """Show what happens from now on, until Ctrl-C. Goes on after a restart."""

    async def follow(client: Client) -> None:
        responses = client.watch(
            0,
            agents=agents,
            descendants=descendants,
            names=names,
            call_id=call_id,
            show_internal=internal,
        )
        async for response in responses:
            if as_json and response.HasField("snapshot"):
                click.echo(to_json(response.snapshot))
            for event in response.events:
                _show(event, as_json, internal)

    settings.call(follow, patience=float("inf"))


@click.command()
@connection_options
@_filter_options
@click.option("--since", type=click.IntRange(1, INT64_MAX), metavar="REVISION", help="Begin there.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens.")
@json_option
@click.pass_obj
def events(
    settings: Settings,
    agents: tuple[str, ...],
    descendants: bool,
    names: tuple[str, ...],
    call_id: str,
    internal: bool,
    since: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the log of events, the oldest first."""

    async def read(client: Client) -> None:
        first = since or max(1, (await client.info()).oldest_revision)
        log = client.events(
            first,
            agents=agents,
            descendants=descendants,
            names=names,
            call_id=call_id,
            stop_at_end=not follow,
            show_internal=internal,
        )
        async for event in log:
            _show(event, as_json, internal)

    settings.call(read)


def _show(event: Event, as_json: bool, internal: bool) -> None:
    if is_hidden(event) and not internal:
        return
    if as_json:
        click.echo(to_json(event))
    else:
        time = event.time.ToDatetime().strftime("%H:%M:%S.%f")[:-3]
        about = f"{event.agent_id}/{event.call_id}" if event.call_id else event.agent_id
        text = describe(event).translate(show.CONTROL)
        if sys.stdout.isatty():
            click.echo(f"{event.revision:>6}  {time}  {event.name:<23} {about:<22} {text}".rstrip())
        else:
            click.echo(f"{event.revision}\t{time}\t{event.name}\t{about}\t{text}")
