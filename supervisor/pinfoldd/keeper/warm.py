"""The keeper's side of the zygote: starts it when first needed, and again when it dies."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .launch import Pipes, Plan
from .loop import Loop, Timer
from .marker import Marker
from .messages import Spawn
from .zygote import CHANNEL

START_BOUND = 30.0
"""Seconds that a worker may take to be forked, the start of the zygote included."""

_RESTARTS = 3  # starts without a single worker forked, after which requests fail


@dataclass(slots=True)
class Request:
    """One worker on order. `done` gets its pid, or a reason why there is none."""

    payload: dict[str, Any]
    pipes: Pipes
    done: Callable[[int, str], None]
    gate: int = -1  # our end: a byte lets the worker run
    timer: Timer | None = None


class Warm:
    """Orders are served one after another: a fork takes milliseconds, and the zygote is
    single-threaded. `preload` are the modules it imports."""

    def __init__(
        self, loop: Loop, marker: Marker, preload: str, note: Callable[[str], None]
    ) -> None:
        self._loop, self._marker, self._preload, self._note = loop, marker, preload, note
        self.pid = 0  # of the zygote; 0: there is none
        self._channel: socket.socket | None = None
        self._ready = False
        self._queue: deque[Request] = deque()
        self._current: Request | None = None
        self._serial = 0
        self._fruitless = 0
        self.unknown: set[int] = set()  # reaped while a fork was under way

    @property
    def pids(self) -> tuple[int, ...]:
        """Children of the keeper that are no group's."""
        return (self.pid,) if self.pid else ()

    @property
    def busy(self) -> bool:
        return self._current is not None

    def order(
        self,
        order: Spawn,
        plan: Plan,
        pipes: Pipes,
        limits: list[tuple[int, int, int]],
        done: Callable[[int, str], None],
    ) -> None:
        """Have a worker forked; `done` is called later, once, with its pid or why not."""
        payload = {
            "target": order.zygote,
            "env": [[os.fsdecode(name), os.fsdecode(text)] for name, text in plan.env.items()],
            "cwd": os.fsdecode(plan.cwd),
            "mark": self._marker.limit(order.group),
            "limits": limits,
        }
        request = Request(payload, pipes, done)
        request.timer = self._loop.call_later(START_BOUND, lambda: self._overdue(request))
        self._queue.append(request)
        self._fruitless = 0
        self._next()

    def _next(self) -> None:
        if self._current is not None or not self._queue:
            return
        if self._channel is None:
            self._start()
        if self._ready:
            self._send(self._queue.popleft())

    def _start(self) -> None:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._fail_all(f"the zygote can't be started: {error.strerror}")
            return
        argv = [sys.executable, "-m", "pinfoldd.keeper.zygote", "--preload", self._preload]
        self._marker.set(0)
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                argv,
                {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), CHANNEL)],
                setsid=True,
                setsigmask=(),
            )
        except OSError as error:
            ours.close()
            self._fail_all(f"the zygote can't be started: {error.strerror}")
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._channel = ours
        self._loop.watch(ours.fileno(), self._answered)

    def _send(self, request: Request) -> None:
        assert self._channel is not None
        self._serial += 1
        request.payload["serial"] = self._serial
        self._current = request
        self.unknown.clear()
        opened: list[int] = []
        try:
            gate, request.gate = os.pipe2(os.O_CLOEXEC)
            opened.append(gate)
            payload = os.memfd_create("worker", os.MFD_CLOEXEC)
            opened.append(payload)
            os.write(payload, json.dumps(request.payload).encode("ascii"))
            os.lseek(payload, 0, os.SEEK_SET)
            fds = array.array("i", [payload, gate, *request.pipes.ends])
            self._channel.sendmsg([b"worker"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except (BrokenPipeError, ConnectionResetError):
            self._ready = False  # it is dead already: `died` follows, and asks another one
        except OSError as error:
            self._finish(0, f"the zygote can't be asked: {error.strerror}")
        finally:
            for fd in opened:
                os.close(fd)

    def _answered(self, _: int) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.unwatch(self._channel.fileno())  # `died` follows
            return
        values = json.loads(data)
        if "ready" in values:
            self._ready = True
            for text in values["failed"]:
                self._note(f"zygote: can't import {text}")
        elif self._current is not None and values["serial"] == self._serial:
            self._finish(values.get("pid", 0), values.get("error", ""))
        self._next()

    def _finish(self, pid: int, error: str) -> None:
        """The current request is over, one way or the other."""
        request, self._current = self._current, None
        assert request is not None
        if pid in self.unknown:
            pid, error = 0, "the worker ended before it began"
        if pid:
            self._fruitless = 0
        self._settle(request, pid, error)

    def _settle(self, request: Request, pid: int, error: str) -> None:
        if request.timer is not None:
            request.timer.cancel()
        request.pipes.close_ends()
        if not pid:
            request.pipes.close()
        request.done(pid, error)
        if request.gate >= 0:
            with contextlib.suppress(OSError):  # it was killed while it waited
                if pid:
                    os.write(request.gate, b"g")
            os.close(request.gate)

    def _overdue(self, request: Request) -> None:
        self._note("zygote: a worker was not forked in time")
        # One that serves others is not to blame for a long queue.
        stuck = request is self._current or not self._ready
        if request in self._queue:
            self._queue.remove(request)
        elif request is self._current:
            self._current = None
        self._settle(request, 0, f"the worker was not started within {START_BOUND:g} s")
        if self.pid and stuck:
            os.kill(self.pid, 9)

    def died(self, status: int) -> None:
        """The zygote was reaped. Whoever waits for a worker gets it from another one."""
        self._note(f"zygote: ended with {os.waitstatus_to_exitcode(status)}")
        self.pid = 0
        if self._channel is not None:
            self._loop.unwatch(self._channel.fileno())
            self._channel.close()
        self._channel, self._ready = None, False
        if self._current is not None:
            # a worker that it may have forked finds its gate closed, and ends: try again
            again, self._current = self._current, None
            if again.gate >= 0:
                os.close(again.gate)
                again.gate = -1
            self._queue.appendleft(again)
        self._fruitless += 1
        if self._fruitless >= _RESTARTS:
            self._fail_all("the zygote does not start")
        self._next()

    def _fail_all(self, reason: str) -> None:
        waiting, self._queue = self._queue, deque()
        for request in waiting:
            self._settle(request, 0, reason)

    def stop(self) -> None:
        """The keeper is leaving."""
        if self.pid:
            os.kill(self.pid, 9)
