"""The main job on real processes, in under a minute: `make demo`.

Runs commands of every temper side by side under a supervisor of its own, collects what ends,
ends what does not, and counts what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
import uuid
from pathlib import Path

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from rich.console import Console
from rich.markup import escape

from pinfold import interrupts, launch
from pinfold.agent import Agent
from pinfold.answers import Placeholder, Result
from pinfold.cli import show
from pinfold.cli.describe import describe, is_hidden
from pinfold.cli.streams import drop_stdout
from pinfold.client import Client
from pinfold.errors import PinfoldError
from pinfold.v1 import call_service_pb2

MARKER = "PINFOLD_DEMO"
LIBRARY = sysconfig.get_paths()["stdlib"]

# Real input: this Python's own library.
COUNT = 'find "$LIBRARY" -maxdepth 1 -name "*.py" -exec cat {} + | wc -l'
COMPRESS = """
echo "compressing a part of $LIBRARY"
tar -C "$LIBRARY" -cf - asyncio email encodings json | gzip -9 | wc -c
sleep 2.5
echo "a warning" >&2
exit 3
"""
# Seven processes: three ignore TERM, two leave the process group, one its parent too.
STUBBORN = """
(trap '' TERM; sleep 1000; sleep 1000) &
setsid sh -c 'trap "" TERM; sleep 1001; sleep 1001' &
(setsid sleep 1002 &)
trap 'echo "not now"' TERM
echo "seven processes, none of them willing"
while :; do sleep 0.5; done
"""
FLOOD = "seq 1 12000000; echo 'the last line' >&2"
KEPT = 1 << 20

# For a supervisor that was interrupted in the middle; after that it is killed.
STOP_SECONDS = 10.0


class Out(Console):
    def on_broken_pipe(self) -> None:
        """Rich's own would leave at once, with 1."""
        let_go_of_stdout()
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


console = Out(highlight=False)


def let_go_of_stdout() -> None:
    """What is still to be said, also by the flush at the exit, has nowhere to go."""
    console.quiet = True
    if sys.stdout is not None:
        drop_stdout()


def say(text: str = "") -> None:
    console.print(text, soft_wrap=True)


def heading(text: str) -> None:
    say(f"\n[bold]{text}[/bold]")


def show_text(text: str, lines: int = 14) -> None:
    """What a model reads, indented; the middle is left out."""
    shown = text.rstrip("\n").split("\n")
    if len(shown) > lines:
        half = lines // 2
        omitted = f"... {len(shown) - 2 * half} lines ..."
        shown = [*shown[:half], omitted, *shown[-half:]]
    for line in shown:
        say(f"    [dim]{escape(line)}[/dim]")


def marked_processes(value: str) -> dict[int, str]:
    """All live processes that were started with the marker in their environment."""
    wanted = f"{MARKER}={value}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        # A zombie has no command line.
        if wanted in variables and command:
            found[int(entry.name)] = command.strip()
    return found


async def collect(agent: Agent, name: str, started: float, answer: Result | Placeholder) -> None:
    """Shows an answer that came in the foreground."""
    after = show.span(time.monotonic() - started)
    if isinstance(answer, Placeholder):
        say(f"[cyan]{name}[/cyan] went to the background after {after}")
    else:
        say(f"[cyan]{name}[/cyan] ended after {after}")
    show_text(answer.text)


