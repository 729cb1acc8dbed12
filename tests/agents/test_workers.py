"""Workers: every kind of them, and what follows when they die, in real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable

import pytest

from agents.harness import (
    ERROR,
    HERE,
    PLACEHOLDER,
    ROLES,
    START,
    WATCH_ANSWER,
    WATCH_STATE,
    Actor,
    actor_of,
    texts,
    watched,
)
from pinfold.errors import PinfoldError
from pinfold.v1 import agent_pb2, call_pb2
from pinfold.worker import Turn
from support import Supervisor, eventually, is_zombie
from tasks.harness import Gate, configure

pytestmark = pytest.mark.timeout(120)

KIT = str(HERE / "kit_worker.py")

SETTINGS = f"""
[shell]
foreground_budget = 0.4

[roles.program]
worker = "command"
command = [{sys.executable!r}, {KIT!r}]

[roles.cat]
worker = "exec"
command = ["cat"]

[roles.failing]
worker = "exec"
command = ["sh", "-c", "echo half; echo why >&2; exit 3"]

[roles.absent]
worker = "exec"
command = ["/no/such/program"]

[roles.nobody]
worker = "command"
command = ["/no/such/program"]

[roles.complains]
worker = "command"
command = ["sh", "-c", "echo on stdout; echo first >&2; echo the reason >&2; exit 4"]

[roles.unloadable]
worker = "python"
entry = "no_such_module:work"

[roles.unnamed]
worker = "python"
entry = "kit_worker:no_such_function"

[roles.plain]
worker = "python"
entry = "kit_worker:plain"

[roles.streamed]
worker = "python"
entry = "kit_worker:streamed"

[roles.sturdy]
worker = "scripted"
restarts = 2
restart_window = 600.0
restart_delay = 0.01

[roles.sturdy_kit]
worker = "python"
entry = "kit_worker:work"
restarts = 2
restart_delay = 0.01

