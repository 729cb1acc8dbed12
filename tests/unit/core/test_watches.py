from __future__ import annotations

import msgspec

from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import ReportedState

from .world import SETTINGS, World, refused


def test_the_watcher_gets_answers_prompts_and_state_lines(w: World) -> None:
    w.child("kid")
    w.prompt("please", "kid")
    w.next_turn("kid")
    w.status(ReportedState.WORKING, "digging", "kid")
    w.end_turn("gold", "kid")
    assert w.pending() == [
        "watch_prompt please p-2",
        "watch_state turn started",
        "watch_state digging status working",
        "watch_answer gold t-1",
        "watch_state turn stopped",
    ]
    assert [p.activating for p in w.agent().prompts] == [True, False, False, True, False]


def test_a_prompt_that_is_delivered_again_is_not_told_again(w: World) -> None:
    w.child("kid")
    w.prompt("please", "kid")
    w.next_turn("kid")
    w.end_turn("?", "kid", ack=False)
    w.next_turn("kid")
    assert w.delivered("kid") == ["start do it", "user please"]
    assert sum("watch_prompt" in text for text in w.pending()) == 1


def test_messages_and_notices_of_the_watched_are_not_told(w: World) -> None:
    w.child("kid")
    w.message("psst", to="kid")
    w.next_turn("kid")
    assert not any("psst" in text for text in w.pending())


def test_it_can_be_turned_off_and_on(w: World) -> None:
    w.child("kid")
    w.watch("kid", enable=False)
    w.watch("kid", enable=False)
    w.next_turn("kid")
    w.end_turn("unheard", "kid")
    assert w.pending() == []
    w.watch("kid")
    w.watch("kid")
    assert len(w.events(e.WatchChanged)) == 3
    w.prompt("again", "kid")
    w.next_turn("kid")
    assert w.pending() == ["watch_prompt again p-2", "watch_state turn started"]


def test_bad_targets_are_told_apart(w: World) -> None:
    w.open("stranger")
    w.child("kid")
    w.stop("kid")
    w.worker_exits("kid", signal=15)
    with refused(Reason.WATCH_SELF):
        w.watch("A")
    with refused(Reason.WATCH_TARGET_UNKNOWN):
        w.watch("nothing")
    with refused(Reason.WATCH_TARGET_UNKNOWN):
        w.watch("stranger")
    with refused(Reason.WATCH_TARGET_STOPPED):
        w.watch("kid")
    w.watch("kid", enable=False)


def test_a_cycle_is_refused_however_long(w: World) -> None:
    w.child("b")
    w.child("c", of="b")
    with refused(Reason.WATCH_CYCLE, watcher="c", watched="A"):
        w.watch("A", by="c")
    w.watch("c", enable=False, by="b")
    w.watch("A", by="c")
    with refused(Reason.WATCH_CYCLE):
        w.watch("c", by="b")


def test_state_lines_do_not_cascade(w: World) -> None:
    w.child("b")
    w.child("c", of="b")
    w.log.clear()
    w.status(ReportedState.BLOCKED, "stuck", "c")
    assert w.pending("b")[-1] == "watch_state stuck status blocked"
    assert w.pending() == []
    assert w.next_turn() == ""


def test_a_stop_ends_both_directions(w: World) -> None:
    w.child("b")
    w.child("c", of="b")
    w.stop("b")
    w.worker_exits("c", signal=15)
    w.worker_exits("b", signal=15)
    assert w.agent().watching == []
    assert w.agent("c").watchers == []
    assert w.pending() == ["watch_state no longer needed stopped"]
    assert w.next_turn() == ""


def test_a_late_completion_of_the_watched_stays_its_own(w: World) -> None:
    w.child("kid")
    w.next_turn("kid")
    w.in_background("K", agent="kid")
    w.end_turn("early", "kid")
    before = w.pending()
    w.exits("K", "kid")
    assert w.pending() == before
    assert w.notices("kid") == ["K"]


def test_a_watcher_that_takes_nothing_has_no_endless_list_of_state_lines() -> None:
    w = World(settings=msgspec.structs.replace(SETTINGS, pending_prompts=3))
    w.child("kid")
    w.next_turn("kid")
    for number in range(9):
        w.status(ReportedState.WORKING, f"step {number}", "kid")
    w.end_turn("gold", "kid")
    assert w.pending() == [
        "watch_state turn started",
        "watch_state step 0 status working",
        "watch_state step 1 status working",
        "watch_answer gold t-1",
    ]
