"""`pinfold run`: a command in the foreground, as if the shell had started it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from pinfold import interrupts
from pinfold.cli import show
from pinfold.cli.settings import (
    SECONDS,
    Settings,
    agent_option,
    connection_options,
    json_option,
)

if TYPE_CHECKING:
    from pinfold.agent import Agent
    from pinfold.answers import OutputChunk
    from pinfold.calls import CallOptions, Command
    from pinfold.client import Client
    from pinfold.errors import UnavailableError
    from pinfold.v1.call_pb2 import CallResult

# Its own trouble, as opposed to the command's.
_OWN_FAILURE = 125
# A call that is followed never goes to the background by itself.
_FOREGROUND = 365 * 86400.0
# For output that is still on its way when a cancel comes too late.
_LAST_OUTPUT = 5.0
# The supervisor's, where none is given.
_GRACE = 2.0
_LEFTOVER_PAUSE = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Not for the command: it names a right over the supervisor.
_WITHHELD = ("PINFOLD_TOKEN",)


@click.command(context_settings={"allow_interspersed_args": False})
@connection_options
@agent_option
@click.option("-c", "script", metavar="SCRIPT", help="A script for the shell.")
@click.option("--background", is_flag=True, help="Print the call id and return.")
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Running time.")
@click.option("--grace", type=SECONDS, metavar="SECONDS", help="From TERM to KILL.")
@click.option("--cwd", metavar="DIRECTORY", help="Where it runs (default: here).")
@click.option("--env", "-e", "extra", multiple=True, metavar="NAME=VALUE", help="Environment.")
@click.option("--exclusive", is_flag=True, help="Overlap with no other call of the agent.")
@click.option("--kill-leftovers", is_flag=True, help="End what outlives the command.")
@click.option("-i", "--interactive", is_flag=True, help="Forward stdin, also from a terminal.")
@click.option("-t", "--tty", "with_tty", is_flag=True, help="Give it a terminal.")
@click.option("--label", default="", help="A name for lists.")
@json_option
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARGUMENT]...]")
@click.pass_obj
def run(
    settings: Settings,
    agent_id: str,
    script: str | None,
    background: bool,
    timeout: float | None,
    grace: float | None,
    cwd: str | None,
    extra: tuple[str, ...],
    exclusive: bool,
    kill_leftovers: bool,
    interactive: bool,
    with_tty: bool,
    label: str,
    as_json: bool,
    argv: tuple[str, ...],
) -> int:
    """Run a command under the supervisor and show its output as it comes.

    Starts a supervisor when none runs on the state directory. The exit code is the command's
    own; 128+N after signal N, 124 after --timeout, 130 after Ctrl-C, which ends everything
    that the command started. 125 is trouble of pinfold's own.
    """
    if (script is None) == (not argv):
        raise click.UsageError("give either a command after -- or a script with -c")
    command: Command = script if script is not None else [os.fsencode(part) for part in argv]
    options: CallOptions = {
        "timeout": timeout,
        "grace": grace,
        "env": _environment(extra),
        "exclusive": exclusive,
        "kill_leftovers": kill_leftovers,
        "label": label,
    }
    from pinfold.errors import PinfoldError
    from pinfold.launch import ensure_running

    try:
        options["cwd"] = _directory(cwd)
        if settings.is_local:
            ensure_running(settings.state_directory)
        return interrupts.run(
            _run(
                settings,
                agent_id,
                command,
                options,
                background=background,
                interactive=interactive,
                with_tty=with_tty,
                as_json=as_json,
            )
        )
    except PinfoldError as error:
        show.note(str(error))
        return _OWN_FAILURE


def _directory(cwd: str | None) -> bytes:
    """Where the command runs: the supervisor's own directory is another one."""
    from pinfold.errors import InvalidRequestError

    given = os.fsencode(cwd or "")
    if given.startswith(b"/"):
        return given
    try:
        here = os.getcwdb()
    except OSError as error:
        raise InvalidRequestError(
            f"cannot run in the current directory: {error.strerror}; name another with --cwd"
        ) from error
    return os.path.join(here, given) if given else here


def _environment(extra: tuple[str, ...]) -> dict[str, bytes]:
    environment: dict[str, bytes] = {}
    for key, value in os.environb.items():
        with contextlib.suppress(UnicodeDecodeError):
            environment[key.decode()] = value
    for name in _WITHHELD:
        environment.pop(name, None)
    for setting in extra:
        name, separator, text = setting.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--env needs NAME=VALUE, not {setting!r}")
        environment[name] = os.fsencode(text)
    return environment


