"""Which phase and which check must catch which break."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    broken: str  # a function of broken/breaks.py
    phase: str
    check: str


LATE = "what should come, comes"

CASES = [
    Case("notice_not_suppressed", "suppression", "the prompt is taken back"),
    Case("notice_despite_wait", "suppression", "no prompt is ever queued"),
    Case("notice_twice", "background", "one prompt"),
    Case("notice_to_parent", "delegate-leak", "no stray completion prompt"),
    Case("notice_lost_after_interruption", "restored-notices", LATE),
    Case("task_notice_wakes", "tasks-notices", "it wakes nobody"),
    Case("result_consumed_twice", "races", "one gets the result, the rest an error"),
    Case("newest_first", "wait-bare", "in the order of completion, each named"),
    Case("two_exact_waiters", "races", "one is installed, the rest refused"),
    Case("interruption_names_call", "interruption", "exactly these headers, then optional prose"),
    Case(
        "input_beats_result",
        "interruption-notices",
        "its own prompt does not interrupt, a ready result goes first",
    ),
    Case("bare_wait_hangs", "wait-bare", LATE),
    Case("foreign_calls_known", "wait-exact", "another conversation's"),
    Case("cancel_kills_nothing", "cancel-shell", "nothing of a normal completion"),
    Case("cancel_kills_siblings", "cancel-isolation", "the sibling runs on"),
    Case("cancel_twice", "duplicate-cancel", "of parallel cancels one succeeds"),
    Case("cancel_without_notice", "duplicate-cancel", "one request"),
    Case("cancelled_output_lost", "cancel-shell", "the output so far is kept"),
    Case("wrong_placeholder", "background", "placeholder text"),
    Case("no_duration", "duration", "over 5 s, in whole seconds, after the status"),
    Case("chatty_cancel", "cancel-queued", "a queued call can be cancelled"),
    Case("no_origin", "wait-bare", "in the order of completion, each named"),
    Case("no_status_line", "tasks-stream", "what is new"),
    Case("wrong_status", "tasks-stream", "the rest, then the status with its detail"),
    Case("message_does_not_preempt", "parked-delegate", LATE),
    Case(
        "message_preempts_too_much", "busy-delegate", "the call ends by itself, in the foreground"
    ),
    Case("watch_stays_on", "agent-watch", "nothing of a later turn is told"),
    Case("answer_told_twice", "agent-start", "the final answer, once, activating"),
    Case("cursor_stands_still", "tasks-stream", "once"),
    Case("tasks_unfenced", "tasks-fences", "another's task cannot be read"),
    Case("no_task_limit", "tasks-limit", "one more is refused"),
]
