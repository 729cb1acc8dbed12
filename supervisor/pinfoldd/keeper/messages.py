"""The vocabulary of the link between the daemon and its keeper.

Two directions over one unix stream socket: *orders* (daemon to keeper) and *reports*
(keeper to daemon). A frame is `!II` (header length, body length), a JSON header
`[name, {field: value}]` and raw body bytes, which hold the one `bytes` field that a
message may have (script, input): output never crosses the link, it is read from the spool.

`group` is the number the daemon gives each group of processes. It is never used twice in
one state directory, which is what lets either side repeat a message safely: an order for a
group the keeper has already carried out, and a report the daemon has already logged, are
both recognised and ignored.

Times: `at` is seconds since the epoch (for people), `mono` is `time.monotonic()` in
seconds, which all processes of one boot share (for durations and deadlines).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

PROTOCOL = 3
_PREFIX = struct.Struct("!II")
PREFIX_SIZE = _PREFIX.size
MAX_FRAME = 64 << 20


class LinkError(Exception):
    """A frame that neither side may send: the connection is closed, nothing is lost."""


@dataclass(slots=True)
class TerminalSize:
    rows: int = 24
    columns: int = 80


# ---------------------------------------------------------------- orders


@dataclass(slots=True)
class Base:
    """The environment that all groups have in common. Sent once on each connection, so that
    it isn't encoded, decoded and checked for each spawn."""

    env: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Spawn:
    """Start one group. Answered by `Started` or `SpawnFailed`, exactly once.

    `argv` empty means: run `script` (byte for byte) with `shell`, from a file. `argv` given
    means: exec it directly. `input` is the initial standard input. Both cross the link as one
    body: a daemon that is killed while it sends has ordered all of it, or nothing.
    Strings that name things of the operating system (argv, env, cwd) are decoded with
    surrogateescape, so that any bytes survive the way.
    """

    BODY: ClassVar[str] = "body"
    group: int
    label: str = ""
    argv: list[str] = field(default_factory=list)
    shell: str = "/bin/bash"
    cwd: str = "/"
    env: dict[str, str] = field(default_factory=dict)  # over that of `Base`
    stdin: str = "null"  # null | pipe
    terminal: TerminalSize | None = None  # a PTY; stdout and stderr are then one stream
    output_limit: int = 64 << 20  # bytes kept: the first and the last half of it
    nofile: int = 0  # soft RLIMIT_NOFILE, 0: the keeper's stated default
    memory: int = 0  # RLIMIT_AS in bytes, 0: none
    cpu_seconds: int = 0  # RLIMIT_CPU, 0: none
    file_size: int = 0  # RLIMIT_FSIZE in bytes, 0: none
    zygote: str = ""  # "module:function" of a Python worker, forked from the warm zygote
    script_size: int = -1  # bytes of `body` that are the script; -1: all, or none with `argv`
    body: bytes = b""

    @property
    def script(self) -> bytes:
        return self.body[: self._script_end()]

    @property
    def input(self) -> bytes:
        return self.body[self._script_end() :]

    def _script_end(self) -> int:
        if self.script_size >= 0:
            return self.script_size
        return 0 if self.argv or self.zygote else len(self.body)


@dataclass(slots=True)
class Stop:
    """End every process of the group: TERM and CONT, `grace` seconds, KILL, proof.

    Answered by `Exited` (if the leader lived) and `Empty` or `Survived`. A second `Stop`
    joins the first; a shorter grace shortens what is left of the first one's.
    `grace` 0 goes to KILL at once.
    """

    group: int
    grace: float = 2.0
    signal: int = 15


@dataclass(slots=True)
class Input:
    """Bytes for the group's standard input; `eof` closes it after them. Answered by
    `InputTaken` once they have been handed on (or can't be): that is the flow control."""

    BODY: ClassVar[str] = "body"
    group: int
    serial: int
    eof: bool = False
    body: bytes = b""


@dataclass(slots=True)
class Resize:
    group: int
    size: TerminalSize = field(default_factory=TerminalSize)


@dataclass(slots=True)
class Acknowledge:
    """The daemon has committed each group's `SpawnFailed`, or both its exit and its end
    (`Empty` or `Survived`): the keeper may forget them (the spools stay)."""

    groups: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Discard:
    """Retention: remove the spools of these groups. Live or unknown groups are ignored."""

    groups: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Shutdown:
    """End all groups with this grace, report them, and exit once acknowledged (bounded)."""

    grace: float = 2.0


# ---------------------------------------------------------------- reports


@dataclass(slots=True)
class Started:
    group: int
    pid: int
    start_time: int  # clock ticks after boot, /proc/<pid>/stat field 22: the identity with pid
    at: float
    mono: float


