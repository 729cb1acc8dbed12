"""The gRPC channel: options, TLS, and the token that goes with every RPC."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc import aio

from pinfold.address import Address, Target
from pinfold.errors import InvalidRequestError

_OPTIONS: list[tuple[str, int]] = [
    # The supervisor has bounds of its own, with names.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A connection per client: thousands of parked waits spread over several.
    ("grpc.use_local_subchannel_pool", 1),
    # Repeats are this client's own: they carry ids.
    ("grpc.enable_retries", 0),
    # A supervisor that was started again is there in a fraction of a second.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
]
_TCP_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for a TCP address. All are paths of PEM files.

    `ca`: who signed the supervisor's certificate (none: the system's roots). `certificate` and
    `key`: the client's own, where the supervisor asks for one. `server_name`: the name in the
    supervisor's certificate, where it isn't the host of the address.
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None

    @classmethod
    def from_environment(cls) -> Tls | None:
        """`PINFOLD_TLS_CA`, `_CERT`, `_KEY`, `_SERVER_NAME`; `None` when none of them is set."""
        values = [os.environ.get(f"PINFOLD_TLS_{n}") for n in ("CA", "CERT", "KEY", "SERVER_NAME")]
        return cls(*values) if any(values) else None

    def credentials(self) -> grpc.ChannelCredentials:
        def read(path: str | os.PathLike[str] | None) -> bytes | None:
            if path is None:
                return None
            try:
                return Path(path).read_bytes()
            except OSError as error:
                raise InvalidRequestError(
                    f"cannot read {os.fspath(path)}: {error.strerror}", reason="TLS_FILE"
                ) from error

        return grpc.ssl_channel_credentials(
            root_certificates=read(self.ca),
            private_key=read(self.key),
            certificate_chain=read(self.certificate),
        )


def open_channel(address: Address, target: Target, tls: Tls | None, token: str) -> aio.Channel:
    """A channel that connects with its first RPC."""
    if address.socket is not None:
        return aio.insecure_channel(target.name, options=_OPTIONS)
    options: list[tuple[str, int | str]] = [*_OPTIONS, *_TCP_OPTIONS]
    if tls is None:
        if token and not address.is_private:
            raise InvalidRequestError(
                f"a token is not sent to {address} in the clear: use TLS "
                "(PINFOLD_TLS_CA=FILE, or tls=Tls(...))",
                reason="TOKEN_WITHOUT_TLS",
            )
        return aio.insecure_channel(target.name, options=options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return aio.secure_channel(target.name, tls.credentials(), options=options)
