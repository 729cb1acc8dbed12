"""Bad input: a clear typed error before anything was started, or it just works."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from integration.harness import Shells, descriptors, error_info
from pinfold.errors import InvalidRequestError, NotFoundError, StateError
from pinfold.v1 import agent_service_pb2, call_pb2, call_service_pb2, watch_service_pb2


async def refused(
    shells: Shells, script: Any, reason: str = "INVALID_ARGUMENT", **options: Any
) -> str:
    """The message; nothing was started, and no call is there."""
    before = len(await shells.agent.list())
    with pytest.raises((InvalidRequestError, StateError)) as caught:
        await shells.agent.run(script, **options)
    assert caught.value.reason == reason
    assert len(await shells.agent.list()) == before
    return caught.value.message


async def test_empty_commands(shells: Shells) -> None:
    assert await refused(shells, "") == "script: must not be empty"
    assert await refused(shells, " \n\t") == "script: must not be empty"
    assert await refused(shells, []) == "argv: must not be empty"
    assert await refused(shells, [""]) == "argv: must not be empty"


async def test_nul_bytes(shells: Shells) -> None:
    assert await refused(shells, "echo a\0b") == "script: has a NUL byte"
    assert await refused(shells, ["echo", "a\0"]) == "argv.args[1]: has a NUL byte"
    assert await refused(shells, "true", cwd="/tmp\0") == "cwd: a path has no NUL byte"
    assert await refused(shells, "true", shell="/bin/sh\0") == "shell: a path has no NUL byte"
    assert await refused(shells, "true", env={"A": "\0"}) == "env: the value of A has a NUL byte"
    assert "not a name of a variable" in await refused(shells, "true", env={"A=B": "x"})


@pytest.mark.parametrize("cwd", ["/nonexistent/directory", "/etc/passwd"])
async def test_a_directory_that_is_none(shells: Shells, cwd: str) -> None:
    info = await shells.client.info()
    before = descriptors(info.keeper_pid)
    for _ in range(20):
        result = await shells.run("echo never", cwd=cwd)
        assert result.state == call_pb2.CALL_STATE_FAILED
        assert result.cause == call_pb2.END_CAUSE_START_ERROR
        assert result.error.startswith("failed to start shell command: ")
        assert cwd in result.error
        assert result.text.startswith(f"error: {result.error}\ntermination_reason: start_error")
        assert result.exit_code is None
    assert descriptors(info.keeper_pid) <= before
    assert shells.survivors() == []


async def test_a_directory_that_is_removed(shells: Shells, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    call_id = await shells.start(
        "echo up; while [ -d . ] && [ -e ../go ]; do sleep 0.02; done; echo on", cwd=place
    )
    (tmp_path / "go").touch()
    await shells.until_output(call_id, b"up")
    shutil.rmtree(place)
    (tmp_path / "go").unlink()
    result = await shells.ended(call_id)
    assert result.exit_code == 0
    assert result.text.endswith("out on")
    again = await shells.run("true", cwd=place)
    assert str(place) in again.error


async def test_a_relative_directory_is_the_agents(shells: Shells, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    agent = await shells.client.open_agent(cwd=tmp_path)
    for cwd, wanted in (("sub", tmp_path / "sub"), (None, tmp_path)):
        answer = await agent.run("pwd", cwd=cwd)
        assert answer.text.endswith(f"out {wanted}")
    await agent.stop()


async def test_a_directory_whose_name_is_not_text(shells: Shells, tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/\xff\xfe"
    Path(os.fsdecode(place)).mkdir()
    result = await shells.run("pwd", cwd=place)
    assert await shells.output(result.call_id) == place + b"\n"


async def test_a_script_of_a_megabyte(shells: Shells) -> None:
    script = b"# " + b"x" * 1_000_000 + b"\nx='" + b"y" * 500_000 + b"'\necho ${#x}\n"
    result = await shells.run(script)
    assert result.text == "status: 0\n\nout 500000"
    assert "at most" in await refused(shells, b"#" * (9 << 20))


async def test_a_script_reaches_the_shell_byte_for_byte(shells: Shells) -> None:
    script = b"printf '%s' '\xff\xfe\t\"$x`\\'\n'\xc3\x28'\n"
    script = b"cat <<'E'\n\xff\xfe \"$x` \\ '\r\nE\n"
    result = await shells.run(script)
    assert await shells.output(result.call_id) == b"\xff\xfe \"$x` \\ '\r\n"


async def test_no_profile_is_read(shells: Shells, tmp_path: Path) -> None:
    for name in (".bashrc", ".profile", ".bash_profile", "env"):
        (tmp_path / name).write_text("echo profile\n")
    env = {"HOME": str(tmp_path), "BASH_ENV": str(tmp_path / "env"), "ENV": str(tmp_path / "env")}
    result = await shells.run("echo only", env=env)
    assert result.text == "status: 0\n\nout only"


async def test_an_environment_value_of_200_kilobytes(shells: Shells) -> None:
    message = await refused(shells, "true", env={"HUGE": "v" * 200_000})
    assert message == "env: the value of HUGE is over 131071 bytes"
    result = await shells.run("echo ${#LARGE}", env={"LARGE": "v" * 120_000})
    assert result.text.endswith("out 120000")


async def test_an_environment_that_is_too_large_in_all(shells: Shells) -> None:
    env = {f"V{n}": "v" * 120_000 for n in range(30)}
    result = await shells.run("true", env=env)
    assert result.cause == call_pb2.END_CAUSE_START_ERROR
    assert result.error.startswith("failed to start shell command: ")


async def test_more_than_any_kernel_takes(shells: Shells) -> None:
    """Control characters: they are six times as long in the order to the keeper, which has a
    bound of its own, and a call whose order cannot leave must not run for ever."""
    large = b"\1" * 100_000
    message = "arguments and environment are over 6291456 bytes together"
    assert await refused(shells, ["true", *[large] * 70]) == f"argv: {message}"
    assert await refused(shells, "true", env={f"V{n}": large for n in range(70)}) == (
        f"env: {message}"
    )
    result = await shells.run(["true", *[large] * 60])
    assert result.cause == call_pb2.END_CAUSE_START_ERROR


async def test_programs_that_are_not_there(shells: Shells, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for argv in (["/no/such/program"], [str(plain)], [str(tmp_path)], ["no-such-program-in-path"]):
        result = await shells.run(argv)
        assert result.cause == call_pb2.END_CAUSE_START_ERROR, argv
        assert argv[0] in result.error
    result = await shells.run("true", shell="/no/such/shell")
    assert "/no/such/shell" in result.error


async def test_unknown_ids(shells: Shells) -> None:
    for attempt in (
        shells.agent.get("nope"),
        shells.agent.wait_exact("nope"),
        shells.agent.write_input("nope", b"x"),
        shells.agent.close_input("nope"),
        shells.agent.resize("nope", 1, 1),
        shells.output("nope"),
    ):
        with pytest.raises(NotFoundError, match="^unknown tool call: `nope`$"):
            await attempt
    with pytest.raises(NotFoundError, match="^Unknown tool call id$") as caught:
        await shells.agent.cancel("nope")
    assert caught.value.metadata == {"tool_call_id": "nope"}
    stranger = shells.client.agent("nobody")
    for attempt in (stranger.run("true"), stranger.get("x"), stranger.stop(), stranger.info()):
        with pytest.raises(NotFoundError, match="^unknown agent: `nobody`$"):
            await attempt


async def test_negative_numbers(shells: Shells) -> None:
    minus = Duration(seconds=-1)
    base = {"agent_id": shells.id, "script": b"true"}
    limits = call_service_pb2.CallLimits
    for field, values in (
        ("timeout", {"timeout": minus}),
        ("grace", {"grace": minus}),
        ("foreground_budget", {"foreground_budget": Duration(nanos=-1)}),
        ("limits.output_bytes", {"limits": limits(output_bytes=-1)}),
        ("limits.memory_bytes", {"limits": limits(memory_bytes=-1)}),
        ("limits.cpu_time", {"limits": limits(cpu_time=minus)}),
        ("limits.file_bytes", {"limits": limits(file_bytes=-5)}),
        ("limits.open_files", {"limits": limits(open_files=-5)}),
        ("terminal.rows", {"terminal": call_service_pb2.TerminalSize(rows=-1)}),
        ("terminal.columns", {"terminal": call_service_pb2.TerminalSize(columns=-1)}),
    ):
        request = call_service_pb2.RunShellRequest(**base, **values)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await shells.client.connection.calls.RunShell(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, field
        assert caught.value.details() == f"{field}: must not be negative"
        assert error_info(caught.value).metadata["field"] == field
    assert await shells.agent.list() == []
    request = call_service_pb2.ListCallsRequest(agent_id=shells.id, page_size=-1)
    with pytest.raises(InvalidRequestError, match="page_size: must not be negative"):
        await shells.client.connection.unary(shells.client.connection.calls.ListCalls, request)
    with pytest.raises(InvalidRequestError, match="start_revision: must not be negative"):
        async for _ in shells.client.watch(-1):
            pass
    with pytest.raises(InvalidRequestError, match="max_running_calls: must not be negative"):
        await shells.client.open_agent(max_running_calls=-1)


async def test_limits_are_those_of_the_process(shells: Shells) -> None:
    limits = call_service_pb2.CallLimits(
        memory_bytes=256 << 20, file_bytes=1 << 20, open_files=50, cpu_time=Duration(seconds=1)
    )
    result = await shells.run("sleep 0.1; ulimit -v; ulimit -n; ulimit -t", limits=limits)
    assert result.text.endswith("out 262144\nout 50\nout 1")
    result = await shells.run(
        "head -c 5000000 /dev/zero >big; echo $?; wc -c <big",
        limits=limits,
        cwd="/tmp",
        env={"big": "x"},
    )
    assert "out 1048576" in result.text
    os.unlink("/tmp/big")
    result = await shells.run("while :; do :; done", limits=limits)
    assert result.signal in (9, 24)


async def test_ids_that_are_none(shells: Shells) -> None:
    for call_id in ("x" * 201, "a\nb", " a", "\x7f"):
        assert "call_id: " in await refused(shells, "true", call_id=call_id)
    for agent_id in ("a b", "x" * 101, "ü", "a/b"):
        with pytest.raises(InvalidRequestError, match="^agent_id: "):
            await shells.client.open_agent(agent_id)
    strange = "call: ünï `x` \u202e"
    with pytest.raises(NotFoundError):
        await shells.agent.get(strange)


async def test_requests_without_their_parts(shells: Shells) -> None:
    connection = shells.client.connection
    for method, request, message in (
        (
            connection.calls.Wait,
            call_service_pb2.WaitRequest(agent_id=shells.id),
            "form: say what to wait for: exact, set, bare or input",
        ),
        (
            connection.calls.CancelCall,
            call_service_pb2.CancelCallRequest(agent_id=shells.id, call_id="  "),
            "`tool_call_id` must not be empty",
        ),
        (
            connection.agents.SendPrompt,
            agent_service_pb2.SendPromptRequest(agent_id=shells.id),
            "text: must not be empty",
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == message
    request = watch_service_pb2.WatchRequest(start_revision=1, progress_interval=Duration(nanos=1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await connection.watches.Watch(request).read()
    assert caught.value.details() == "progress_interval: at least 100 ms"


async def test_a_message_that_is_too_large_for_the_wire(shells: Shells) -> None:
    with pytest.raises(Exception, match="larger than max") as caught:
        await shells.agent.run(b"#" * (40 << 20))
    assert getattr(caught.value, "code", None) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await shells.run("echo alive")).ok
