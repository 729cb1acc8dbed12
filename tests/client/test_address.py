"""Addresses: which one is meant, and sockets with paths that gRPC can't take."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake import Fake, sequence

from pinfold import Client, errors
from pinfold.address import Address, Target, resolve
from pinfold.v1 import supervisor_service_pb2


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PINFOLD_ADDRESS", "PINFOLD_STATE", "PINFOLD_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_forms() -> None:
    assert resolve("unix:/a/b.sock").socket == Path("/a/b.sock")
    assert resolve("unix:///a/b.sock").socket == Path("/a/b.sock")
    assert resolve("/a/b.sock").socket == Path("/a/b.sock")
    assert resolve("unix:b.sock").socket == Path.cwd() / "b.sock"
    assert resolve("localhost:4000") == Address(host="localhost:4000")
    assert resolve("[::1]:4000") == Address(host="[::1]:4000")
    assert str(resolve("/a/b.sock")) == "unix:/a/b.sock"


@pytest.mark.parametrize("text", ["", "nonsense", "host:", "host:port"])
def test_no_address(text: str) -> None:
    with pytest.raises(errors.InvalidRequestError, match="not an address"):
        resolve(text)


def test_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_STATE", "/s")
    assert resolve().socket == Path("/s/pinfold.sock")
    monkeypatch.setenv("PINFOLD_ADDRESS", "unix:/other")
    assert resolve().socket == Path("/other")
    assert resolve(state="/t").socket == Path("/t/pinfold.sock")
    assert resolve("h:1", "/t").host == "h:1"


def test_private() -> None:
    for text in ("/a/b", "localhost:1", "127.0.0.1:1", "[::1]:1"):
        assert resolve(text).is_private, text
    for text in ("example.com:1", "127.example.com:1", "localhost.example.com:1", "10.0.0.1:1"):
        assert not resolve(text).is_private, text


@pytest.fixture
def parent() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("name", ["d" * 150, "a b", "100%", "q?x#y", "ü", "%41", "a:b"])
async def test_any_path_can_be_connected_to(fake: Fake, parent: Path, name: str) -> None:
    directory = parent / name
    directory.mkdir()
    (directory / "pinfold.sock").hardlink_to(fake.socket)
    fake.on("GetInfo", sequence(supervisor_service_pb2.GetInfoResponse(version="1")))
    async with Client.connect(state=directory, token="", patience=0.5) as client:
        assert (await client.info()).version == "1"


def test_a_directory_that_is_not_there(parent: Path) -> None:
    target = Target(resolve(state=parent / ("x" * 200)))
    assert target.name.startswith("unix:")
    target.close()
