"""Where the supervisor is: an address, or a state directory with its socket in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pinfold.errors import InvalidRequestError

SOCKET_NAME = "pinfold.sock"

# sun_path is 108 bytes with its closing zero.
_SOCKET_PATH_LIMIT = 107
# What a gRPC target can carry as it is; other bytes have a meaning in URIs.
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]+\Z")
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:|\Z)")


def default_state() -> Path:
    """`PINFOLD_STATE`, or the user's state directory for pinfold."""
    if state := os.environ.get("PINFOLD_STATE"):
        return Path(state)
    from platformdirs import user_state_dir

    return Path(user_state_dir("pinfold"))


@dataclass(frozen=True, slots=True)
class Address:
    """A resolved address. `socket` is set for a unix socket, `host` for TCP ("host:port")."""

    socket: Path | None = None
    host: str = ""

    @property
    def is_private(self) -> bool:
        """Nothing sent there leaves this machine."""
        return self.socket is not None or _LOOPBACK.match(self.host) is not None

    def __str__(self) -> str:
        return f"unix:{self.socket}" if self.socket is not None else self.host


def resolve(address: str | None = None, state: str | os.PathLike[str] | None = None) -> Address:
    """The address to connect to.

    The first that is there of: `address`, the socket in `state`, `PINFOLD_ADDRESS`, the socket
    in the default state directory. An address is "unix:PATH", a path with a slash, or
    "HOST:PORT".
    """
    if address is None and state is None:
        address = os.environ.get("PINFOLD_ADDRESS") or None
    if address is None:
        directory = Path(state) if state is not None else default_state()
        return Address(socket=directory.absolute() / SOCKET_NAME)
    if address.startswith("unix:"):
        path = re.sub(r"\Aunix:(//(?=/))?", "", address)
        return Address(socket=Path(path).absolute())
    if "/" in address:
        return Address(socket=Path(address).absolute())
    if not re.fullmatch(r".+:\d{1,5}", address):
        raise InvalidRequestError(
            f"not an address: {address!r} (expected unix:PATH or HOST:PORT)",
            reason="INVALID_ADDRESS",
        )
    return Address(host=address)


class Target:
    """A gRPC target for an address. A long or odd socket path is reached through a descriptor
    of its directory, which stays open until `close`."""

    def __init__(self, address: Address) -> None:
        self._directory: int | None = None
        self._address = address
        if address.socket is None:
            self.name = address.host
            return
        path = str(address.socket)
        if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT and _PLAIN.match(path):
            self.name = f"unix:{path}"
            return
        try:
            self._directory = os.open(
                address.socket.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            )
        except OSError:
            # Connecting then fails with the usual "not there".
            self.name = "unix:/proc/self/fd/none/pinfold.sock"
            return
        self.name = f"unix:/proc/self/fd/{self._directory}/{address.socket.name}"

    def close(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None
