"""`pinfold serve`, `info`, `stop`, `restart`: the supervisor itself."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import click

from pinfold.cli import show
from pinfold.cli.plain import to_json
from pinfold.cli.settings import SECONDS, Settings, connection_options, json_option
from pinfold.errors import UnavailableError

if TYPE_CHECKING:
    from pinfold.client import Client
    from pinfold.v1.supervisor_service_pb2 import GetInfoResponse, StopResponse

_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# After its last word the daemon closes its files and goes.
_EXIT_TIMEOUT = 10.0


@click.command(context_settings={"ignore_unknown_options": True})
@connection_options
@click.option("--detach", is_flag=True, help="In the background; return when it is ready.")
@click.option("--log-level", type=click.Choice(_LOG_LEVELS, case_sensitive=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[DAEMON OPTION]...")
@click.pass_obj
def serve(
    settings: Settings, detach: bool, log_level: str | None, arguments: tuple[str, ...]
) -> int:
    """Start a supervisor on the state directory, in the foreground.

    Other options are the daemon's own: see `pinfoldd --help`.
    """
    from pinfold import launch

    state = settings.state_directory
    if settings.address is not None:
        arguments = ("--address", settings.address, *arguments)
    if log_level is not None:
        arguments = ("--log-level", log_level, *arguments)
    if detach:
        if not launch.start_detached(state, arguments):
            show.note(f"a supervisor runs on {state} already")
            return 1
        click.echo(f"ready on unix:{state / 'pinfold.sock'}")
        return 0
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        show.note(f"cannot use the state directory {state}: {error.strerror}")
        return 1
    return _become(launch.command(state, arguments))


def _become(command: list[str]) -> NoReturn:
    sys.stdout.flush()
    os.execv(command[0], command)


@click.command()
@connection_options
@json_option
@click.pass_obj
def info(settings: Settings, as_json: bool) -> None:
    """Describe the supervisor: version, limits, what is live."""
    answer = settings.call(lambda client: client.info())
    if as_json:
        click.echo(to_json(answer))
        return
    show.table(("", ""), _rows(answer), empty="")


def _rows(answer: GetInfoResponse) -> list[tuple[str, str]]:
    rows = [
        ("version", answer.version),
        ("address", answer.address),
        ("state", os.fsdecode(answer.state_directory)),
        ("pid", f"{answer.pid}, keeper {answer.keeper_pid}"),
        ("up", show.age(answer.started_at)),
        (
            "live",
            f"{show.plural(answer.live_calls, 'call')}, {show.plural(answer.live_agents, 'agent')}",
        ),
        ("waits", str(answer.parked_waits)),
        ("log", f"revisions {answer.oldest_revision} to {answer.revision}"),
        ("durability", answer.durability),
        ("containment", answer.containment),
        ("capabilities", ", ".join(answer.capabilities)),
        ("roles", ", ".join(answer.roles)),
    ]
    if answer.draining:
        rows.append(("draining", "takes no new calls"))
    return [(name, value) for name, value in rows if value]


@click.command()
@connection_options
@click.option("--grace", type=SECONDS, metavar="SECONDS", help="From TERM to KILL.")
@click.option("--reason", default="", help="Recorded in the log.")
@json_option
@click.pass_obj
def stop(settings: Settings, grace: float | None, reason: str, as_json: bool) -> int:
    """Drain, end all calls and the supervisor; return when nothing is left."""
    from pinfold.launch import is_listening

    if settings.is_local and not is_listening(settings.state_directory):
        show.note(f"no supervisor runs on {settings.state_directory}")
        return 0

    async def end(client: Client) -> StopResponse:
        with _awaited_exit(client, await client.info()):
            return await client.stop(grace=grace, reason=reason)

    answer = settings.call(end)
    if as_json:
        click.echo(to_json(answer))
    else:
        click.echo(
            f"stopped; ended {show.plural(answer.ended_calls, 'call')}, "
            f"{show.plural(answer.ended_processes, 'process')}"
        )
    if answer.surviving_pids:
        show.note("still alive: " + ", ".join(map(str, answer.surviving_pids)))
        return 1
    return 0


@click.command()
@connection_options
@click.option("--reason", default="restart", help="Recorded in the log.")
@click.pass_obj
def restart(settings: Settings, reason: str) -> None:
    """Start the supervisor anew. Calls run on, and nothing of them is lost."""
    from pinfold.launch import is_listening, start_detached

    if not settings.is_local:
        raise click.UsageError("only the supervisor of a state directory can be restarted")
    state = settings.state_directory

    async def end(client: Client) -> int:
        before = await client.info()
        with _awaited_exit(client, before):
            await client.stop(keep_groups=True, reason=reason)
        return before.live_calls

    live = settings.call(end) if is_listening(state) else 0
    start_detached(state)

    async def count(client: Client) -> int:
        return (await client.info()).live_calls

    after = settings.call(count)
    click.echo(f"restarted; {show.plural(live, 'call')} before, {after} now")


@contextlib.contextmanager
def _awaited_exit(client: Client, before: GetInfoResponse) -> Iterator[None]:
    """Awaits the end of the daemon's process, where it is one of this machine."""
    if client.address.socket is None:
        yield
        return
    try:
        process = os.pidfd_open(before.pid)
    except OSError:
        yield
        return
    try:
        yield
        if not select.select([process], [], [], _EXIT_TIMEOUT)[0]:
            raise UnavailableError(
                f"the supervisor (pid {before.pid}) answered but does not exit",
                reason="EXIT_TIMEOUT",
            )
    finally:
        os.close(process)
