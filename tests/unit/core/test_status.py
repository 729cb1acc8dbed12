from __future__ import annotations

from pinfoldd.core import commands as c
from pinfoldd.core import events as e
from pinfoldd.core.values import ReportedState

from .world import World


def test_it_is_recorded_and_watchers_are_told(w: World) -> None:
    w.child("kid")
    w.status(ReportedState.DONE, "all of it", "kid")
    status = w.agent("kid").status
    assert status is not None
    assert (status.state, status.title) == (ReportedState.DONE, "all of it")
    assert w.pending() == ["watch_state all of it status done"]


def test_the_same_report_twice_is_accepted_and_told_once(w: World) -> None:
    w.child("kid")
    w.status(ReportedState.WAITING, "for you", "kid")
    w.status(ReportedState.WAITING, "for you", "kid")
    assert len(w.events(e.StatusReported)) == 1
    assert len(w.pending()) == 1
    w.status(ReportedState.WAITING, "for me", "kid")
    assert len(w.pending()) == 2


def test_a_repeat_of_the_request_changes_nothing(w: World) -> None:
    w.do(c.ReportStatus("A", ReportedState.WORKING, "t", "r", "d"))
    w.do(c.ReportStatus("A", ReportedState.DONE, "t", "r2", "d2"))
    before = w.state.revision
    w.do(c.ReportStatus("A", ReportedState.WORKING, "t", "r", "d"))
    assert w.state.revision == before
