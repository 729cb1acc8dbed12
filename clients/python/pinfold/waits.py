"""An agent's waits. Each result is consumed at most once."""

from __future__ import annotations

import time
from collections.abc import Sequence

from grpc import aio

from pinfold.answers import WaitAnswer
from pinfold.handle import AgentHandle
from pinfold.retry import Outage
from pinfold.v1 import call_service_pb2
from pinfold.values import duration, new_id

_Request = call_service_pb2.WaitRequest


class Waits(AgentHandle):
    """`timeout` is in seconds, `None` for no limit; its end is an answer (`timed_out`).

    Every wait has an id, generated when it isn't given, and is sent again after a lost
    connection. Cancelling the coroutine cancels the wait: nothing is consumed. All raise
    `NotFoundError` for an unknown call, `StateError` for one whose result was consumed already
    or that is being waited for by another.
    """

    async def wait_exact(
        self, call_id: str, timeout: float | None = None, *, wait_id: str = ""
    ) -> WaitAnswer:
        """Waits for one call and consumes its result."""
        form = _Request(exact=_Request.Exact(call_id=call_id))
        return await self._wait(form, timeout, wait_id)

    async def wait_all(
        self, call_ids: Sequence[str], timeout: float | None = None, *, wait_id: str = ""
    ) -> WaitAnswer:
        """Waits for all of 1 to 64 calls; consumes all results together, or none."""
        mode = call_service_pb2.SetMode.SET_MODE_ALL
        form = _Request(set=_Request.Set(call_ids=call_ids, mode=mode))
        return await self._wait(form, timeout, wait_id)

    async def wait_any(
        self, call_ids: Sequence[str], timeout: float | None = None, *, wait_id: str = ""
    ) -> WaitAnswer:
        """Waits for the first of 1 to 64 calls; consumes that result only."""
        mode = call_service_pb2.SetMode.SET_MODE_ANY
        form = _Request(set=_Request.Set(call_ids=call_ids, mode=mode))
        return await self._wait(form, timeout, wait_id)

    async def wait_any_background(
        self, timeout: float | None = None, *, wait_id: str = ""
    ) -> WaitAnswer:
        """Takes the oldest result that nobody has consumed, or the next one.

        Raises `StateError` when nothing runs in the background and nothing is completed.
        """
        return await self._wait(_Request(bare=_Request.Bare()), timeout, wait_id)

    async def wait_for_input(
        self, timeout: float | None = None, *, wait_id: str = ""
    ) -> WaitAnswer:
        """Waits for activating input; consumes neither input nor results."""
        return await self._wait(_Request(input=_Request.Input()), timeout, wait_id)

    async def _wait(
        self, request: call_service_pb2.WaitRequest, timeout: float | None, wait_id: str
    ) -> WaitAnswer:
        request.agent_id = self.agent_id
        request.wait_id = wait_id or new_id("wait")
        until = None if timeout is None else time.monotonic() + timeout
        outage = Outage(self.connection.patience)
        method = self.connection.calls.Wait
        while True:
            if until is not None:
                # A repeat has what is left of the time.
                left = max(0.0, until - time.monotonic()) if outage.repeated else timeout
                request.timeout.CopyFrom(duration(left) or request.timeout)
            started = time.monotonic()
            try:
                return WaitAnswer(await self.connection.attempt(method, request))
            except aio.AioRpcError as failure:
                await self.connection.bear(outage, failure, started)
