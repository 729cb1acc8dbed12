"""A call ends with its leader; what outlives it is counted, and delays nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from integration.harness import Shells, describe, zombies_of
from pinfold import Result
from support import eventually

SOON = 1.0  # seconds: the sleeps of the commands are far longer


async def at_once(shells: Shells, script: str, **options: object) -> Result:
    begun = time.monotonic()
    result = await shells.run(script, **options)
    assert time.monotonic() - begun < SOON
    assert result.exit_code == 0
    return result


async def test_a_grandchild_that_holds_the_pipe(shells: Shells) -> None:
    result = await at_once(shells, "(sleep 1000 &) ; echo done")
    assert result.message.leftover_processes == 1
    assert result.text == "status: 0\nleftover_processes: 1\n\nout done"
    assert [name.split()[0] for name in describe(shells.survivors()).values()] == ["sleep"]


async def test_output_through_a_process_substitution(shells: Shells, tmp_path: Path) -> None:
    result = await at_once(shells, "exec > >(tee -a f.log) 2>&1; echo ok", cwd=tmp_path)
    assert await shells.output(result.call_id, until_end=False) == b"ok\n"
    assert (tmp_path / "f.log").read_text() == "ok\n"


async def test_a_shell_that_leaves_a_sleep(shells: Shells) -> None:
    result = await at_once(shells, 'bash -c "sleep 10 &"')
    assert result.message.leftover_processes == 1


async def test_an_ampersand_without_and_with_wait(shells: Shells) -> None:
    result = await at_once(shells, "sleep 60 & echo done")
    assert result.text.endswith("out done")
    result = await shells.run("sleep 1.5 & wait")
    assert 1.5 <= result.duration < 3.0
    assert result.message.leftover_processes == 0


async def test_output_that_goes_on_in_the_background(shells: Shells) -> None:
    result = await shells.run("(while :; do echo x; sleep 0.1; done) & sleep 1; echo fg")
    assert 1.0 <= result.duration < 2.0
    assert "out fg" in result.text
    assert result.message.leftover_processes >= 1


async def test_only_stderr_is_held(shells: Shells) -> None:
    result = await at_once(shells, "sleep 1000 </dev/null >/dev/null &")
    assert result.message.leftover_processes == 1


async def test_late_output_is_not_of_the_result_but_of_the_log(shells: Shells) -> None:
    result = await at_once(shells, "(sleep 0.7; printf late) & printf early")
    assert re.fullmatch(r"status: 0\nleftover_processes: \d\n\nout\(no_nl\) early", result.text)
    assert result.message.output.size == 5
    assert await shells.output(result.call_id, until_end=False) == b"earlylate"
    await shells.until_event("call.empty", call_id=result.call_id)
    call = await shells.agent.get(result.call_id)
    assert (call.leftover_processes, call.output.size, call.output.closed) == (0, 9, True)
    assert call.result.output.size == 5


async def test_leftovers_are_ended_where_that_is_asked_for(shells: Shells) -> None:
    script = "(trap '' TERM; sleep 1000) & sleep 1000 & setsid sleep 1000 & echo done"
    result = await at_once(shells, script, kill_leftovers=True, grace=0.2)
    assert result.message.leftover_processes >= 3
    event = await shells.until_event("call.empty", call_id=result.call_id)
    receipt = event.group_emptied.receipt
    assert receipt.ended >= 3
    assert receipt.escaped >= 1
    assert receipt.proof
    await shells.gone(0.5)
    assert (await shells.agent.get(result.call_id)).leftover_processes == 0


async def test_running_after_its_streams_are_closed(shells: Shells) -> None:
    call_id = await shells.detach("echo a; exec >&- 2>&-; sleep 1.5; exit 5")
    assert await shells.output(call_id, until_end=False) == b"a\n"
    call = await shells.agent.get(call_id)
    assert not call.HasField("result")
    result = await shells.ended(call_id)
    assert result.exit_code == 5
    assert result.duration >= 1.5
    assert result.text.endswith("out a")


async def test_a_leader_that_exits_before_a_stubborn_child(shells: Shells) -> None:
    result = await at_once(shells, "(trap '' TERM; echo up; sleep 1000) & sleep 0.2; exit 0")
    assert result.message.leftover_processes >= 1
    stopped = await shells.agent.stop(grace=0.3)
    assert stopped.receipt.ended_processes >= 1
    assert not stopped.receipt.surviving_pids
    await shells.gone(0.2)


@pytest.mark.parametrize(
    "form", ["(sleep 1 & exec sleep 2)", "for i in {1..200}; do (sleep 0.1 &); done"]
)
async def test_no_zombies_are_left(shells: Shells, form: str) -> None:
    await shells.run(form)
    await shells.gone(5.0)
    info = await shells.client.info()
    assert eventually(lambda: zombies_of([info.pid, info.keeper_pid]) == [], 1.0)
