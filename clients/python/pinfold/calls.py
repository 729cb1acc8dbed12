"""An agent's calls: run, follow, cancel, feed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypedDict, Unpack

from pinfold.answers import OutputChunk, Placeholder, Result
from pinfold.errors import InternalError, StateError
from pinfold.handle import AgentHandle
from pinfold.lists import all_calls
from pinfold.output import read_output
from pinfold.retry import Outage
from pinfold.v1 import call_pb2, call_service_pb2
from pinfold.values import Bytes, duration, new_id, to_bytes, to_env
from pinfold.watch import make_filter, watch

# A string is a script for the shell; a sequence is a program with its arguments.
Command = str | bytes | Sequence[str | bytes]

_INPUT_PIECE = 256 * 1024


class CallOptions(TypedDict, total=False):
    """How a command is run. All are optional; times are in seconds."""

    # The tool_call_id; one is generated. The same id with the same options is the same call.
    call_id: str
    # Running time, in the foreground and in the background alike. None: no limit.
    timeout: float | None
    # Absolute, or relative to the agent's directory.
    cwd: Bytes | None
    # Added to the agent's environment.
    env: Mapping[str, str | bytes] | None
    # Into the background at once.
    background: bool
    # Overlaps with no other call of the agent.
    exclusive: bool
    # Bytes for the standard input, which then ends, unless `stdin` is set.
    input: bytes
    # More input comes by `write_input`, until `close_input`.
    stdin: bool
    # A terminal of its own: rows and columns.
    terminal: tuple[int, int] | None
    limits: call_service_pb2.CallLimits | None
    # Between TERM and KILL. None: 2 seconds.
    grace: float | None
    # End what outlives the command.
    kill_leftovers: bool
    # One line for lists.
    label: str
    # The shell for a script.
    shell: Bytes | None
    # Until it goes to the background. None: 2 seconds.
    foreground_budget: float | None


class Calls(AgentHandle):
    async def run(self, command: Command, **options: Unpack[CallOptions]) -> Result | Placeholder:
        """Runs a command; returns its result, or a placeholder when it went to the background.

        `command`: a script for the shell (`str` or `bytes`, byte for byte), or a sequence: a
        program and its arguments. A non-zero exit code, a signal and a timeout are results.
        Raises `InvalidRequestError` for a bad argument, before anything is started.
        """
        response = await self.connection.unary(
            self.connection.calls.RunShell, self._request(command, options), parks=True
        )
        if response.HasField("result"):
            return Result(response.result)
        return Placeholder(response.call_id, response.task_id, response.placeholder)

    async def start(self, command: Command, **options: Unpack[CallOptions]) -> call_pb2.Call:
        """The same, but returns as soon as the call is queued and durable.

        Follow it with `output` and `ended`, or collect it with a wait. It stays a foreground
        call for its `foreground_budget`.
        """
        request = self._request(command, options)
        request.detach = True
        response = await self.connection.unary(self.connection.calls.RunShell, request)
        if response.HasField("call"):
            return response.call
        # A repeat that came after its end.
        return await self.get(response.call_id)

    def _request(self, command: Command, options: CallOptions) -> call_service_pb2.RunShellRequest:
        request = call_service_pb2.RunShellRequest(
            agent_id=self.agent_id,
            call_id=options.get("call_id") or new_id("call"),
            timeout=duration(options.get("timeout")),
            cwd=to_bytes(options.get("cwd")),
            env=to_env(options.get("env")),
            background=options.get("background", False),
            exclusive=options.get("exclusive", False),
            input=options.get("input", b""),
            limits=options.get("limits"),
            grace=duration(options.get("grace")),
            label=options.get("label", ""),
            shell=to_bytes(options.get("shell")),
            foreground_budget=duration(options.get("foreground_budget")),
        )
        if isinstance(command, str | bytes):
            request.script = to_bytes(command)
        else:
            request.argv.SetInParent()
            request.argv.args.extend(to_bytes(argument) for argument in command)
        if options.get("stdin"):
            request.stdin = call_service_pb2.Stdin.STDIN_PIPE
        if options.get("kill_leftovers"):
            request.leftovers = call_service_pb2.LeftoverPolicy.LEFTOVER_POLICY_KILL
        if (size := options.get("terminal")) is not None:
            request.terminal.SetInParent()
            request.terminal.rows, request.terminal.columns = size
        return request

    def output(
        self,
        call_id: str,
        *,
        offset: int = 0,
        follow: bool = True,
        until_end: bool = True,
        stream: str | None = None,
        limit: int = 0,
    ) -> AsyncIterator[OutputChunk]:
        """Output from `offset` on, as it comes; a lost connection loses and repeats nothing.

        `follow`: stay until the streams are closed; with `until_end`, until the call has
        ended. `stream`: "out", "err" or both. `limit`: bytes, 0 for all. Moves no cursor.
        """
        return read_output(
            self.connection,
            self.agent_id,
            call_id,
            offset=offset,
            follow=follow,
            until_end=until_end,
            stream=stream,
            limit=limit,
        )

    async def read_output(self, call_id: str, *, stream: str | None = None) -> bytes:
        """All bytes there are now."""
        chunks = self.output(call_id, follow=False, stream=stream)
        return b"".join([chunk.data async for chunk in chunks])

    async def get(self, call_id: str) -> call_pb2.Call:
        """The call as it stands, by `call_id` or `task_id`. Consumes nothing."""
        response = await self.connection.unary(
            self.connection.calls.GetCall,
            call_service_pb2.GetCallRequest(agent_id=self.agent_id, call_id=call_id),
        )
        return response.call

    async def list(self, *, live_only: bool = False) -> list[call_pb2.Call]:
        """The agent's calls in start order."""
        return await all_calls(self.connection, self.agent_id, live_only=live_only)

    async def ended(self, call_id: str) -> Result:
        """Awaits the end of a call without consuming its result."""
        call = await self.get(call_id)
        if not call.HasField("result"):
            responses = watch(
                self.connection,
                0,
                make_filter(agents=[self.agent_id], call_id=call.call_id),
                stop_at_end=False,
                show_internal=False,
                progress=None,
            )
            async for response in responses:
                if any(event.HasField("call_ended") for event in response.events):
                    break
                if response.HasField("bookmark"):
                    # It may have ended before the snapshot.
                    call = await self.get(call_id)
                    if call.HasField("result"):
                        break
            if not call.HasField("result"):
                call = await self.get(call_id)
        if not call.HasField("result"):
            raise InternalError(f"call {call_id} ended without a result")
        return Result(call.result)

    async def cancel(
        self, call_id: str, *, reason: str = "", grace: float | None = None
    ) -> call_service_pb2.CancelCallResponse:
        """Asks for the end of one call and returns at once; `ended` awaits the end.

        Raises `StateError` (CALL_ALREADY_CANCELED, CALL_ALREADY_DONE, CALL_NOT_CANCELLABLE),
        `NotFoundError`.
        """
        outage = Outage(self.connection.patience)
        try:
            return await self.connection.unary(
                self.connection.calls.CancelCall,
                call_service_pb2.CancelCallRequest(
                    agent_id=self.agent_id, call_id=call_id, reason=reason, grace=duration(grace)
                ),
                outage=outage,
            )
        except StateError as error:
            # The reply to the first attempt was lost.
            if outage.repeated and error.reason == "CALL_ALREADY_CANCELED":
                return call_service_pb2.CancelCallResponse(text="Tool cancellation requested")
            raise

    async def write_input(self, call_id: str, data: bytes) -> None:
        """Writes all of `data` to the standard input, as fast as the program reads it.

        Not repeated after a lost connection: then nobody knows how much was taken.
        """
        view = memoryview(data)
        delay = 0.0
        while view:
            response = await self.connection.unary(
                self.connection.calls.WriteInput,
                call_service_pb2.WriteInputRequest(
                    agent_id=self.agent_id, call_id=call_id, data=bytes(view[:_INPUT_PIECE])
                ),
                repeat=False,
            )
            view = view[response.accepted :]
            delay = 0.0 if response.accepted else min(delay * 2 + 0.005, 0.25)
            if delay:
                await asyncio.sleep(delay)

    async def close_input(self, call_id: str) -> None:
        """Ends the standard input."""
        await self.connection.unary(
            self.connection.calls.CloseInput,
            call_service_pb2.CloseInputRequest(agent_id=self.agent_id, call_id=call_id),
        )

    async def resize(self, call_id: str, rows: int, columns: int) -> None:
        """Sets the size of the call's terminal."""
        await self.connection.unary(
            self.connection.calls.ResizeTerminal,
            call_service_pb2.ResizeTerminalRequest(
                agent_id=self.agent_id,
                call_id=call_id,
                size=call_service_pb2.TerminalSize(rows=rows, columns=columns),
            ),
        )