@dataclass(slots=True)
class SpawnFailed:
    """Nothing was started and nothing is left of the attempt."""

    group: int
    reason: str  # one line for people, names the path or variable
    errno: int
    at: float
    mono: float


@dataclass(slots=True)
class Grew:
    """The spool now ends at `size`. Coalesced: at most one a loop turn and group."""

    group: int
    size: int
    lines: int  # newlines so far, all streams
    dropped: int  # bytes that were received but are no longer kept (middle of a flood)


@dataclass(slots=True)
class Paused:
    """The leader was stopped (SIGSTOP, SIGTSTP…) or continued."""

    group: int
    paused: bool


@dataclass(slots=True)
class Signalled:
    """One line of a kill receipt."""

    signal: int
    mono: float
    pids: int  # processes it reached
    step: str  # term | kill | sweep


@dataclass(slots=True)
class Survivor:
    pid: int
    name: str
    reason: str  # e.g. "operation not permitted", "uninterruptible sleep"


@dataclass(slots=True)
class Receipt:
    """What a stop did, in order."""

    signals: list[Signalled] = field(default_factory=list)
    ended: int = 0  # processes seen alive when the stop began or later, that are gone
    escaped: int = 0  # of them, found outside the leader's process group
    ended_by: str = ""  # the step after which the group was empty: exit | term | kill | sweep
    proof: str = ""  # "subreaper", "cgroup", or after a keeper's death "scan" (of /proc) or
    # "boot" (another boot of the machine); empty while there are survivors
    survivors: list[Survivor] = field(default_factory=list)
    seconds: float = 0.0  # from the Stop to the proof


@dataclass(slots=True)
class Empty:
    """Proven: no process of the group is left. With a receipt if a Stop was asked for.

    Sent by itself if something of the group outlived its leader, else in `Exited`."""

    group: int
    at: float
    mono: float
    receipt: Receipt | None = None


@dataclass(slots=True)
class Exited:
    """The leader was reaped and what it had written is in the spool up to `size`.

    `end` is there if nothing of the group was left at that moment, which is so for most:
    there is no `Closed` and no `Empty` then, and the daemon decides once and not three times.
    """

    group: int
    code: int | None  # exactly one of code and signal is set, or neither: unknown
    signal: int | None
    core_dumped: bool
    at: float
    mono: float
    size: int
    lines: int
    dropped: int
    leftover: int  # processes of the group that live on at this moment
    stopping: bool  # True if a Stop had signalled the group before the leader ended
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss: int = 0  # bytes; 0: less than the keeper's own (some 20 MB), and thus unknown
    end: Empty | None = None


@dataclass(slots=True)
class Closed:
    """All output streams are at their end (EOF, or EIO of a terminal), of a group that lives."""

    group: int
    at: float
    size: int
    lines: int
    dropped: int


@dataclass(slots=True)
class Survived:
    """The bound of a Stop passed and processes are left; `Empty` follows if they ever end."""

    group: int
    at: float
    mono: float
    receipt: Receipt = field(default_factory=Receipt)


@dataclass(slots=True)
class InputTaken:
    group: int
    serial: int
    accepted: int  # bytes
    error: str = (
        ""  # "closed": nobody reads it any more; "full": accepted fewer, send the rest later
    )


@dataclass(slots=True)
class Lost:
    """An earlier keeper died while this group ran; the rest of it has been ended by identity."""

    group: int
    at: float
    mono: float
    size: int
    lines: int
    dropped: int
    receipt: Receipt = field(default_factory=Receipt)


@dataclass(slots=True)
class GroupReport:
    """Where one group stands: sent for each unacknowledged group when the daemon connects."""

    group: int
    started: Started | None = None
    failed: SpawnFailed | None = None
    exited: Exited | None = None
    closed: Closed | None = None
    empty: Empty | None = None
    survived: Survived | None = None
    lost: Lost | None = None
    paused: bool = False
    size: int = 0
    lines: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Hello:
    """The keeper's first frame on each connection."""

    protocol: int
    version: str
    boot_id: str
    pid: int
    keeper: str  # a name made anew at each keeper start
    containment: str  # "subreaper" or "subreaper+cgroup"
    groups: list[GroupReport] = field(default_factory=list)


Order = Base | Spawn | Stop | Input | Resize | Acknowledge | Discard | Shutdown
Report = (
    Hello
    | Started
    | SpawnFailed
    | Grew
    | Paused
    | Exited
    | Closed
    | Empty
    | Survived
    | InputTaken
    | Lost
)
Message = Order | Report


# ---------------------------------------------------------------- frames


def _nested(value: Any) -> dict[str, Any]:
    return _PLANS[type(value)].header(value)


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_nested)
_DECODER = json.JSONDecoder()


