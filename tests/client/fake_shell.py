"""Just enough of a call service to try the command line on: one process per call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc
from fake import Fake, refuse

from pinfold.v1 import (
    agent_pb2,
    agent_service_pb2,
    call_pb2,
    call_service_pb2,
    supervisor_service_pb2,
    watch_service_pb2,
)


class Process:
    def __init__(self, request: call_service_pb2.RunShellRequest) -> None:
        self.request = request
        self.chunks: list[call_service_pb2.ReadOutputResponse] = []
        self.size = 0
        self.changed = asyncio.Condition()
        self.result: call_pb2.CallResult | None = None
        self.cancelled = ""
        self.process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        request = self.request
        argv = [b"sh", b"-c", request.script] if request.script else list(request.argv.args)
        piped = request.stdin == call_service_pb2.STDIN_PIPE
        self.process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=request.cwd or None,
            env={**request.env},
            start_new_session=True,
        )
        self.watching = asyncio.create_task(self.watch())

    async def watch(self) -> None:
        assert self.process is not None
        await asyncio.gather(
            self.copy(self.process.stdout, call_pb2.OUTPUT_STREAM_OUT),
            self.copy(self.process.stderr, call_pb2.OUTPUT_STREAM_ERR),
        )
        code = await self.process.wait()
        result = call_pb2.CallResult(
            call_id=self.request.call_id,
            state=call_pb2.CALL_STATE_SUCCEEDED,
            cause=call_pb2.END_CAUSE_EXIT,
        )
        if code < 0:
            result.process.signal = -code
            result.cause = call_pb2.END_CAUSE_SIGNAL
        else:
            result.process.exit_code = code
        if self.cancelled:
            result.state = call_pb2.CALL_STATE_CANCELLED
            result.cause = call_pb2.END_CAUSE_CANCELLED
            result.cancel_reason = self.cancelled
            result.receipt.ended = 1
            result.receipt.proof = "subreaper"
            result.receipt.signals.add(signal=signal.SIGTERM, processes=1, step="term")
        async with self.changed:
            self.result = result
            self.changed.notify_all()

    async def copy(self, stream: asyncio.StreamReader | None, name: Any) -> None:
        assert stream is not None
        while data := await stream.read(65536):
            async with self.changed:
                chunk = call_service_pb2.ReadOutputResponse(
                    stream=name, offset=self.size, data=data
                )
                self.chunks.append(chunk)
                self.size += len(data)
                self.changed.notify_all()

    def call(self) -> call_pb2.Call:
        return call_pb2.Call(
            call_id=self.request.call_id, agent_id=self.request.agent_id, result=self.result
        )


class FakeShell(Fake):
    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, Process] = {}
        for name in ("RunShell", "GetCall", "CancelCall", "ReadOutput", "WriteInput"):
            self.on(name, getattr(self, f"_{name}"))
        self.on("CloseInput", self._CloseInput)
        self.on("OpenAgent", self._OpenAgent)
        self.on("GetInfo", self._GetInfo)
        self.on("Watch", self._Watch)

    async def close(self) -> None:
        for process in self.processes.values():
            if process.process is not None and process.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.process.pid, signal.SIGKILL)
                await process.process.wait()
        await super().close()

    async def _GetInfo(self, request: Any, context: Any) -> Any:
        return supervisor_service_pb2.GetInfoResponse(version="fake", pid=os.getpid())

    async def _OpenAgent(self, request: Any, context: Any) -> Any:
        agent = agent_pb2.Agent(agent_id=request.agent_id)
        return agent_service_pb2.OpenAgentResponse(agent=agent)

    async def _RunShell(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        process = self.processes[request.call_id] = Process(request)
        try:
            await process.run()
        except OSError as error:
            process.result = call_pb2.CallResult(
                state=call_pb2.CALL_STATE_FAILED,
                cause=call_pb2.END_CAUSE_START_ERROR,
                error=f"failed to start shell command: {error.strerror}",
            )
        return call_service_pb2.RunShellResponse(call_id=request.call_id, call=process.call())

    async def _GetCall(self, request: Any, context: Any) -> Any:
        return call_service_pb2.GetCallResponse(call=self.processes[request.call_id].call())

    async def _CancelCall(self, request: Any, context: grpc.aio.ServicerContext) -> Any:
        process = self.processes[request.call_id]
        if process.result is not None:
            code = grpc.StatusCode.FAILED_PRECONDITION
            await refuse(context, code, "Tool call is already done", reason="CALL_ALREADY_DONE")
        process.cancelled = request.reason or "cancel"
        assert process.process is not None
        os.killpg(process.process.pid, signal.SIGTERM)
        return call_service_pb2.CancelCallResponse(text="Tool cancellation requested")

    async def _ReadOutput(self, request: Any, context: Any) -> AsyncIterator[Any]:
        process = self.processes[request.call_id]
        position = 0
        while True:
            async with process.changed:
                while position == len(process.chunks) and process.result is None:
                    await process.changed.wait()
            if position == len(process.chunks):
                return
            yield process.chunks[position]
            position += 1

    async def _WriteInput(self, request: Any, context: Any) -> Any:
        process = self.processes[request.call_id].process
        assert process is not None
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(request.data)
            await process.stdin.drain()
        return call_service_pb2.WriteInputResponse(accepted=len(request.data))

    async def _CloseInput(self, request: Any, context: Any) -> Any:
        process = self.processes[request.call_id].process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        return call_service_pb2.CloseInputResponse()

    async def _Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        process = self.processes[request.filter.call_id]
        yield watch_service_pb2.WatchResponse(bookmark=watch_service_pb2.Bookmark(revision=1))
        async with process.changed:
            while process.result is None:
                await process.changed.wait()
        event = watch_service_pb2.Event(revision=2)
        event.call_ended.result.CopyFrom(process.result)
        yield watch_service_pb2.WatchResponse(events=[event])
