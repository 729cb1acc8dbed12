"""What every command needs: where the supervisor is."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pinfold import interrupts

if TYPE_CHECKING:
    from pinfold.client import Client

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

# A person waits for less than a program.
_PATIENCE = 10.0
# Thirty years; added to a time it is a date that every part can write down.
_LONGEST = 1e9


@dataclass
class Settings:
    state: str | None = None
    address: str | None = None
    token: str | None = None

    @property
    def state_directory(self) -> Path:
        from pinfold.address import default_state

        return Path(self.state).absolute() if self.state else default_state().absolute()

    @property
    def is_local(self) -> bool:
        """The supervisor is that of a state directory, and may be started."""
        from pinfold.address import SOCKET_NAME, resolve

        resolved = resolve(self.address, None if self.address else self.state)
        return resolved.socket == self.state_directory / SOCKET_NAME

    def client(self, *, patience: float = _PATIENCE) -> Client:
        from pinfold.client import Client

        if self.address is not None:
            return Client.connect(self.address, token=self.token, patience=patience)
        return Client.connect(state=self.state, token=self.token, patience=patience)

    def call(self, action: Callable[[Client], Awaitable[R]], *, patience: float = _PATIENCE) -> R:
        """Runs `action` with a client that is closed afterwards."""

        async def with_client() -> R:
            async with self.client(patience=patience) as client:
                return await action(client)

        if self.is_local:
            from pinfold.errors import UnavailableError
            from pinfold.launch import is_listening

            # Nothing to be patient for.
            if not is_listening(self.state_directory):
                raise UnavailableError(
                    f"no supervisor runs on {self.state_directory}: start it with "
                    "`pinfold serve --detach`, or name another with --state"
                )
        return interrupts.run(with_client())


class _Seconds(click.FloatRange):
    """Seconds that a Duration can hold: `nan` is in every range of click's."""

    name = "seconds"

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(0, _LONGEST, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


SECONDS = _Seconds()
SECONDS_NOT_ZERO = _Seconds(min_open=True)
# As the fields of the messages are.
INT64_MAX = (1 << 63) - 1


def _set(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    settings = ctx.ensure_object(Settings)
    if value is not None and parameter.name is not None:
        setattr(settings, parameter.name, value)


def connection_options(function: F) -> F:
    """--state, --address and --token; they may stand before or after the command."""
    for name, metavar, text in (
        ("--token", "TOKEN", "Who one is. [env: PINFOLD_TOKEN]"),
        ("--address", "ADDRESS", "unix:PATH or HOST:PORT. [env: PINFOLD_ADDRESS]"),
        ("--state", "DIRECTORY", "The supervisor's state directory. [env: PINFOLD_STATE]"),
    ):
        function = click.option(
            name, metavar=metavar, help=text, expose_value=False, callback=_set
        )(function)
    return function


json_option = click.option("--json", "as_json", is_flag=True, help="JSON, one object per line.")
agent_option = click.option(
    "--agent", "agent_id", default="cli", show_default=True, help="The agent that owns the call."
)
