"""The files that shells read their scripts from, and what a journal says of them."""

from __future__ import annotations

import contextlib
import hashlib
import os

from .messages import Spawn


def digest(order: Spawn) -> str:
    """A short fingerprint of what is run: enough to tell two attempts apart."""
    found = hashlib.blake2b(order.body, digest_size=8)
    words = (order.shell, *order.argv, order.zygote)
    found.update("\0".join(words).encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def write_script(path: str, body: bytes) -> None:
    """Byte for byte, for this user only. Raises OSError, and then leaves no file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    try:
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        remove(path)
        raise
    finally:
        os.close(fd)


def remove(path: str) -> None:
    """Whether or not it is there."""
    if path:
        with contextlib.suppress(OSError):
            os.unlink(path)
