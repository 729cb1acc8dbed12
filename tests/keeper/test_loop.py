"""The keeper's loop and handlers that raise."""

from __future__ import annotations

import os

from pinfoldd.keeper.loop import Loop


def calls_of_a_failing_handler(loop: Loop, fd: int, turns: int) -> int:
    called = 0
    left = turns

    def fail(_: int) -> None:
        nonlocal called
        called += 1
        raise ValueError

    def end_turn() -> None:
        nonlocal left
        left -= 1
        loop.running = left > 0

    loop.on_turn, loop.on_error, loop.running = end_turn, lambda: None, True
    for number in range(turns):
        loop.call_later(0.001 * number, lambda: None)
    loop.watch(fd, fail)
    loop.run()
    loop.unwatch(fd)
    return called


def test_a_handler_that_fails_for_ever_is_given_up_and_its_number_is_not() -> None:
    loop = Loop()
    read, write = os.pipe()
    os.write(write, b"x")
    assert calls_of_a_failing_handler(loop, read, 9) == 9
    # The same number, another handler: it has nothing to do with the nine.
    assert calls_of_a_failing_handler(loop, read, 15) == 10
    for fd in (read, write):
        os.close(fd)
