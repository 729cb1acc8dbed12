"""The command `pinfold`: its subcommands, and how errors are shown."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import NoReturn

# A client forks nothing that uses gRPC, and its fork handlers cost time.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's own log lines are not for people.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click

from pinfold.cli.settings import connection_options

# Where each command lives; it is imported when it is used.
_COMMANDS = {
    "serve": ("server", "Start a supervisor."),
    "run": ("run", "Run a command and show its output."),
    "ps": ("calls", "List calls."),
    "output": ("calls", "Print the output of a call."),
    "wait": ("calls", "Wait for calls and take their results."),
    "cancel": ("calls", "End calls with everything they started."),
    "watch": ("log", "Show what happens, as it happens."),
    "events": ("log", "Print the log of events."),
    "agents": ("lists", "List agents."),
    "tasks": ("lists", "List tasks."),
    "info": ("server", "Describe the supervisor."),
    "stop": ("server", "End all calls and the supervisor."),
    "restart": ("server", "Start the supervisor anew; calls run on."),
    "verify": ("verify", "Check every rule on a live supervisor."),
    "token": ("token", "Make, list and revoke tokens."),
}


_WRITE_ERRORS = (
    errno.EBADF,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EINVAL,
    errno.EIO,
    errno.ENOSPC,
)


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"pinfold.cli.{_COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"pinfold {version('pinfold')}")
        ctx.exit()


@click.command(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96}
)
@connection_options
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def cli() -> None:
    """Supervise the processes of agents: none strays, none is lost."""


def run(arguments: list[str] | None = None) -> int:
    """One command; returns the exit code. Expected trouble is one line on stderr."""
    try:
        code = cli.main(arguments, prog_name="pinfold", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # As a program does that SIGPIPE ended; stdout must not be flushed again.
        from pinfold.cli.streams import drop_stdout

        drop_stdout()
        return 141
    except OSError as error:
        return _failed(error)
    except Exception as error:
        from pinfold.errors import PinfoldError

        if not isinstance(error, PinfoldError):
            raise
        click.echo(f"pinfold: {error}", err=True)
        return 1


def _failed(error: OSError) -> int:
    from pinfold.cli.streams import drop_stdout, write_trouble

    if error.errno in _WRITE_ERRORS and error.filename is None:
        drop_stdout()
        text = write_trouble(error)
    else:
        about = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        text = f"{about}{error.strerror or error}"
    click.echo(f"pinfold: {text}", err=True)
    return 1


def main() -> NoReturn:
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from pinfold.cli.streams import open_missing

        open_missing()
    code = run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that read stdin or write to a reader that stopped must not hold the exit.
    os._exit(code)
