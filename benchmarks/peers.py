"""Other supervisors, side by side: the same commands, each through its own normal client.

All are told to signal the whole process group with TERM and to kill it after two seconds, where
they have such settings. What one cannot do is a "no". Survivors are counted from /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from benchmarks.harness import (
    ESCAPEES,
    SHELL,
    TREE,
    Bench,
    Lines,
    Supervisor,
    child_environment,
    interleave,
    processes_with,
    until,
)
from benchmarks.stats import Row, Stats, timed
from pinfold import Placeholder

CACHE = Path(platformdirs.user_cache_dir("pinfold-bench"))
_MARK = "PINFOLD_PEER"
_BUILD_SECONDS = 900


class No(Exception):
    """It cannot do that, or is not to be had here."""


class Peer(Protocol):
    name: str

    def start(self, name: str, script: str, mark: str) -> float:
        """Start a shell command under a name. Seconds until its client says it is started."""

    def stop(self, name: str) -> float:
        """Stop it. Seconds until its client says it has stopped."""

    def wait(self, name: str) -> None:
        """Return when it has ended by itself. Raises No."""

    def close(self) -> None: ...


# ---------------------------------------------------------------- pinfold


class Pinfold:
    name = "pinfold"

    def __init__(self) -> None:
        self._supervisor = Supervisor()
        self._agent = self._supervisor.client.open_agent("peer")

    def start(self, name: str, script: str, mark: str) -> float:
        begin = time.monotonic()
        call = self._agent.run(
            script, call_id=name, shell=SHELL, background=True, env={_MARK: mark}
        )
        assert isinstance(call, Placeholder)
        return time.monotonic() - begin

    def stop(self, name: str) -> float:
        begin = time.monotonic()
        self._agent.cancel(name)
        self._agent.wait_exact(name)
        return time.monotonic() - begin

    def wait(self, name: str) -> None:
        self._agent.wait_exact(name)

    def close(self) -> None:
        self._supervisor.close()


# ---------------------------------------------------------------- supervisord


class Supervisord:
    """Its programs stand in its settings; they are read again for each new one."""

    name = "supervisord"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config = directory / "supervisord.conf"
        port = _free_port()
        (directory / "programs").mkdir()
        self._config.write_text(
            f"[supervisord]\nnodaemon=true\nlogfile={directory}/log\npidfile={directory}/pid\n"
            f"[inet_http_server]\nport=127.0.0.1:{port}\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory="
            "supervisor.rpcinterface:make_main_rpcinterface\n"
            f"[include]\nfiles={directory}/programs/*.conf\n"
        )
        self._process = _daemon([str(_python_peers("supervisord")), "-c", str(self._config)])
        proxy = xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}/RPC2")
        self._rpc: Any = proxy.supervisor
        until(lambda: _answers(self._rpc.getPID), "supervisord answers", 20)

    def start(self, name: str, script: str, mark: str) -> float:
        file = self._directory / f"{name}.sh"
        file.write_text(script)
        (self._directory / "programs" / f"{name}.conf").write_text(
            f"[program:{name}]\ncommand={SHELL} {file}\nautostart=false\nautorestart=false\n"
            f"startsecs=0\nstopwaitsecs=2\nstopasgroup=true\nkillasgroup=true\n"
            f'environment={_MARK}="{mark}"\n'
        )
        self._rpc.reloadConfig()
        begin = time.monotonic()
        self._rpc.addProcessGroup(name)
        self._rpc.startProcess(name, True)
        return time.monotonic() - begin

    def stop(self, name: str) -> float:
        begin = time.monotonic()
        self._rpc.stopProcess(name, True)
        return time.monotonic() - begin

    def wait(self, name: str) -> None:
        raise No("its client can only ask again and again")

    def close(self) -> None:
        _end(self._process)


# ---------------------------------------------------------------- circus


class Circus:
    name = "circus"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        endpoints = [f"ipc://{directory}/{name}" for name in ("control", "events", "stats")]
        (directory / "circus.ini").write_text(
            f"[circus]\nendpoint={endpoints[0]}\npubsub_endpoint={endpoints[1]}\n"
            f"stats_endpoint={endpoints[2]}\n"
        )
        program = _python_peers("circusd")
        self._process = _daemon([str(program), str(directory / "circus.ini")])
        until(lambda: (directory / "control").exists(), "circus answers", 20)
        client = Path(__file__).with_name("circus_client.py")
        self._client = Lines([str(program.with_name("python")), str(client), endpoints[0]])

    def _ask(self, command: str, **properties: object) -> float:
        return self._client.ask(json.dumps({"command": command, "properties": properties}))[0]

    def start(self, name: str, script: str, mark: str) -> float:
        file = self._directory / f"{name}.sh"
        file.write_text(script)
        options = {
            "graceful_timeout": 2,
            "stop_children": True,
            "respawn": False,
            "env": {_MARK: mark, "PATH": os.environ["PATH"]},
        }
        return self._ask(
            "add", name=name, cmd=f"{SHELL} {file}", start=True, waiting=True, options=options
        )

    def stop(self, name: str) -> float:
        return self._ask("stop", name=name, waiting=True)

    def wait(self, name: str) -> None:
        raise No("its client can only ask again and again")

    def close(self) -> None:
        self._client.close()
        _end(self._process)


# ---------------------------------------------------------------- pueue


class Pueue:
    """Its normal client is its command line."""

    name = "pueue"

    def __init__(self, directory: Path) -> None:
        programs = _cargo("pueue")
        self._client = str(programs / "pueue")
        self._config = directory / "pueue.yml"
        self._config.write_text(
            "client: {}\n"
            "daemon:\n  default_parallel_tasks: 100\n"
            f"shared:\n  pueue_directory: {directory}\n  runtime_directory: {directory}\n"
            f"  use_unix_socket: true\n  unix_socket_path: {directory}/pueue.socket\n"
        )
        self._process = _daemon([str(programs / "pueued"), "-c", str(self._config)])
        until(lambda: _answers(self._run, "status"), "pueue answers", 20)
        self._run("parallel", "100")
        self._ids: dict[str, str] = {}

    def _run(self, *arguments: str, **env: str) -> str:
        done = subprocess.run(
            [self._client, "-c", str(self._config), *arguments],
            capture_output=True,
            text=True,
            env=child_environment(**env),
            check=True,
        )
        return done.stdout.strip()

    def start(self, name: str, script: str, mark: str) -> float:
        begin = time.monotonic()
        self._ids[name] = self._run(
            "add", "--immediate", "--print-task-id", script, **{_MARK: mark}
        )
        return time.monotonic() - begin

    def stop(self, name: str) -> float:
        begin = time.monotonic()
        self._run("kill", self._ids[name])
        self._run("wait", "--quiet", self._ids[name])
        return time.monotonic() - begin

    def wait(self, name: str) -> None:
        self._run("wait", "--quiet", self._ids[name])

    def close(self) -> None:
        _end(self._process)


# ---------------------------------------------------------------- the question

_HABITS = {
    "supervisord": "; waits for the leader only",
    "circus": "; looks at the leader every 0.1 s",
    "pueue": "; its `wait` looks every 2 s",
}


def run(bench: Bench) -> Iterator[Row]:
    with contextlib.ExitStack() as stack:
        directories = iter(range(100))
        base = stack.enter_context(bench.directory())

        def fresh() -> Path:
            path = base / str(next(directories))
            path.mkdir()
            return path

        makers: dict[str, Callable[[], Peer]] = {
            "pinfold": Pinfold,
            "supervisord": lambda: Supervisord(fresh()),
            "circus": lambda: Circus(fresh()),
            "pueue": lambda: Pueue(fresh()),
            "process-compose": _process_compose,
        }
        peers: list[Peer] = []
        for name, make in makers.items():
            try:
                peer = make()
            except (No, OSError, subprocess.SubprocessError, TimeoutError) as error:
                yield _no("peers", f"{name}: all", str(error))
                continue
            stack.callback(peer.close)
            peers.append(peer)
        yield from _start_and_stop(bench, peers)
        yield from _waits(bench, peers)


def _start_and_stop(bench: Bench, peers: Sequence[Peer]) -> Iterator[Row]:
    starts: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for what, sleeper in (("a tree of 10", TREE), ("…two of them in other sessions", ESCAPEES)):
        survivors: dict[str, list[int]] = {peer.name: [] for peer in peers}
        numbers = iter(range(10_000))

        def stop(
            peer: Peer,
            script: str = sleeper.script,
            survivors: dict[str, list[int]] = survivors,
            numbers: Iterator[int] = numbers,
            kind: str = sleeper.floor,
        ) -> list[float]:
            name = f"{kind}-{next(numbers)}"
            mark = f"{os.getpid()}-{peer.name}-{name}"
            starts[peer.name].append(peer.start(name, script, mark))
            until(lambda: len(processes_with(_MARK, mark)) >= 10, f"{peer.name}: all started", 10)
            time.sleep(0.05)
            took = peer.stop(name)
            time.sleep(0.2)
            left = processes_with(_MARK, mark)
            survivors[peer.name].append(len(left))
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return [took]

        found = interleave(
            bench.size(10, 2),
            {peer.name: lambda peer=peer: stop(peer) for peer in peers},  # type: ignore[misc]
        )
        for peer in peers:
            took, left = found[peer.name], max(survivors[peer.name])
            title = f"{peer.name}: stop {what}, until nothing is left"
            habit = _HABITS.get(peer.name, "")
            if left:
                said = f"{statistics.median(took) * 1e3:.1f} ms"
                yield _no("peers", title, f"{left} survivors; says after {said} that it is done")
                continue
            note = f"no survivors{habit}"
            if peer.name == "pinfold":
                yield timed("peers", title, took, note=note)
            else:
                yield timed("peers", title, took, found["pinfold"], note=f"{note}; floor: pinfold")
    for peer in peers:
        yield timed("peers", f"{peer.name}: start a command", starts[peer.name])


def _waits(bench: Bench, peers: Sequence[Peer]) -> Iterator[Row]:
    """How long after the end of a command the one that waits for it knows."""
    with bench.directory() as directory:
        for peer in peers:
            took = []
            try:
                for number in range(bench.size(10, 3)):
                    end = directory / f"{peer.name}-{number}"
                    script = f"sleep 0.3; date +%s.%N > {end}"
                    peer.start(f"wait-{number}", script, "wait")
                    peer.wait(f"wait-{number}")
                    took.append(time.time() - float(end.read_text()))
            except No as no:
                yield _no("peers", f"{peer.name}: end → the waiter knows", str(no))
            else:
                yield timed("peers", f"{peer.name}: end → the waiter knows", took)


def _no(question: str, what: str, why: str) -> Row:
    return Row(question, what, Stats(0, 0.0, 0.0, 0.0), unit="no", note=why)


# ---------------------------------------------------------------- where they come from


def _python_peers(program: str) -> Path:
    """A program of the environment that holds supervisord and circus."""
    venv = CACHE / "venv"
    found = venv / "bin" / program
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        install = [str(venv / "bin" / "pip"), "install", "--quiet", "supervisor", "circus"]
        if subprocess.run(install, check=False).returncode:
            raise No("supervisord and circus cannot be installed")
    return found


def _cargo(crate: str) -> Path:
    programs = CACHE / crate / "bin"
    if not (programs / crate).exists():
        if shutil.which("cargo") is None:
            raise No("no cargo to install it with")
        print(f"benchmarks: building {crate}, once", file=sys.stderr)
        install = ["cargo", "install", crate, "--locked", "--root", str(CACHE / crate)]
        if subprocess.run(
            install, capture_output=True, check=False, timeout=_BUILD_SECONDS
        ).returncode:
            raise No("cargo install fails")
    return programs


def _process_compose() -> Peer:
    """To be had where the module proxy has it; then someone must write its few lines here."""
    raise No("not served by the Go module proxy that this was written against")


def _daemon(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=child_environment(),
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _answers(ask: Callable[..., object], *arguments: object) -> bool:
    try:
        ask(*arguments)
    except (OSError, xmlrpc.client.Error, subprocess.SubprocessError):
        return False
    return True


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
