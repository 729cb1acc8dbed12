"""TCP: only with TLS, only with a token, with client certificates where they are asked for."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from pinfold import Client, PinfoldError, Tls
from support import Supervisor


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Certificates:
    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        server = authority.issue_cert("localhost", "127.0.0.1")
        client = authority.issue_cert("someone@example.org")
        self.ca = directory / "ca.pem"
        self.server = directory / "server.pem"
        self.server_key = directory / "server.key"
        self.client = directory / "client.pem"
        self.client_key = directory / "client.key"
        authority.cert_pem.write_to_path(str(self.ca))
        server.private_key_pem.write_to_path(str(self.server_key))
        server.cert_chain_pems[0].write_to_path(str(self.server))
        client.private_key_pem.write_to_path(str(self.client_key))
        client.cert_chain_pems[0].write_to_path(str(self.client))


class Listening:
    """A supervisor with a TLS listener, an operator's token, and how to get there."""

    def __init__(self, supervisor: Supervisor, certificates: Certificates, port: int) -> None:
        self.supervisor = supervisor
        self.certificates = certificates
        self.address = f"localhost:{port}"
        with supervisor.sync_client() as client:
            self.token = client.create_token(label="remote").token

    def client(self, *, token: str = "", certificate: bool = False) -> Client:
        own = self.certificates if certificate else None
        tls = Tls(
            ca=self.certificates.ca,
            certificate=own.client if own else None,
            key=own.client_key if own else None,
        )
        return Client.connect(self.address, token=token, tls=tls, patience=1.0)


@pytest.fixture
def listen(tmp_path: Path, make_supervisor: Callable[..., Supervisor]) -> Callable[..., Listening]:
    def make(*, client_ca: bool = False) -> Listening:
        certificates = Certificates(tmp_path)
        port = free_port()
        supervisor = make_supervisor("--address", f"localhost:{port}")
        supervisor.state.mkdir(parents=True)
        lines = [
            "[tls]",
            f'certificate = "{certificates.server}"',
            f'key = "{certificates.server_key}"',
            *([f'client_ca = "{certificates.ca}"'] if client_ca else []),
        ]
        (supervisor.state / "pinfold.toml").write_text("\n".join(lines) + "\n")
        supervisor.start()
        return Listening(supervisor, certificates, port)

    return make


async def test_an_operators_token_works_over_tls(listen: Callable[..., Listening]) -> None:
    listening = listen()
    async with listening.client(token=listening.token) as client:
        agent = await client.open_agent("far")
        answer = await agent.run("echo from afar")
        assert "out from afar" in answer.text
        assert "tls" in (await client.info()).capabilities


async def test_without_a_token_tcp_tells_nothing(listen: Callable[..., Listening]) -> None:
    listening = listen()
    async with listening.client() as client:
        with pytest.raises(PinfoldError) as refused:
            await client.info()
        assert refused.value.reason == "UNAUTHENTICATED"


async def test_an_agents_token_is_an_agents_over_tcp_too(listen: Callable[..., Listening]) -> None:
    listening = listen()
    async with listening.client(token=listening.token) as client:
        agent = await client.open_agent("far")
        await client.open_agent("other")
    async with listening.client(token=agent.token) as client:
        assert (await client.agent("far").info()).agent_id == "far"
        with pytest.raises(PinfoldError) as refused:
            await client.agent("other").info()
        assert refused.value.reason == "AGENT_UNKNOWN"


async def test_client_certificates_are_asked_for(listen: Callable[..., Listening]) -> None:
    listening = listen(client_ca=True)
    async with listening.client(token=listening.token, certificate=True) as client:
        assert (await client.info()).version
    async with listening.client(token=listening.token) as client:
        with pytest.raises(PinfoldError):
            await client.info()


@pytest.mark.parametrize(
    ("settings", "arguments", "told"),
    [
        ("", ["--address", "127.0.0.1:0"], "address: a TCP listener needs [tls]"),
        ('[tls]\ncertificate = "/none"\nkey = "/none"\n', ["--address", "127.0.0.1:0"], "/none"),
        ("[tls]\n", [], "tls.certificate"),
        ("[shell]\ngrase = 1\n", [], "shell.grase"),
        ("this is no toml", [], "pinfold.toml"),
    ],
)
def test_settings_that_cannot_be_used_are_told_in_a_line(
    tmp_path: Path, settings: str, arguments: list[str], told: str
) -> None:
    state = tmp_path / "s"
    state.mkdir()
    (state / "pinfold.toml").write_text(settings)
    command = [sys.executable, "-m", "pinfoldd", "--state", str(state), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
