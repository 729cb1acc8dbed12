"""Runs the conformance scenarios through the Python client and writes a transcript for each.

What scenarios and transcripts are is said in tests/conformance/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
from pathlib import Path

from run import Run
from scenario import Fault, Scenario, load
from transcript import transcript

import pinfold

# A scenario that hangs is a failure, not a hang.
LIMIT = 60.0


async def run_one(scenario: Scenario) -> str:
    directory = Path("/tmp") / f"conformance-{secrets.token_hex(4)}"
    directory.mkdir(mode=0o700)
    try:
        async with pinfold.Client.connect() as client:
            run = await Run.begin(scenario, client, directory)
            try:
                async with asyncio.timeout(LIMIT):
                    entries = await run.steps()
            finally:
                await run.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return transcript(scenario, directory, entries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=Path, default=Path(__file__).parents[1] / "scenarios")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--profile", default="default")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for file in sorted(options.scenarios.glob("*.yaml")):
        scenario = load(file)
        if scenario.profile != options.profile or (
            options.names and scenario.name not in options.names
        ):
            continue
        try:
            text = asyncio.run(run_one(scenario))
        except (Fault, TimeoutError) as error:
            print(
                f"{scenario.name}: {str(error) or f'it took over {LIMIT:.0f} s'}", file=sys.stderr
            )
            return 1
        if options.out is None:
            sys.stdout.write(text)
        else:
            (options.out / f"{scenario.name}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
