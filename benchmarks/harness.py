"""What all questions share: the processes that are measured, and how measurements alternate."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
import time
import timeit
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import psutil

from pinfold import SyncClient

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
SHELL = "/bin/sh"
"""Of the floors and of the supervisor alike: what starts a shell is compared, not shells."""
MARKER = "PINFOLD_BENCH_MARKER"
_READY_SECONDS = 60.0
_ANSWER_SECONDS = 120.0
_NS = 1e-9

Answer = dict[str, Any]


def seconds(samples: Sequence[int]) -> list[float]:
    return [sample * _NS for sample in samples]


def child_environment(**more: str) -> dict[str, str]:
    """Without settings of the caller; with our packages to be found."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PINFOLD_")}
    paths = [REPOSITORY, REPOSITORY / "supervisor", REPOSITORY / "clients" / "python"]
    env["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    env["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**env, **more}


# ---------------------------------------------------------------- processes


class Lines:
    """A helper process that answers a line with a line."""

    def __init__(self, command: Sequence[str], *, greets: bool = True, cwd: Path | None = None):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=child_environment(),
            cwd=cwd,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to: IO[bytes] = self.process.stdin
        self._from: IO[bytes] = self.process.stdout
        self._received = bytearray()
        if greets:
            self.receive()

    def send(self, line: str) -> None:
        self._to.write(line.encode() + b"\n")
        self._to.flush()

    def receive(self) -> bytes:
        while (end := self._received.find(b"\n")) < 0:
            if not select.select([self._from], [], [], _ANSWER_SECONDS)[0]:
                raise TimeoutError(f"{self.process.args!r} does not answer")
            piece = os.read(self._from.fileno(), 1 << 20)
            if not piece:
                raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
            self._received += piece
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def ask(self, line: str) -> list[float]:
        """Nanoseconds, as seconds."""
        self.send(line)
        return [int(word) * _NS for word in self.receive().split()]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._to.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._from.close()


class Load(Lines):
    """A load client: see `load/__init__.py` for what it can be asked."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._serial = 0
        self._answers: dict[int, Answer] = {}
        super().__init__(command)

    def begin(self, op: str, **arguments: object) -> Callable[[], Answer]:
        """Ask, and get a function that waits for the answer: others can be asked meanwhile."""
        self._serial += 1
        number = self._serial
        self.send(json.dumps({"id": number, "op": op, **arguments}))
        return lambda: self._wait(number)

    def call(self, op: str, **arguments: object) -> Answer:
        return self.begin(op, **arguments)()

    def took(self, op: str, **arguments: object) -> list[float]:
        return seconds(self.call(op, **arguments)["took"])

    def _wait(self, number: int) -> Answer:
        while number not in self._answers:
            answer = json.loads(self.receive())
            self._answers[answer["id"]] = answer
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{self.name} load client: {answer['error']}")
        return dict(answer["ok"])


class Server:
    """A process on a directory of its own, with a socket in it."""

    address: str
    process: subprocess.Popen[bytes]

    @cached_property
    def client(self) -> SyncClient:
        """For setting up; never for what is measured."""
        return SyncClient.connect(self.address, token="")

    def memory(self) -> int:
        """Bytes that this process has for itself alone."""
        return int(psutil.Process(self.process.pid).memory_full_info().uss)

    def processor_time(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


class Bare(Server):
    """`floors/bare.py`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-bare-", dir="/tmp"))
        self.address = f"unix:{self.directory / 'bare.sock'}"
        self._lines = Lines(
            [sys.executable, "-m", "benchmarks.floors.bare", str(self.directory / "bare.sock")]
        )
        self.process = self._lines.process

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()
        self.process.terminate()
        self._lines.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Supervisor(Server):
    """A supervisor on a fresh state directory, or on a prepared one."""

    def __init__(self, state: Path | None = None, settings: str = "", *arguments: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pf-bench-", dir="/tmp"))
        self.state = self.directory / "state"
        if state is not None:
            shutil.copytree(state, self.state)
        else:
            self.state.mkdir(mode=0o700)
        (self.state / "pinfold.toml").write_text(settings)
        self.address = f"unix:{self.state / 'pinfold.sock'}"
        self.marker = uuid.uuid4().hex
        self._arguments = arguments
        self.start_seconds = self.start()

    def start(self) -> float:
        """Start it (again). Returns the seconds until it was ready."""
        read, write = os.pipe()
        command = [sys.executable, "-m", "pinfoldd", "--state", str(self.state)]
        command += ["--ready-fd", str(write), "--log-level", "error", *self._arguments]
        begin = time.monotonic()
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child_environment(**{MARKER: self.marker}),
                pass_fds=[write],
                start_new_session=True,
            )
        os.close(write)
        ready = select.select([read], [], [], _READY_SECONDS)[0] and os.read(read, 100)
        took = time.monotonic() - begin
        os.close(read)
        if not ready:
            raise RuntimeError(f"pinfoldd did not start:\n{(self.directory / 'log').read_text()}")
        return took

    def end(self) -> None:
        """SIGTERM, and wait for its end."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def agent(self, name: str, **options: Any) -> str:
        self.client.open_agent(name, **options)
        return name

    def sleepers(self, agent: str, count: int) -> None:
        """So many live groups that do nothing."""
        handle = self.client.open_agent(agent)
        for _ in range(count):
            handle.start("exec sleep 100000", shell=SHELL, foreground_budget=100_000.0)

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()
        self.end()
        survivors = processes_with(MARKER, self.marker)
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        shutil.rmtree(self.directory, ignore_errors=True)


def processes_with(name: str, value: str) -> list[int]:
    """Live processes that were started with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                environ = Path(f"/proc/{entry}/environ").read_bytes()
                if wanted in environ.split(b"\0"):
                    found.append(int(entry))
    return found


