"""Repeats after a lost connection. Every repeated request carries an id, so it is safe."""

from __future__ import annotations

import asyncio
import random
import time

import grpc
from grpc import aio

from pinfold.errors import PinfoldError, UnavailableError, from_rpc

_FIRST = 0.05
_LONGEST = 1.0
_FACTOR = 1.7


class Outage:
    """How long the supervisor has been out of reach, and whether to go on trying.

    `patience` is in seconds from the first failure; any success ends the outage.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._delay = _FIRST

    @property
    def repeated(self) -> bool:
        return self._since is not None

    def over(self) -> None:
        """Something was received."""
        self._since = None
        self._delay = _FIRST

    async def bear(self, failure: aio.AioRpcError, attempt_started: float) -> None:
        """Sleeps before the next attempt, or raises what `failure` means."""
        error = from_rpc(failure)
        if not is_lost_connection(error):
            raise error from failure
        now = time.monotonic()
        # An attempt that was parked for a while had a connection until just now.
        if self._since is None or now - attempt_started > 2 * _LONGEST:
            self._since, self._delay = now, _FIRST
        left = self._since + self._patience - now
        if left <= 0:
            raise error from failure
        delay = error.retry_after if error.retry_after is not None else self._delay
        self._delay = min(self._delay * _FACTOR, _LONGEST)
        await asyncio.sleep(min(delay * random.uniform(0.5, 1.0), left))


def is_lost_connection(error: PinfoldError) -> bool:
    """Nothing was decided, as far as is known: the same request may be sent again."""
    if isinstance(error, UnavailableError):
        # With a reason it is the supervisor's own answer, such as "draining".
        return not error.reason or error.retry_after is not None
    # A server that goes down, or drops a burst, ends RPCs as CANCELLED. A cancel of our own
    # arrives as asyncio.CancelledError, never as a status.
    return error.code is grpc.StatusCode.CANCELLED and not error.reason
