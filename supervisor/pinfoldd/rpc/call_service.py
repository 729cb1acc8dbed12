"""CallService: shells, waits, cancels, output."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc

from pinfold.v1 import call_pb2, call_service_pb2
from pinfoldd import shell_spec
from pinfoldd.core import commands as c
from pinfoldd.core.model import Call
from pinfoldd.core.reasons import Reason, Rejected
from pinfoldd.core.values import WaitMode
from pinfoldd.render import acknowledgements, labels
from pinfoldd.rpc import checks, convert, errors, wire
from pinfoldd.rpc.answers import Answers
from pinfoldd.rpc.door import FAULT, Door, caller
from pinfoldd.rpc.errors import Invalid
from pinfoldd.rpc.operations import Operations

log = logging.getLogger(__name__)

MAX_SET = 64
_ARGV_BYTES = 131_071
_BATCH_BYTES = 256 * 1024  # of answers in one message: clients take 4 MiB by default
_DATA_FIELD = call_service_pb2.ReadOutputResponse.DATA_FIELD_NUMBER
_STREAMS = {1: call_pb2.OUTPUT_STREAM_OUT, 2: call_pb2.OUTPUT_STREAM_ERR}


class CallService:
    def __init__(self, operations: Operations, answers: Answers, door: Door) -> None:
        self._do = operations
        self._answers = answers
        self._door = door
        # Looked for in the directories once, not for each call.
        self._shell = operations.config.shell_program().encode("utf-8", "surrogateescape")

    # ------------------------------------------------------------ start

    async def RunShell(
        self, request: call_service_pb2.RunShellRequest
    ) -> call_service_pb2.RunShellResponse:
        command = self.start_command(request)
        call = await self._do.run(command, detach=request.detach)
        return self._answers.run(call, detached=request.detach)

    def start_command(self, request: call_service_pb2.RunShellRequest) -> c.StartCall:
        """A checked request as a command. Raises Rejected before anything has happened."""
        config = self._do.config.shell
        agent = self._do.state.live_agent(request.agent_id)
        argv = list(request.argv.args)
        program = request.WhichOneof("program")
        if program == "argv":
            _check_argv(argv)
        elif not request.script.strip():
            raise Invalid("script", "must not be empty")
        elif b"\0" in request.script:
            raise Invalid("script", "has a NUL byte")
        elif len(request.script) > config.script_bytes:
            raise Invalid("script", f"at most {config.script_bytes} bytes")
        env = checks.environment(dict(request.env), "env", config.env_value_bytes)
        checks.exec_size("argv" if argv else "env", argv, env, agent.env)
        cwd = checks.path(request.cwd, "cwd")
        base = agent.cwd.encode("utf-8", "surrogateescape") or b"/"
        limits = request.limits
        terminal = request.HasField("terminal")
        size = request.terminal
        stdin = "pipe" if request.stdin == call_service_pb2.STDIN_PIPE or terminal else "null"
        cpu = checks.seconds(limits.cpu_time, "limits.cpu_time")
        spec = shell_spec.ShellSpec(
            argv=argv,
            body=request.script,
            shell=checks.path(request.shell, "shell") or self._shell,
            cwd=cwd if cwd.startswith(b"/") else base.rstrip(b"/") + b"/" + cwd if cwd else base,
            env=env,
            stdin=stdin,
            rows=(checks.count(size.rows, "terminal.rows", 10_000) or 24) if terminal else 0,
            columns=checks.count(size.columns, "terminal.columns", 10_000) or 80,
            output_limit=_output_limit(limits.output_bytes, config.output_bytes),
            memory=checks.count(limits.memory_bytes, "limits.memory_bytes", 2**62),
            cpu_seconds=int(cpu + 0.999),
            file_size=checks.count(limits.file_bytes, "limits.file_bytes", 2**62),
            open_files=checks.count(limits.open_files, "limits.open_files", 1_000_000),
            input=request.input,
        )
        timeout: float | None = config.timeout
        if request.HasField("timeout"):
            timeout = checks.seconds(request.timeout, "timeout")
        budget = config.foreground_budget
        if request.HasField("foreground_budget"):
            budget = checks.seconds(request.foreground_budget, "foreground_budget")
        grace = config.grace
        if request.HasField("grace"):
            grace = checks.seconds(request.grace, "grace")
        label = checks.text(request.label, "label", checks.MAX_LABEL_BYTES, empty=True)
        if not label:
            label = labels.argv_label(argv) if argv else labels.label(request.script[:400])
        return c.StartCall(
            agent=request.agent_id,
            call=checks.client_id(request.call_id, "call_id", "call"),
            digest=digest_of(request, "call_id", "detach"),
            label=labels.label(label),
            spec=shell_spec.encode(spec),
            exclusive=request.exclusive,
            background=request.background,
            budget=budget,
            timeout=timeout,
            grace=grace,
            kill_leftovers=request.leftovers == call_service_pb2.LEFTOVER_POLICY_KILL,
        )

    # ------------------------------------------------------------ look

    async def GetCall(
        self, request: call_service_pb2.GetCallRequest
    ) -> call_service_pb2.GetCallResponse:
        call = self._do.find_call(request.agent_id, request.call_id)
        return call_service_pb2.GetCallResponse(call=self._answers.call(call, text=True))

    async def ListCalls(
        self, request: call_service_pb2.ListCallsRequest
    ) -> call_service_pb2.ListCallsResponse:
        size, start = checks.page(request.page_size, request.page_token)
        state = self._do.state
        if request.agent_id:
            agents = [state.agent(request.agent_id)]
        else:
            agents = [a for a in state.agents.values() if caller.get().may(state, a.id)]
        calls: list[Call] = []
        for agent in agents:
            ids = agent.live if request.live_only else agent.calls
            calls += [agent.calls[call_id] for call_id in ids]
        calls.sort(key=lambda call: call.queued_wall)
        page = calls[start : start + size]
        more = str(start + size) if start + size < len(calls) else ""
        return call_service_pb2.ListCallsResponse(
            calls=[self._answers.call(call) for call in page], next_page_token=more
        )

    # ------------------------------------------------------------ cancel

    async def CancelCall(
        self, request: call_service_pb2.CancelCallRequest
    ) -> call_service_pb2.CancelCallResponse:
        call_id = request.call_id.strip()
        if not call_id:
            raise Invalid("call_id", "`tool_call_id` must not be empty")
        grace = None
        if request.HasField("grace"):
            grace = checks.seconds(request.grace, "grace")
        reason = checks.text(request.reason, "reason", checks.MAX_LABEL_BYTES, empty=True)
        by = "agent" if caller.get().agent else "operator"
        events = await self._do.loop.submit(
            c.CancelCall(request.agent_id, call_id, by, labels.label(reason), grace)
        )
        return call_service_pb2.CancelCallResponse(
            text=acknowledgements.CANCEL_REQUESTED, revision=events[0][0].revision
        )

    # ------------------------------------------------------------ wait

    async def Wait(self, request: call_service_pb2.WaitRequest) -> call_service_pb2.WaitResponse:
        command = wait_command(request)
        settled = await self._do.wait(command)
        agent = self._do.state.agent(command.agent)
        return self._answers.wait(agent, command.wait, settled)

    async def WaitStream(
        self, requests: AsyncIterator[call_service_pb2.WaitStreamRequest]
    ) -> AsyncIterator[call_service_pb2.WaitStreamResponse]:
        ready: deque[call_service_pb2.WaitStreamResponse.Answer] = deque()
        news = asyncio.Event()
        parked: set[asyncio.Task[None]] = set()

        async def one(request: call_service_pb2.WaitRequest) -> None:
            ready.append(await self._answer(request))
            news.set()

        async def read() -> None:
            async for request in requests:
                for wait in request.waits:
                    task = asyncio.create_task(one(wait))
                    parked.add(task)
                    task.add_done_callback(parked.discard)
            if parked:
                await asyncio.wait(parked)

        reader = asyncio.create_task(read())
        reader.add_done_callback(lambda _: news.set())
        try:
            while not (reader.done() and not ready):
                await news.wait()
                news.clear()
                while ready:
                    yield call_service_pb2.WaitStreamResponse(
                        answers=wire.batch(ready, _BATCH_BYTES)
                    )
        finally:
            reader.cancel()
            for task in list(parked):
                task.cancel()

    async def _answer(
        self, request: call_service_pb2.WaitRequest
    ) -> call_service_pb2.WaitStreamResponse.Answer:
        """One wait of a stream: what would be an RPC's error is data."""
        answer = call_service_pb2.WaitStreamResponse.Answer
        failure = call_service_pb2.WaitStreamResponse.Failure
        try:
            self._door.check(caller.get(), request.agent_id)
            response = await self.Wait(request)
        except Rejected as error:
            refused = failure(
                code=errors.CODES[error.reason].value[0],
                reason=error.reason,
                message=errors.message(error),
            )
            return answer(wait_id=request.wait_id, failure=refused)
        except Exception:
            # Whoever waits for this answer would wait for as long as the stream is open.
            log.exception("a wait of WaitStream failed")
            internal = grpc.StatusCode.INTERNAL.value[0]
            return answer(wait_id=request.wait_id, failure=failure(code=internal, message=FAULT))
        return answer(wait_id=response.wait_id, response=response)

    # ------------------------------------------------------------ output and input

    async def ReadOutput(
        self, request: call_service_pb2.ReadOutputRequest
    ) -> AsyncIterator[call_service_pb2.ReadOutputResponse | bytes]:
        call = self._do.find_call(request.agent_id, request.call_id)
        offset = checks.count(request.offset, "offset", 2**62)
        left = checks.count(request.limit, "limit", 2**62) or 2**62
        wanted = request.stream
        async for chunk in self._do.outputs.follow(
            call, offset, follow=request.follow, until_end=request.until_end
        ):
            if wanted and chunk.stream and _STREAMS[chunk.stream] != wanted:
                continue
            data = chunk.data[:left] if len(chunk.data) > left else chunk.data
            response = call_service_pb2.ReadOutputResponse(
                stream=_STREAMS.get(chunk.stream, call_pb2.OUTPUT_STREAM_UNSPECIFIED),
                offset=chunk.offset,
                dropped=chunk.missing,
                time=convert.timestamp(chunk.at) if chunk.at else None,
            )
            yield wire.with_bytes(response, _DATA_FIELD, data)
            left -= len(data)
            if left <= 0:
                break
        standing = self._do.outputs.standing(call)
        yield call_service_pb2.ReadOutputResponse(
            extent=convert.extent(standing.extent, closed=standing.closed)
        )

    async def WriteInput(
        self, request: call_service_pb2.WriteInputRequest
    ) -> call_service_pb2.WriteInputResponse:
        call = self._with_input(request.agent_id, request.call_id)
        taken = await self._do.groups.write_input(call.group, request.data, eof=False)
        if taken.error == "closed":
            raise Rejected(Reason.CALL_HAS_NO_INPUT, tool_call_id=call.id)
        return call_service_pb2.WriteInputResponse(accepted=taken.accepted)

    async def CloseInput(
        self, request: call_service_pb2.CloseInputRequest
    ) -> call_service_pb2.CloseInputResponse:
        call = self._with_input(request.agent_id, request.call_id)
        await self._do.groups.write_input(call.group, b"", eof=True)
        return call_service_pb2.CloseInputResponse()

    async def ResizeTerminal(
        self, request: call_service_pb2.ResizeTerminalRequest
    ) -> call_service_pb2.ResizeTerminalResponse:
        call = self._with_input(request.agent_id, request.call_id)
        rows = checks.count(request.size.rows, "size.rows", 10_000) or 24
        columns = checks.count(request.size.columns, "size.columns", 10_000) or 80
        self._do.groups.resize(call.group, rows, columns)
        return call_service_pb2.ResizeTerminalResponse()

    def _with_input(self, agent_id: str, call_id: str) -> Call:
        call = self._do.find_call(agent_id, call_id)
        if not call.live or not call.group:
            raise Rejected(Reason.CALL_HAS_NO_INPUT, tool_call_id=call.id)
        if not self._do.groups.connected:
            raise Rejected(Reason.KEEPER_UNAVAILABLE)
        return call