[roles.hopeless]
worker = "command"
command = ["sh", "-c", "exit 9"]
restarts = 3
restart_delay = 0.01
"""

FAILED = agent_pb2.AGENT_STATE_FAILED
STOPPED = agent_pb2.AGENT_STATE_STOPPED
TYPE = "worker exited with code 1: TypeError: "


async def worker_pid(actor: Actor, *, after: int = 0) -> int:
    """The pid of its worker; of another one than `after`."""
    event = await actor.until(
        lambda e: e.agent_id == actor.id and e.worker_started.pid not in (0, after),
        "its worker is there",
    )
    return event.worker_started.pid


async def answered(me: Actor, kid: Actor, text: str = "") -> str:
    """The answer that its watcher got."""
    event = await me.until(
        lambda e: (
            e.agent_id == me.id
            and e.prompt_queued.prompt.kind == WATCH_ANSWER
            and e.prompt_queued.prompt.from_agent_id == kid.id
            and text in e.prompt_queued.prompt.text
        ),
        f"an answer of {kid.id}",
    )
    head, _, rest = event.prompt_queued.prompt.text.partition("\n\n<response>\n")
    assert head == watched(kid.id, ", gave this answer")
    return rest.removesuffix("\n</response>")


async def told(me: Actor, kid: Actor) -> list[str]:
    """All state lines about it, without those of its turns and reports."""
    start = watched(kid.id, ": ")
    prompts = [p for p in await me.prompts(WATCH_STATE) if p.from_agent_id == kid.id]
    lines = [text.removeprefix(start) for text in texts(prompts)]
    return [line for line in lines if not line.startswith(("turn ", "status "))]


# ---------------------------------------------------------------- the kinds


@pytest.mark.parametrize("role", ["kit", "program"])
async def test_a_python_worker_keeps_its_memory_between_turns(me: Actor, role: str) -> None:
    kid = await me.child("count", role=role)
    pid = await worker_pid(kid)
    assert await answered(me, kid, "turn 1") == f"turn 1 of {pid}: count"
    await kid.agent.send_prompt("and more")
    assert await answered(me, kid, "turn 2") == f"turn 2 of {pid}: and more"


@pytest.mark.parametrize("role", ["kit", "program"])
async def test_its_tools_are_those_of_its_agent(me: Actor, role: str) -> None:
    kid = await me.child("tools", role=role)
    assert await answered(me, kid) == "status: 0\n\nout from the kit"
    (call,) = await kid.agent.list()
    assert call.agent_id == kid.id


@pytest.mark.parametrize("role", ["kit", "program"])
async def test_it_takes_what_arrives_in_its_turn(me: Actor, role: str) -> None:
    kid = await me.child("take", role=role)
    await kid.happened("wait.installed")
    await me.agent.message(kid.id, "for you")
    assert await answered(me, kid) == "for you"


@pytest.mark.parametrize("role", ["kit", "program"])
async def test_its_token_is_for_itself_and_what_is_below_it(me: Actor, role: str) -> None:
    kid = await me.child(f"rights {me.id}", role=role)
    found = json.loads(await answered(me, kid))
    assert found["PINFOLD_AGENT_ID"] == kid.id
    assert found["PINFOLD_ADDRESS"] == me.supervisor.address
    assert (found["itself"], found["all agents"]) == ("yes", "1")
    assert found["its parent"] == "AGENT_UNKNOWN"
    assert found["a new root"] == "PERMISSION_DENIED"


async def test_a_program_that_knows_nothing_of_us(me: Actor) -> None:
    kid = await me.child("to the program", role="cat")
    assert await answered(me, kid) == (
        f"You were started by an agent `{me.id}`. It gets your final answer; until then, use "
        "`message` with this id to tell it something.\n\nto the program"
    )
    await kid.agent.send_prompt("again")
    assert await answered(me, kid, "again") == "again"


async def test_a_program_that_fails_is_an_answer_that_says_so(me: Actor) -> None:
    kid = await me.child(role="failing")
    assert await answered(me, kid) == "error: sh ended with status 3\nwhy\n\nhalf"
    # Its prompt is more than a pipe holds, and it does not read it.
    kid = await me.child("x" * 200_000, role="failing")
    assert await answered(me, kid) == "error: sh ended with status 3\nwhy\n\nhalf"
    kid = await me.child(role="absent")
    assert await answered(me, kid) == (
        "error: cannot run /no/such/program: No such file or directory"
    )


async def test_a_script_in_place_of_a_model(me: Actor) -> None:
    kid = await me.child(
        "status working on it\nshell echo out\nmessage parent OUT {out}\n"
        "agent\n  final from below\nfinal {self} of {parent}",
        role="scripted",
    )
    assert await answered(me, kid) == f"{kid.id} of {me.id}"
    (message,) = await me.prompts(agent_pb2.PROMPT_KIND_MESSAGE)
    assert message.body == "OUT status: 0\n\nout out"
    await kid.until(
        lambda e: "from below" in e.prompt_queued.prompt.text and e.agent_id == kid.id,
        "its own sub-agent's answer",
    )


async def test_a_line_that_is_no_directive_is_told(me: Actor) -> None:
    kid = await me.child("dance", role="scripted")
    assert await answered(me, kid) == "error: not a directive: 'dance'"


@pytest.mark.parametrize("name", ["memory", "resumed", "draft"])
def test_what_a_turn_has_is_in_its_help(name: str) -> None:
    assert f"        {name}: " in (Turn.__doc__ or "")


# ---------------------------------------------------------------- stop


@pytest.mark.parametrize("role", ["kit", "program"])
async def test_what_it_has_so_far_is_kept_when_it_is_ended(me: Actor, role: str) -> None:
    kid = await me.child("draft", role=role, mode="call", call_id="D")
    await kid.happened("agent.status_reported")
    pid = await worker_pid(kid)
    await me.agent.cancel("D", reason="enough")
    result = await me.ended("D")
    assert (result.state, result.answer) == (call_pb2.CALL_STATE_CANCELLED, "as far as it came")
    assert is_zombie(pid)
    assert (await me.tool("wait", tool_call_id="D")).text.endswith("\n\nas far as it came")


@pytest.mark.parametrize("role", ["kit", "program"])
async def test_half_an_answer_is_none_when_a_stranger_ends_the_worker(me: Actor, role: str) -> None:
    kid = await me.child("draft", role=role, mode="call", call_id="D")
    await kid.happened("agent.status_reported")
    os.kill(await worker_pid(kid), signal.SIGTERM)
    result = await me.ended("D")
    assert (result.state, result.answer) == (call_pb2.CALL_STATE_FAILED, "")
    assert result.error == "Tool call failed: worker ended by signal 15"


async def test_its_own_processes_are_ended_with_it(me: Actor) -> None:
    kid = await me.child("children", role="kit")
    assert await answered(me, kid) == "with a child"
    # In the moment of an exec a process has no environment to be known by.
    assert await asyncio.to_thread(eventually, me.survivors)
    await kid.agent.stop()
    assert me.survivors() == []


async def test_what_a_worker_leaves_behind_is_ended(me: Actor) -> None:
    kid = await me.child("leftovers", role="kit")
    await kid.happened("agent.failed")
    assert me.survivors() == []
    assert await told(me, kid) == ["failed — worker exited with code 0"]


# ---------------------------------------------------------------- death


async def test_a_worker_that_is_killed(me: Actor, gate: Gate) -> None:
    kid = await me.child("shell sleep 1000000\nshell sleep 1000000\nsleep 1000", role="scripted")
    sibling = await me.child(f"shell {gate}; echo fine\nwait 1\nfinal {{out}}", role="scripted")
    first, second = (f"{kid.id}-call-{n}" for n in (1, 2))
    await kid.happened("call.backgrounded", first)
    await kid.happened("call.backgrounded", second)
    os.kill(await worker_pid(kid), signal.SIGKILL)
    await kid.happened("agent.failed")
    info = await kid.agent.info()
    assert (info.state, info.stop_reason) == (FAILED, "worker ended by signal 9")
    for call in await kid.agent.list():
        assert call.state == call_pb2.CALL_STATE_CANCELLED
    assert await kid.prompts(agent_pb2.PROMPT_KIND_NOTICE) == []
    line = "failed — worker ended by signal 9"
    assert await told(me, kid) == [line]
    turn = await me.turn()  # it wakes
    assert watched(kid.id, f": {line}") in texts(turn.prompts)
    # The sibling does not hear of it.
    assert (await sibling.agent.info()).state != FAILED
    gate.open()
    assert "out fine" in await answered(me, sibling)


async def test_a_worker_that_dies_is_the_end_of_what_is_below(me: Actor) -> None:
    kid = await me.child()
    below = await kid.child()
    await below.background("setsid sleep 1000000 & exec sleep 1000000", "X")
    os.kill(await worker_pid(kid), signal.SIGTERM)
    await kid.happened("agent.failed")
    assert (await below.agent.info()).state == STOPPED
    assert (await below.ended("X")).state == call_pb2.CALL_STATE_CANCELLED
    assert me.survivors() == []
    assert await told(me, kid) == ["failed — worker ended by signal 15"]


async def test_as_a_call_its_death_is_the_error_of_the_call(me: Actor) -> None:
    kid = await me.child("sleep 1000", role="scripted", mode="call", call_id="D")
    await kid.happened("agent.turn_started")
    os.kill(await worker_pid(kid), signal.SIGKILL)
    answer = await me.tool("wait", tool_call_id="D")
    assert answer.kind == ERROR
    assert answer.text == (
        "error: Tool call failed: worker ended by signal 9\n"
        f"self_agent_id: {me.id}\nsub_agent_id: {kid.id}"
    )
    assert await me.prompts(WATCH_STATE) == []


@pytest.mark.parametrize(
    ("role", "prompt", "reason"),
    [
        ("nobody", "x", "/no/such/program"),
        ("complains", "x", "worker exited with code 4: the reason"),
        ("unloadable", "x", "no_such_module"),
        ("unnamed", "x", "no_such_function"),
        ("kit", "raise", "worker exited with code 1: ValueError: broken on purpose"),
        ("program", "raise", "worker exited with code 1: ValueError: broken on purpose"),
        ("kit", "leave", "worker exited with code 7"),
        ("kit", "nothing", f"{TYPE}the worker returned None: return the answer as str"),
        ("kit", "number", f"{TYPE}the worker returned int: return the answer as str"),
        ("program", "number", f"{TYPE}the worker returned int: return the answer as str"),
        ("plain", "x", f"{TYPE}the worker 'plain' must be an `async def`"),
        ("streamed", "x", f"{TYPE}the worker 'streamed' must be an `async def`"),
    ],
)
async def test_why_it_failed_is_told(me: Actor, role: str, prompt: str, reason: str) -> None:
    kid = await me.child(prompt, role=role)
    await kid.happened("agent.failed")
    info = await kid.agent.info()
    assert reason in info.stop_reason
    assert await told(me, kid) == [f"failed — {info.stop_reason}"]
    answer = await me.tool("agent_start", "D", prompt=prompt, role=role, mode="call")
    assert answer.kind == PLACEHOLDER
    result = await me.ended("D")
    assert result.state == call_pb2.CALL_STATE_FAILED
    assert reason in result.error


# ---------------------------------------------------------------- restart


async def test_it_is_started_again_until_it_dies_too_often(me: Actor) -> None:
    kid = await me.child("status working on it\nsleep 1000", role="sturdy")
    revision = 1
    for restarts in range(3):
        event = await kid.happened("worker.started", start=revision)
        assert event.worker_started.restarts == restarts
        # It has begun its script; for the second and third time, again.
        begun = await kid.happened("prompt.acknowledged", start=event.revision)
        revision = begun.revision
        os.kill(event.worker_started.pid, signal.SIGKILL)
    await kid.happened("agent.failed")
    assert await told(me, kid) == [
        "restarting: worker ended by signal 9",
        "restarting: worker ended by signal 9",
        "failed — worker ended by signal 9",
    ]
    assert len(await kid.log(names=["prompt.returned"])) == 2


async def test_one_that_never_comes_up_is_given_up(me: Actor) -> None:
    kid = await me.child(role="hopeless")
    await kid.happened("agent.failed")
    exits = await kid.log(names=["worker.exited"])
    assert [event.worker_exited.will_restart for event in exits] == [True] * 3 + [False]
    assert {event.worker_exited.process.exit_code for event in exits} == {9}


async def test_a_script_is_begun_again_with_all_prompts_of_its_turn(me: Actor, gate: Gate) -> None:
    kid = await me.child(
        f"await_message\nstatus working heard {{body}}\nshell {gate}; echo through\n"
        "wait 1\nfinal {body} {out}",
        role="sturdy",
    )
    first, second = (f"{kid.id}-call-{n}" for n in (1, 2))
    await kid.happened("wait.installed")
    await me.agent.message(kid.id, "nonce")
    await kid.happened("call.backgrounded", first)
    pid = await worker_pid(kid)
    os.kill(pid, signal.SIGKILL)
    await kid.happened("prompt.returned")
    # The second one has read the script and the message, and makes a call of its own.
    await kid.happened("call.backgrounded", second)
    assert await worker_pid(kid, after=pid) != pid
    (call, _) = await kid.agent.list()
    assert call.state == call_pb2.CALL_STATE_CANCELLED
    gate.open()
    assert await answered(me, kid) == "nonce status: 0\n\nout through"
    turns = await kid.log(names=["agent.turn_started"])
    assert len(turns) == 1, "another turn was begun"
    assert await told(me, kid) == ["restarting: worker ended by signal 9"]


async def test_the_kit_says_that_a_turn_is_begun_again(me: Actor) -> None:
    kid = await me.child("resumed", role="sturdy_kit", mode="call", call_id="D")
    await kid.happened("agent.status_reported")
    os.kill(await worker_pid(kid), signal.SIGKILL)
    answer = await me.tool("wait", tool_call_id="D")
    assert answer.text == f"again with [{START}]"


async def test_a_turn_that_had_ended_is_not_begun_again(me: Actor) -> None:
    kid = await me.child("final once", role="sturdy")
    assert await answered(me, kid) == "once"
    pid = await worker_pid(kid)
    os.kill(pid, signal.SIGKILL)
    await worker_pid(kid, after=pid)
    await me.agent.message(kid.id, "still there?")
    assert await answered(me, kid, "Received.") == "Received."
    assert await kid.log(names=["prompt.returned"]) == []


# ---------------------------------------------------------------- settings that change


async def test_a_role_that_is_gone_is_the_reason(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor()
    role = '[roles.gone]\nworker = "scripted"\nrestarts = 5\nrestart_delay = 600.0\n'
    configure(supervisor, role + ROLES)
    await asyncio.to_thread(supervisor.start)
    async with supervisor.client() as client, actor_of(supervisor, client) as me:
        kid = await me.child("sleep 1000", role="gone")
        lives = await me.child("final alive", role="gone")
        await answered(me, lives)
        pid = await worker_pid(kid)
        os.kill(pid, signal.SIGKILL)
        await kid.happened("worker.exited")
        await asyncio.to_thread(supervisor.kill)
        configure(supervisor, ROLES)
        await asyncio.to_thread(supervisor.start)
        # Its next worker would be of a role that there is not.
        await kid.happened("agent.failed")
        assert "no role 'gone' in the settings" in (await kid.agent.info()).stop_reason
        assert (await told(me, kid))[-1].startswith("failed — ")
        # One that lives does not need its role any more.
        await me.agent.message(lives.id, "hello")
        assert await answered(me, lives, "Received.")
        with pytest.raises(PinfoldError, match="unknown role: `gone`"):
            await me.child(role="gone")
        answer = await me.tool("agent_start", prompt="x", role="gone")
        assert (answer.kind, answer.text) == (
            ERROR,
            "error: unknown role: `gone`; leave `role` out for the default",
        )


async def test_workers_outlive_the_daemon(make_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = make_supervisor()
    configure(supervisor, ROLES)
    await asyncio.to_thread(supervisor.start)
    async with supervisor.client() as client, actor_of(supervisor, client) as me:
        kid = await me.child("await_message\nfinal got {body}", role="scripted")
        await kid.happened("wait.installed")
        pid = await worker_pid(kid)
        await asyncio.to_thread(supervisor.kill)
        await asyncio.to_thread(supervisor.start)
        await me.agent.message(kid.id, "nonce")
        assert await answered(me, kid) == "got nonce"
        assert (await kid.agent.info()).worker_pid == pid
        os.kill(pid, signal.SIGKILL)
        await kid.happened("agent.failed")
        assert await asyncio.to_thread(eventually, lambda: not me.survivors())


async def test_what_a_worker_has_written_does_not_pile_up(
    make_supervisor: Callable[..., Supervisor],
) -> None:
    supervisor = make_supervisor()
    configure(supervisor, ROLES)
    await asyncio.to_thread(supervisor.start)
    async with supervisor.client() as client, actor_of(supervisor, client) as me:
        for _ in range(3):
            kid = await me.child("raise", role="kit")
            await kid.happened("agent.failed")
        await me.finished("mine")

        def kept() -> list[str]:
            return sorted(path.suffix for path in (supervisor.state / "spool").iterdir())

        # Only that of the call is left.
        await asyncio.to_thread(eventually, lambda: len(kept()) == 2, 20.0)
        assert kept() == [".idx", ".out"]