class Json(NamedTuple):
    """How headers are written and read. The daemon has a quicker one than the standard library,
    of the same format; each raises ValueError for what it can't do."""

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]


STANDARD = Json(
    lambda value: _ENCODER.encode(value).encode("ascii"),
    lambda data: _DECODER.decode(data.decode()),  # the quicker one escapes no more than it must
)


class _Plan:
    """How one class crosses the link: worked out once, since every frame needs it."""

    __slots__ = ("body", "cls", "get", "name", "names", "nested")

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.body: str | None = getattr(cls, "BODY", None)
        self.names = tuple(f.name for f in fields(cls) if f.name != self.body)
        # attrgetter answers a bare value, not a tuple, when it is asked for one name
        one = attrgetter(self.names[0])
        self.get = attrgetter(*self.names) if len(self.names) > 1 else (lambda m: (one(m),))
        self.nested: dict[str, Callable[[Any], Any]] = {}

    def header(self, message: Any) -> dict[str, Any]:
        return dict(zip(self.names, self.get(message)))

    def build(self, values: dict[str, Any]) -> Any:
        for name, convert in self.nested.items():
            value = values.get(name)
            if value is not None:
                values[name] = convert(value)
        return self.cls(**values)


def _list_of(plan: _Plan) -> Callable[[Any], Any]:
    build = plan.build
    return lambda values: [build(value) for value in values]


def _make_plans() -> dict[type[Any], _Plan]:
    parts = (TerminalSize, Signalled, Survivor, Receipt, GroupReport)
    plans = {cls: _Plan(cls) for cls in (*parts, *get_args(Order), *get_args(Report))}
    for plan in plans.values():
        for name, hint in get_type_hints(plan.cls).items():
            for inner in (hint, *get_args(hint)):
                if inner in plans:
                    many = get_origin(hint) is list
                    plan.nested[name] = _list_of(plans[inner]) if many else plans[inner].build
    return plans


_PLANS: dict[type[Any], _Plan] = _make_plans()
_BY_NAME = {plan.name: plan for cls, plan in _PLANS.items() if cls in get_args(Message)}


def from_values(name: str, values: dict[str, Any]) -> Any:
    """The message that has these fields, nested ones as a frame's header holds them."""
    return _BY_NAME[name].build(dict(values))


def encode(message: Message, json: Json = STANDARD) -> bytes:
    """One frame. Strings with lone surrogates (undecodable bytes of the system) survive:
    JSON escapes them, and the other end gets the same string back."""
    plan = _PLANS[type(message)]
    header = json.dumps([plan.name, dict(zip(plan.names, plan.get(message)))])
    if plan.body is None:
        return _PREFIX.pack(len(header), 0) + header
    body: bytes = getattr(message, plan.body)
    if len(header) + len(body) > MAX_FRAME:
        raise LinkError(f"{plan.name} of {len(header) + len(body)} bytes is over {MAX_FRAME}")
    return b"".join((_PREFIX.pack(len(header), len(body)), header, body))


def _decode(header: bytes, body: bytes, json: Json) -> Message:
    try:
        name, values = json.loads(header)
        plan = _BY_NAME[name]
        if plan.body is not None:
            values[plan.body] = body
        elif body:
            raise LinkError(f"{name} has no body")
        message: Message = plan.build(values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Without what was in it: an order has the environment of a call.
        raise LinkError(f"not a frame of this link ({type(error).__name__})") from error
    return message


class Decoder:
    """Turns what a stream socket delivers, in whatever pieces, back into messages."""

    __slots__ = ("_held", "_json", "_missing", "_pieces")

    def __init__(self, json: Json = STANDARD) -> None:
        self._json = json
        self._pieces: list[bytes] = []
        self._held = 0
        self._missing = 0

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes, in order. Raises `LinkError` for what is no
        frame, after which the connection is of no more use."""
        if self._pieces:
            self._pieces.append(data)
            self._held += len(data)
            # joined once a frame is complete, so that a large one costs one copy and not many
            if self._held < self._missing:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        messages: list[Message] = []
        at, end = 0, len(data)
        self._missing = 8
        while end - at >= 8:
            header, body = _PREFIX.unpack_from(data, at)
            if header + body > MAX_FRAME:
                raise LinkError(f"a frame of {header + body} bytes is over {MAX_FRAME}")
            middle = at + 8 + header
            if middle + body > end:
                self._missing = 8 + header + body
                break
            messages.append(
                _decode(data[at + 8 : middle], data[middle : middle + body], self._json)
            )
            at = middle + body
        if at < end:
            self._pieces = [data[at:]]
            self._held = end - at
        return messages