def wait_command(request: call_service_pb2.WaitRequest) -> c.StartWait:
    """A checked wait. Ids are trimmed, as a model's are."""
    timeout = None
    if request.HasField("timeout"):
        timeout = checks.seconds(request.timeout, "timeout")
    calls: list[str] = []
    match request.WhichOneof("form"):
        case "exact":
            mode = WaitMode.EXACT
            calls = [_trimmed(request.exact.call_id, "exact.call_id")]
        case "set":
            any_of = request.set.mode == call_service_pb2.SET_MODE_ANY
            mode = WaitMode.EXACT_ANY if any_of else WaitMode.EXACT_ALL
            calls = [_trimmed(call_id, "set.call_ids") for call_id in request.set.call_ids]
            if not 1 <= len(calls) <= MAX_SET:
                raise Invalid("set.call_ids", f"1 to {MAX_SET} ids")
            if len(set(calls)) != len(calls):
                raise Invalid("set.call_ids", "must be distinct")
        case "bare":
            mode = WaitMode.ANY_BACKGROUND
        case "input":
            mode = WaitMode.ACTIVATING_INPUT
        case _:
            raise Invalid("form", "say what to wait for: exact, set, bare or input")
    return c.StartWait(
        agent=request.agent_id,
        wait=checks.client_id(request.wait_id, "wait_id", "wait"),
        mode=mode,
        calls=calls,
        # A client that repeats a wait after a lost reply asks for what is left of its timeout.
        digest=digest_of(request, "wait_id", "timeout"),
        timeout=timeout,
    )


def _trimmed(value: str, field: str) -> str:
    value = value.strip()
    if not value:
        raise Invalid(field, "must not be empty")
    return value


def digest_of(request: Any, *without: str) -> str:
    """Tells a repeat from a reuse of an id: of all fields but these."""
    copy = type(request)()
    copy.CopyFrom(request)
    for field in without:
        copy.ClearField(field)
    data = copy.SerializeToString(deterministic=True)
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _check_argv(argv: list[bytes]) -> None:
    if not argv or not argv[0]:
        raise Invalid("argv", "must not be empty")
    for number, arg in enumerate(argv):
        if b"\0" in arg:
            raise Invalid(f"argv.args[{number}]", "has a NUL byte")
        if len(arg) > _ARGV_BYTES:
            raise Invalid(f"argv.args[{number}]", f"at most {_ARGV_BYTES} bytes")


def _output_limit(asked: int, default: int) -> int:
    checks.count(asked, "limits.output_bytes", 2**40)
    if 0 < asked < 4096:
        raise Invalid("limits.output_bytes", "at least 4096")
    return asked or default