# ---------------------------------------------------------------- what is cancelled


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A command to be cancelled: its script, and the bytes it writes once all of it is there."""

    script: str
    ready: int
    floor: str  # the request to floors.c
    grace: float = 2.0


SLEEPING = Sleeper("echo r; exec sleep 1000", 2, "term")
TREE = Sleeper("for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo r; wait", 2, "tree")
ESCAPEES = Sleeper(
    "for i in 1 2 3 4 5 6 7; do sleep 1000 & done; "
    "for i in 1 2; do setsid sh -c 'echo r; exec sleep 1000' & done; echo r; wait",
    6,
    "escapees",
)
STUBBORN = Sleeper("trap '' TERM; echo r; exec sleep 1000", 2, "kill", grace=0.1)


def cancels(
    load: Load, supervisor: Supervisor, agent: str, sleeper: Sleeper, n: int, echo: str = ""
) -> Answer:
    """Start it, wait until it is ready, cancel it: `n` times. See `load/__init__.py`."""
    return load.call(
        "cancel",
        address=supervisor.address,
        agent=agent,
        n=n,
        script=sleeper.script,
        ready=sleeper.ready,
        grace=sleeper.grace,
        shell=SHELL,
        echo=echo,
    )


# ---------------------------------------------------------------- the bench


class Bench:
    """Everything a question needs. Closes what it has opened."""

    def __init__(self, *, quick: bool, build: Path) -> None:
        self.quick = quick
        self._build = build
        self._stack = contextlib.ExitStack()
        self.histories: dict[int, Path] = {}  # see history.py
        build.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    # ------------------------------------------------------------ helpers

    @cached_property
    def scratch(self) -> Path:
        """A directory that lives as long as the bench."""
        return self._stack.enter_context(self.directory())

    @cached_property
    def native(self) -> Lines:
        """`floors.c`, compiled now."""
        program = self._build / "floors"
        source = HERE / "floors" / "floors.c"
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
        lines = Lines([str(program), SHELL], greets=False)
        self._stack.callback(lines.close)
        return lines

    @cached_property
    def bare(self) -> Bare:
        bare = Bare()
        self._stack.callback(bare.close)
        return bare

    @cached_property
    def go_program(self) -> Path | None:
        """The load client in Go; None where there is no Go."""
        if shutil.which("go") is None:
            return None
        program = self._build / "load"
        built = subprocess.run(
            ["go", "build", "-o", str(program), "."],
            cwd=HERE / "load",
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode:
            print(f"benchmarks: no Go load client: {built.stderr.strip()}", file=sys.stderr)
            return None
        return program

    def new_load(self, language: str = "") -> Load:
        """Another process of a load client; the fastest language that is there by default."""
        program = self.go_program
        if language == "python" or program is None:
            load = Load("python", [sys.executable, "-m", "benchmarks.load.client"])
        else:
            load = Load("go", [str(program)])
        self._stack.callback(load.close)
        return load

    @cached_property
    def python(self) -> Load:
        return self.new_load("python")

    @cached_property
    def loads(self) -> list[Load]:
        """One client of each language, the one that disturbs least first."""
        if self.go_program is None:
            return [self.python]
        return [self.new_load("go"), self.python]

    @contextlib.contextmanager
    def supervisor(
        self, *arguments: str, state: Path | None = None, settings: str = ""
    ) -> Iterator[Supervisor]:
        supervisor = Supervisor(state, settings, *arguments)
        try:
            yield supervisor
        finally:
            supervisor.close()

    @contextlib.contextmanager
    def directory(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as name:
            yield Path(name)


def interleave(
    rounds: int, measures: Mapping[str, Callable[[], Sequence[float]]], warm_up: bool = True
) -> dict[str, list[float]]:
    """A B A B …: all measures once in each round, so that what disturbs, disturbs all."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    if warm_up:
        for measure in measures.values():
            measure()
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name] += measure()
    return found


def until(check: Callable[[], bool], what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(0.01)


# ---------------------------------------------------------------- the machine


def machine() -> dict[str, str]:
    """What a reader must know of where the figures come from."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    from importlib.metadata import version

    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": f"{model or platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "python": f"{platform.python_version()}, an object made in {_object():.0f} ns",
        "grpcio": version("grpcio"),
        "uvloop": version("uvloop"),
        "commit": _commit(),
    }


def _object() -> float:
    """Nanoseconds, warm: builds of the same version differ by a factor of two, depending on
    whether they were compiled with a profile."""
    made = timeit.repeat("A(1)", "class A:\n def __init__(self, x): self.x = x", number=100_000)
    return min(made) / 100_000 * 1e9


def _commit() -> str:
    """The commit, `-dirty` if anything but the results of an earlier run differs from it."""
    with contextlib.suppress(OSError):
        changed = _git("status", "--porcelain", "-uno", "--", ".", ":!benchmarks/results")
        return _git("describe", "--always") + ("-dirty" if changed else "")
    return ""


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
