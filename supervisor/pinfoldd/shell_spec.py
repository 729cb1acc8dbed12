"""What the keeper needs to start a shell call, as it travels through the core unread."""

from __future__ import annotations

from typing import Any

import msgspec


class ShellSpec(msgspec.Struct, array_like=True):
    """Bytes as they came; nothing of it is shown in events."""

    argv: list[bytes]
    body: bytes  # the script; empty with argv
    shell: bytes
    cwd: bytes
    env: dict[str, bytes]
    stdin: str = "null"
    rows: int = 0
    columns: int = 0
    output_limit: int = 0
    memory: int = 0
    cpu_seconds: int = 0
    file_size: int = 0
    open_files: int = 0
    input: bytes = b""  # the initial standard input


encode = msgspec.msgpack.Encoder().encode
_decoder: Any = msgspec.msgpack.Decoder(ShellSpec)


def decode(data: bytes) -> ShellSpec:
    spec: ShellSpec = _decoder.decode(data)
    return spec
