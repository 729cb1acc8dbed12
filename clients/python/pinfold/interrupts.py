"""Signals that are never slept through.

A handler of `signal.signal` runs at the next bytecode of the main thread. A signal that comes
just before the event loop goes to sleep is then noticed at the loop's next event, which may
be never. A handler of the loop has a descriptor that wakes it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, whose Ctrl-C cancels `main` at once. Raises KeyboardInterrupt then."""

    async def woken() -> T:
        task = asyncio.current_task()
        in_main = threading.current_thread() is threading.main_thread()
        if task is not None and in_main and not is_ignored(signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
        return await main

    try:
        return asyncio.run(woken())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def is_ignored(number: signal.Signals) -> bool:
    """Whoever started this program had it ignored, as nohup does, and it stays so."""
    return signal.getsignal(number) is signal.SIG_IGN


def wake_for(number: signal.Signals) -> None:
    """Have this signal wake the running loop, whatever handler `signal.signal` sets next."""
    asyncio.get_running_loop().add_signal_handler(number, lambda: None)