async def run_all(client: Client, marker: str) -> int:
    """The story itself. Returns the number of things that were not as they should be."""
    wrong = 0
    agent = await client.open_agent("demo", env={MARKER: marker, "LIBRARY": LIBRARY})

    heading("Four commands at once")
    started = time.monotonic()
    limits = call_service_pb2.CallLimits(output_bytes=KEPT)
    running = {
        "count": agent.run(COUNT, call_id="count"),
        "compress": agent.run(COMPRESS, call_id="compress"),
        "stubborn": agent.run(STUBBORN, call_id="stubborn", background=True, grace=1.0),
        "flood": agent.run(FLOOD, call_id="flood", limits=limits, foreground_budget=20.0),
    }

    async def answered(name: str) -> Result | Placeholder:
        answer = await running[name]
        await collect(agent, name, started, answer)
        return answer

    answers = dict(zip(running, await asyncio.gather(*map(answered, running)), strict=True))
    count, flood = answers["count"], answers["flood"]
    wrong += not (isinstance(count, Result) and count.exit_code == 0)
    if isinstance(flood, Result):
        extent = flood.message.output
        say(
            f"[cyan]flood[/cyan] wrote {show.size(extent.size)}: {extent.dropped} bytes of the "
            "middle were not kept, all were counted"
        )
        wrong += not (extent.dropped > 0 and "the last line" in flood.text)
    else:
        wrong += 1

    heading("Waiting for the one in the background; its result is taken once")
    waited = await agent.wait_exact("compress", timeout=30)
    if waited.result is not None:
        show_text(waited.text)
        wrong += waited.result.exit_code != 3
    else:
        wrong += 1
    try:
        await agent.wait_exact("compress")
        wrong += 1
    except PinfoldError as error:
        say(f"again: [yellow]{escape(str(error))}[/yellow]")

    heading("Cancelling the stubborn one")
    alive = [pid for pid, text in marked_processes(marker).items() if "pinfoldd" not in text]
    say(f"{show.plural(len(alive), 'process')} of it are alive")
    cancelled = time.monotonic()
    say(escape((await agent.cancel("stubborn", reason="demo")).text))
    result = await agent.ended("stubborn")
    say(f"ended after {show.span(time.monotonic() - cancelled)}; the receipt:")
    if result.receipt is not None:
        for line in show.receipt_lines(result.receipt):
            say(f"    [green]{escape(line)}[/green]")
        wrong += bool(result.receipt.survivors) or result.receipt.escaped == 0
    else:
        wrong += 1

    heading("The log")
    async for event in client.events(1, stop_at_end=True):
        if is_hidden(event) or event.name == "call.output":
            continue
        words = escape(describe(event))
        say(f"  {event.revision:>4}  {event.name:<24} {event.call_id:<9} [dim]{words}[/dim]")

    heading("What is left")
    left = {pid: text for pid, text in marked_processes(marker).items() if "pinfoldd" not in text}
    say(f"{len(left)} processes of the commands")
    wrong += len(left)
    return wrong


async def demo(state: Path, marker: str) -> int:
    async with Client.connect(state=state, token="") as client:
        info = await client.info()
        say(f"pinfold {info.version}, containment: {info.containment}")
        wrong = await run_all(client, marker)
        await client.stop(reason="the demo is over")
    return wrong


def end_left(marker: str) -> dict[int, str]:
    """Live processes, once the daemon has had the time to exit. None of them stays."""
    deadline = time.monotonic() + 5
    while (left := marked_processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.02)
    # One that is about to be killed may start another.
    deadline += 5
    while (alive := marked_processes(marker)) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return left


async def end_all(state: Path, marker: str, starting: asyncio.Future[bool]) -> dict[int, str]:
    """However the story came to its end. Returns what `client.stop` did not end."""
    with contextlib.suppress(PinfoldError):
        # A daemon that is not ready yet cannot be told to stop.
        await starting
    if launch.is_listening(state):
        with contextlib.suppress(PinfoldError, TimeoutError):
            async with (
                asyncio.timeout(STOP_SECONDS),
                Client.connect(state=state, token="") as client,
            ):
                await client.stop(grace=0.5, reason="the demo was interrupted")
    return await asyncio.to_thread(end_left, marker)


async def supervised(marker: str) -> int:
    """The demo on a supervisor that ends with it, in every way out. Returns an exit code."""
    begun = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="pinfold-demo-"))
    state = directory / "state"
    starting = asyncio.ensure_future(asyncio.to_thread(launch.start_detached, state))

    async def story() -> int:
        heading("A supervisor on a fresh state directory")
        await asyncio.shield(starting)
        say(f"ready after {show.span(time.monotonic() - begun)} in {state}")
        return await demo(state, marker)

    telling = asyncio.ensure_future(story())
    caught: list[signal.Signals] = []

    def catch(number: signal.Signals) -> None:
        # Only the first: what ends the processes must not be interrupted.
        if not caught:
            telling.cancel()
        caught.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if not interrupts.is_ignored(number):
            asyncio.get_running_loop().add_signal_handler(number, catch, number)
    try:
        await asyncio.wait({telling})
    finally:
        left = await end_all(state, marker, starting)
        shutil.rmtree(directory, ignore_errors=True)
    if telling.cancelled():
        return 128 + caught[0]
    wrong = telling.result()
    say(f"{len(left)} processes in all, after the supervisor was stopped")
    for pid, command in left.items():
        say(f"    [red]{pid} {escape(command)}[/red]")
    wrong += len(left)
    if wrong:
        console.print(f"\n{wrong} things were not as they should be", style="red")
        return 1
    say(f"\n[green]all as it should be[/green], in {show.span(time.monotonic() - begun)}")
    return 0


def main() -> int:
    marker = uuid.uuid4().hex
    os.environ[MARKER] = marker
    try:
        return asyncio.run(supervised(marker))
    except PinfoldError as error:
        console.print(f"pinfold: {escape(str(error))}", style="red")
        return 1
    except KeyboardInterrupt:
        # It came before there was anything to end.
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except OSError as error:
        let_go_of_stdout()
        print(f"pinfold: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
