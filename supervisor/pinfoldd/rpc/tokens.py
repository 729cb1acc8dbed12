"""Tokens: capabilities for operators and agents. Only digests are stored.

A worker's token is derived from the state directory's secret and its agent's id, so that it
survives a restart of the daemon without being written down. Made tokens are random.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import msgspec

from pinfoldd.core.reasons import Reason, Rejected

_PREFIX = "pf"


class Token(msgspec.Struct):
    """A made token. `agent` empty: an operator's."""

    id: str
    digest: str
    agent: str
    label: str
    created: float
    expires: float | None


class Tokens:
    """All tokens of one state directory."""

    def __init__(self, state: Path) -> None:
        self._file = state / "tokens.json"
        self._secret = _secret(state / "secret")
        self._tokens: dict[str, Token] = {}
        if self._file.exists():
            loaded = msgspec.json.decode(self._file.read_bytes(), type=list[Token])
            self._tokens = {token.id: token for token in loaded}

    def has_operator(self) -> bool:
        """Whether anyone may hold a token that allows everything."""
        now = time.time()
        return any(
            not token.agent and (token.expires is None or token.expires > now)
            for token in self._tokens.values()
        )

    def worker(self, agent_id: str) -> str:
        """The token of an agent's worker."""
        mark = hmac.new(self._secret, agent_id.encode(), hashlib.sha256).hexdigest()[:40]
        return f"{_PREFIX}w.{agent_id}.{mark}"

    def check(self, token: str) -> str | None:
        """The agent it stands for ("" for an operator), or None if it is not valid."""
        kind, _, rest = token.partition(".")
        name, _, mark = rest.rpartition(".")
        if kind == f"{_PREFIX}w":
            good = name and hmac.compare_digest(token.encode(), self.worker(name).encode())
            return name if good else None
        known = self._tokens.get(name)
        if kind != _PREFIX or known is None:
            return None
        if not hmac.compare_digest(_digest(mark), known.digest):
            return None
        if known.expires is not None and known.expires <= time.time():
            return None
        return known.agent

    def create(self, agent: str, label: str, valid_for: float | None) -> tuple[str, Token]:
        """A new token; its text is never to be had again."""
        mark = secrets.token_urlsafe(32).replace(".", "_")
        token = Token(
            id=secrets.token_hex(6),
            digest=_digest(mark),
            agent=agent,
            label=label,
            created=time.time(),
            expires=None if valid_for is None else time.time() + valid_for,
        )
        self._tokens[token.id] = token
        self._save()
        return f"{_PREFIX}.{token.id}.{mark}", token

    def list(self) -> list[Token]:
        return sorted(self._tokens.values(), key=lambda token: token.created)

    def revoke(self, token_id: str) -> None:
        if token_id not in self._tokens:
            raise Rejected(Reason.TOKEN_UNKNOWN, token_id=token_id)
        del self._tokens[token_id]
        self._save()

    def _save(self) -> None:
        data: Any = msgspec.to_builtins(self.list())
        new = self._file.with_suffix(".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._file)


def _digest(mark: str) -> str:
    return hashlib.sha256(mark.encode()).hexdigest()


def _secret(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        secret = secrets.token_bytes(32)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(secret)
        return secret