async def open_cli_agent(client: Client, agent_id: str) -> Agent:
    """The agent that owns what is run from the command line, opened when it is new."""
    from pinfold.errors import AlreadyExistsError

    try:
        return await client.open_agent(agent_id, surface="tau", label="command line")
    except AlreadyExistsError:
        # Somebody's own agent: the call joins it.
        return client.agent(agent_id)


async def _run(
    settings: Settings,
    agent_id: str,
    command: Command,
    options: CallOptions,
    *,
    background: bool,
    interactive: bool,
    with_tty: bool,
    as_json: bool,
) -> int:
    async with settings.client() as client:
        agent = await open_cli_agent(client, agent_id)
        if background:
            options["background"] = True
            call = await agent.start(command, **options)
            if as_json:
                from pinfold.cli.plain import to_json

                line = to_json(call)
            else:
                line = call.call_id
            try:
                click.echo(line)
            except BrokenPipeError:
                raise
            except OSError as error:
                # It runs, and nobody else was told its id.
                from pinfold.cli.streams import drop_stdout, write_trouble

                show.note(f"{call.call_id} runs, but {write_trouble(error)}")
                drop_stdout()
                return _OWN_FAILURE
            return 0
        return await _Foreground(agent, as_json=as_json).run(
            command, options, interactive=interactive, with_tty=with_tty
        )


