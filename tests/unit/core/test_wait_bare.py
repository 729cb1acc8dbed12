from __future__ import annotations

import random

from pinfoldd.core import events as e
from pinfoldd.core.reasons import Reason
from pinfoldd.core.values import CallState

from .world import CANCELLED, INTERRUPTED, World, failed_with, got, refused

NOTHING_LEFT = failed_with(Reason.NOTHING_TO_WAIT_FOR)


def test_the_oldest_completion_comes_first(w: World) -> None:
    w.in_background("a", "b")
    w.exits("b")
    w.exits("a")
    assert w.answer(w.wait()) == got("b")
    assert w.answer(w.wait()) == got("a")
    assert w.notices() == []


def test_without_anything_the_error_says_so(w: World) -> None:
    with refused(Reason.NOTHING_TO_WAIT_FOR):
        w.wait()


def test_a_foreground_sibling_is_nothing_to_wait_for(w: World) -> None:
    w.begin("X")
    with refused(Reason.NOTHING_TO_WAIT_FOR):
        w.wait()


def test_of_two_on_one_running_call_one_is_installed(w: World) -> None:
    w.in_background("X")
    one = w.wait()
    with refused(Reason.BARE_WAIT_IN_PROGRESS):
        w.wait()
    w.exits("X")
    assert w.answer(one) == got("X")
    assert w.consumed("X") == 1


def test_two_with_two_completions_take_one_each(w: World) -> None:
    w.in_background("X", "Y")
    w.exits("X")
    w.exits("Y")
    assert w.notices() == ["X", "Y"]
    assert w.answer(w.wait()) == got("X")
    assert w.answer(w.wait()) == got("Y")
    assert w.notices() == []
    assert w.events(e.WaitInstalled) == []


def test_it_gets_the_cancellation_of_the_only_call(w: World) -> None:
    w.in_background("X")
    wait = w.wait()
    w.cancel("X")
    w.killed("X")
    assert w.answer(wait) == got("X")
    assert w.call("X").state is CallState.CANCELLED


def test_an_exact_waiter_goes_before_it_and_it_does_not_hang(w: World) -> None:
    w.in_background("X")
    exact, bare = w.wait("X"), w.wait()
    w.cancel("X")
    w.killed("X")
    assert w.answer(exact) == got("X")
    assert w.answer(bare) == NOTHING_LEFT


def test_it_waits_on_while_another_call_runs(w: World) -> None:
    w.in_background("X", "Y")
    exact, bare = w.wait("X"), w.wait()
    w.exits("X")
    assert w.answer(exact) == got("X")
    assert w.answer(bare) is None
    w.exits("Y")
    assert w.answer(bare) == got("Y")
    assert w.events(e.PromptQueued) == []


def test_a_call_that_goes_to_the_background_later_counts(w: World) -> None:
    w.in_background("X")
    w.begin("Y")
    exact, bare = w.wait("X"), w.wait()
    w.after(2)
    w.exits("X")
    assert (w.answer(exact), w.answer(bare)) == (got("X"), None)
    w.exits("Y")
    assert w.answer(bare) == got("Y")


def test_other_agents_completions_are_not_its_own(w: World) -> None:
    w.child("kid")
    w.in_background("X")
    w.in_background("K", agent="kid")
    wait = w.wait()
    w.exits("K", "kid")
    assert w.answer(wait) is None
    w.exits("X")
    assert w.answer(wait) == got("X")
    assert w.notices("kid") == ["K"]


def test_a_set_reservation_goes_before_it(w: World) -> None:
    w.in_background("X", "Y")
    both, bare = w.wait("X", "Y"), w.wait()
    w.exits("X")
    assert (w.answer(both), w.answer(bare)) == (None, None)
    w.exits("Y")
    assert w.answer(both) == got("X", "Y")
    assert w.answer(bare) == NOTHING_LEFT


def test_it_takes_what_a_cancelled_set_gives_back(w: World) -> None:
    w.in_background("X", "Y")
    both, bare = w.wait("X", "Y"), w.wait()
    w.exits("X")
    w.cancel_wait(both)
    assert w.answer(both) == CANCELLED
    assert w.answer(bare) == got("X")
    assert w.notices() == []


def test_it_can_begin_while_the_only_completion_is_reserved(w: World) -> None:
    w.in_background("X")
    w.start("Y", budget=None)
    w.runs("Y")
    both = w.wait("X", "Y")
    w.exits("X")
    bare = w.wait()
    assert w.answer(bare) is None
    w.cancel_wait(both)
    assert w.answer(bare) == got("X")


def test_it_ends_when_the_reserved_completion_is_consumed(w: World) -> None:
    w.in_background("X")
    w.start("Y", budget=None)
    w.runs("Y")
    both = w.wait("X", "Y")
    w.exits("X")
    bare = w.wait()
    w.exits("Y")
    assert w.answer(both) == got("X", "Y")
    assert w.answer(bare) == NOTHING_LEFT


def test_a_message_interrupts_it(w: World) -> None:
    w.in_background("X")
    wait = w.wait()
    w.message()
    assert w.answer(wait) == INTERRUPTED
    assert not w.call("X").consumed


def test_its_own_notices_do_not_interrupt_it(w: World) -> None:
    w.in_background("X", "Y", "Z")
    w.exits("X")
    both = w.wait("X", "Y")  # covers X, whose notice stays pending
    assert w.notices() == ["X"]
    assert w.answer(w.wait()) is None
    assert w.answer(both) is None


def test_many_owners_with_random_exact_waits_keep_their_order() -> None:
    w = World()
    random_ = random.Random(7)
    owners = ["A", "B", "C", "D"]
    for owner in owners[1:]:
        w.open(owner)
    expected: dict[str, list[str]] = {owner: [] for owner in owners}
    for owner in owners:
        for i in range(200):
            w.start(f"c{i}", owner, background=True)
            w.runs(f"c{i}", owner)
    ends = [(owner, f"c{i}") for owner in owners for i in range(200)]
    random_.shuffle(ends)
    for owner, call in ends:
        w.exits(call, owner)
        expected[owner].append(call)
    for owner in owners:
        while expected[owner]:
            if random_.random() < 0.4:
                call = random_.choice(expected[owner])
                assert w.answer(w.wait(call, agent=owner), owner) == got(call)
            else:
                call = expected[owner][0]
                assert w.answer(w.wait(agent=owner), owner) == got(call)
            expected[owner].remove(call)
        assert w.notices(owner) == []
