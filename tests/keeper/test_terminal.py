"""Terminals at their ends: of output before the leader, of input in the middle of a line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from keeper.harness import Harness, eventually
from pinfoldd.keeper.messages import Closed, Exited, Input, TerminalSize

pytestmark = pytest.mark.timeout(60)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_keeper_is_idle_beside_a_terminal_that_has_ended(own: Harness) -> None:
    group = own.started("exec 0<&- 1>&- 2>&-; sleep 2", terminal=TerminalSize())
    own.link.wait(Closed, group)
    before = processor_seconds(own.process.pid)
    time.sleep(1.0)
    assert processor_seconds(own.process.pid) - before < 0.3
    assert own.link.wait(Exited, group).code == 0


@pytest.mark.parametrize("typed", [b"abc", b"abc\n", b"", b"abc\nde"])
def test_the_end_of_input_is_one_wherever_it_comes(keeper: Harness, typed: bytes) -> None:
    group = keeper.started("cat; echo rc=$?", terminal=TerminalSize())
    keeper.link.send(Input(group, 1, eof=True, body=typed))
    assert keeper.link.wait(Exited, group).code == 0
    assert b"rc=0" in keeper.output(group)


def test_two_ends_of_input_in_one_terminal(keeper: Harness) -> None:
    group = keeper.started("cat; echo first; cat; echo second", terminal=TerminalSize())
    keeper.link.send(Input(group, 1, eof=True, body=b"abc"))
    eventually(lambda: b"first" in keeper.output(group))
    keeper.link.send(Input(group, 2, eof=True, body=b"de\n"))
    assert keeper.link.wait(Exited, group).code == 0
    assert b"second" in keeper.output(group)


def test_the_end_of_input_in_a_raw_terminal_is_one_byte(keeper: Harness) -> None:
    group = keeper.started(
        "stty raw -echo; echo ready; head -c 4 | od -An -tx1", terminal=TerminalSize()
    )
    keeper.prints(group, b"ready")
    keeper.link.send(Input(group, 1, eof=True, body=b"abc"))
    assert keeper.link.wait(Exited, group).code == 0
    assert b"61 62 63 04" in keeper.output(group)