class _Foreground:
    """One command that is followed to its end."""

    def __init__(self, agent: Agent, *, as_json: bool) -> None:
        from pinfold.values import new_id

        self._agent = agent
        self._as_json = as_json
        self._call_id = new_id("call")
        self._caught: signal.Signals | None = None
        self._cancelling: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    async def run(
        self, command: Command, options: CallOptions, *, interactive: bool, with_tty: bool
    ) -> int:
        from pinfold.cli.streams import write_trouble
        from pinfold.cli.terminal import raw_terminal, terminal_size
        from pinfold.errors import UnavailableError

        forward = interactive or with_tty or _stdin_is_piped()
        options = {
            **options,
            "call_id": self._call_id,
            "foreground_budget": _FOREGROUND,
            "stdin": forward and not with_tty,
        }
        if with_tty:
            options["terminal"] = terminal_size()
        loop = asyncio.get_running_loop()
        self._starting = asyncio.ensure_future(self._agent.start(command, **options))
        for number in _SIGNALS:
            # As under nohup: who ignores one for its children wants them to live through it.
            if not interrupts.is_ignored(number):
                loop.add_signal_handler(number, self._catch, number)
        with raw_terminal() if with_tty else contextlib.nullcontext():
            try:
                await self._starting
            except asyncio.CancelledError:
                return 128 + (self._caught or signal.SIGINT)
            if with_tty:
                loop.add_signal_handler(signal.SIGWINCH, self._resize)
            feeding = asyncio.ensure_future(self._feed()) if forward else None
            following = asyncio.ensure_future(self._follow(options))
            leaving = asyncio.ensure_future(self._gone.wait())
            try:
                await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    show.note(f"left while it was ending; see `pinfold ps` ({self._call_id})")
                    return 128 + (self._caught or signal.SIGINT)
                result = await following
            except BrokenPipeError:
                await self._cancel_unread("output closed")
                return 128 + signal.SIGPIPE
            except OSError as error:
                trouble = write_trouble(error)
                cancelled = await self._cancel_unread(trouble)
                show.note(f"{trouble}; the call is cancelled" if cancelled else trouble)
                return _OWN_FAILURE
            except UnavailableError as error:
                # With a reason it is the supervisor's own answer.
                if error.reason:
                    raise
                raise self._lost() from error
            finally:
                for task in (feeding, following, leaving):
                    if task is not None:
                        task.cancel()
        return self._conclude(result, leftovers_ended=options.get("kill_leftovers", False))

    async def _cancel_unread(self, reason: str) -> bool:
        """False: it had ended by itself, with its output not yet written."""
        from pinfold.errors import NotFoundError, StateError

        try:
            await self._agent.cancel(self._call_id, reason=reason)
        except (NotFoundError, StateError):
            return False
        return True

    def _lost(self) -> UnavailableError:
        """One line for a call that nobody follows any more."""
        from pinfold.errors import UnavailableError

        owner = "" if self._agent.agent_id == "cli" else f"--agent {self._agent.agent_id} "
        return UnavailableError(
            f"the supervisor is gone, {self._call_id} runs on with its keeper: to have it back, "
            f"`pinfold serve --detach`, then `pinfold wait {owner}{self._call_id}`"
        )

    async def _follow(self, options: CallOptions) -> CallResult:
        from pinfold.cli.streams import Writer

        writer = Writer()
        async for chunk in self._agent.output(self._call_id):
            if self._as_json:
                await writer.write(1, _json_chunk(chunk))
            elif chunk.dropped:
                show.note(f"{chunk.dropped} bytes of output were not kept")
            else:
                await writer.write(2 if chunk.stream == "err" else 1, chunk.data)
        result = (await self._agent.ended(self._call_id)).message
        if self._as_json:
            from pinfold.cli.plain import to_json, to_plain

            line = to_json({"type": "result", **to_plain(result)}) + "\n"
            await writer.write(1, line.encode())
        if result.leftover_processes and options.get("kill_leftovers"):
            await self._end_leftovers(result.leftover_processes, options.get("grace"))
        return result

    async def _end_leftovers(self, count: int, grace: float | None) -> None:
        """The supervisor ends them; this says when it has."""
        from pinfold.errors import PinfoldError

        until = time.monotonic() + (_GRACE if grace is None else grace) + _LAST_OUTPUT
        alive = count
        with contextlib.suppress(PinfoldError):
            while alive := (await self._agent.get(self._call_id)).leftover_processes:
                if time.monotonic() > until:
                    break
                await asyncio.sleep(_LEFTOVER_PAUSE)
        outlived = f"{show.plural(count, 'process')} outlived the command"
        if alive:
            show.note(f"{outlived}; {alive} still to be ended, see `pinfold ps -a`")
        else:
            show.note(f"{outlived} and {'was' if count == 1 else 'were'} ended")

    async def _feed(self) -> None:
        from pinfold.cli.streams import read_pieces
        from pinfold.errors import NotFoundError, PinfoldError, StateError

        try:
            async for piece in read_pieces(0):
                await self._agent.write_input(self._call_id, piece)
            await self._agent.close_input(self._call_id)
        except (StateError, NotFoundError):
            # It reads no more.
            return
        except PinfoldError as error:
            show.note(f"input was not delivered: {error}")

    def _catch(self, number: int) -> None:
        if self._caught is not None:
            # Asked again: the call ends without being watched.
            self._starting.cancel()
            self._gone.set()
            return
        self._caught = signal.Signals(number)
        self._cancelling = asyncio.ensure_future(self._cancel())

    async def _cancel(self) -> None:
        from pinfold.errors import NotFoundError, PinfoldError, StateError

        await asyncio.wait({self._starting})
        reason = show.signal_name(self._caught or signal.SIGINT)
        try:
            await self._agent.cancel(self._call_id, reason=reason)
        except (NotFoundError, StateError):
            # It ended by itself; the rest of its output is on its way.
            await asyncio.sleep(_LAST_OUTPUT)
            self._gone.set()
        except PinfoldError as error:
            show.note(f"cannot cancel: {error}")
            self._gone.set()

    def _resize(self) -> None:
        from pinfold.cli.terminal import terminal_size

        async def resize() -> None:
            from pinfold.errors import PinfoldError

            with contextlib.suppress(PinfoldError):
                await self._agent.resize(self._call_id, *terminal_size())

        self._resizing = asyncio.ensure_future(resize())

    def _conclude(self, result: CallResult, *, leftovers_ended: bool) -> int:
        sys.stdout.flush()
        if line := show.end_line(result):
            show.note(line)
        if result.HasField("receipt") and (result.receipt.ended or result.receipt.survivors):
            for line in show.receipt_lines(result.receipt):
                show.note(line)
        if result.leftover_processes and not leftovers_ended:
            left = show.plural(result.leftover_processes, "process")
            agent_id = self._agent.agent_id
            show.note(f"{left} left running; --kill-leftovers ends such, as does the end of the")
            show.note(f"agent (pinfold agents --stop {agent_id})")
        code = show.exit_code(result)
        if self._caught is not None and code == 130:
            return 128 + self._caught
        return code


def _stdin_is_piped() -> bool:
    from pinfold.cli.streams import is_piped

    return is_piped(0)


def _json_chunk(chunk: OutputChunk) -> bytes:
    from pinfold.cli.plain import to_json

    line: dict[str, object] = {"type": "output", "stream": chunk.stream, "offset": chunk.offset}
    if chunk.dropped:
        line["dropped"] = chunk.dropped
    else:
        try:
            line["text"] = chunk.data.decode()
        except UnicodeDecodeError:
            line["base64"] = base64.b64encode(chunk.data).decode()
    return to_json(line).encode() + b"\n"
