"""The journal on a disk that is full, and one that was damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keeper.harness import Harness, alive, eventually
from pinfoldd.keeper import journal as module
from pinfoldd.keeper import messages as m
from pinfoldd.keeper.journal import Journal

BOOT = "boot"


def opened(path: Path) -> tuple[Journal, list[OSError]]:
    errors: list[OSError] = []
    journal = Journal(str(path), on_error=errors.append)
    journal.load()
    return journal, errors


def started(journal: Journal, group: int) -> None:
    journal.begin(group, "", BOOT)
    journal.report(group, m.encode(m.Started(group, 100 + group, 5, 0.0, 0.0)))
    journal.commit()


def test_what_follows_a_torn_write_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    journal, errors = opened(path)
    started(journal, 1)
    write = os.write
    monkeypatch.setattr(module.os, "write", lambda fd, data: write(fd, data[:9]))
    started(journal, 2)
    assert errors
    monkeypatch.undo()
    started(journal, 3)
    known = Journal(str(path), on_error=errors.append).load()
    assert {group: list(one.reports) for group, one in known.items()} == {
        group: ["Started"] for group in (1, 2, 3)
    }
    assert os.listdir(tmp_path) == ["journal"]


def test_nothing_is_kept_of_what_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, errors = opened(path)
    started(journal, 1)
    journal.acknowledged(1)
    journal.report(1, m.encode(m.Empty(1, 0.0, 0.0, None)))
    journal.commit()
    assert Journal(str(path), on_error=errors.append).load() == {}
    assert errors == []


@pytest.mark.parametrize(
    "line",
    [
        '["begin",{"group":1}]',
        '["begin",{"group":[],"boot":"x"}]',
        '["begin",[1]]',
        "[" * 100_000,
        '[{},{"group":7}]',
        '["Started",{"group":7,"colour":"blue"}]',
        '["Painted",{"group":7}]',
        '["Started",{"group":7,"pid":"x","start_time":[],"at":0,"mono":0}]',
    ],
    ids=lambda line: line[:30],
)
def test_a_keeper_starts_on_a_damaged_journal(own: Harness, mark: str, line: str) -> None:
    group = own.started(f"sleep {mark}")
    own.process.kill()
    own.process.wait()
    text = f'["begin",{{"group":7,"boot":"x"}}]\n{line}\n'
    with Path(own.state, "keeper.journal").open("a") as file:
        file.write(text)
    hello = own.restart()
    assert group in {one.group for one in hello.groups}
    assert not alive(mark)


def test_what_no_journal_has_is_ended_all_the_same(own: Harness, mark: str) -> None:
    own.started(f"sleep {mark}")
    own.started(f"trap '' TERM; sh -c 'sleep {mark}; :'")
    eventually(lambda: len(alive(mark)) >= 2)
    own.process.kill()
    own.process.wait()
    Path(own.state, "keeper.journal").unlink()
    assert own.restart().groups == []
    assert not alive(mark)
