"""python -m benchmarks [--quick] [QUESTION ...]"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
import traceback
from pathlib import Path

from benchmarks import report
from benchmarks.harness import HERE, Bench, machine
from benchmarks.stats import Row

QUESTIONS = (
    "cancel",
    "wait_races",
    "spawn",
    "parked",
    "output",
    "watch",
    "durability",
    "scale",
    "peers",
)
QUICK = ("cancel", "wait_races", "spawn", "parked", "output", "watch")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="How fast Pinfold is, against floors."
    )
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("--quick", action="store_true", help="few repeats, the main questions")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    names = options.questions or (QUICK if options.quick else QUESTIONS)
    if unknown := [name for name in names if name not in QUESTIONS]:
        parser.error(f"no such question: {', '.join(unknown)} (there are: {', '.join(QUESTIONS)})")
    # Told to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    about = machine()
    begin = time.monotonic()
    rows: list[Row] = []
    failed: list[str] = []
    with Bench(quick=options.quick, build=HERE / "out") as bench:
        for name in names:
            question = importlib.import_module(f"benchmarks.{name}")
            began = time.monotonic()
            try:
                for row in question.run(bench):
                    rows.append(row)
                    report.progress(row)
            except Exception:
                # One question that cannot be answered leaves the others their answers.
                traceback.print_exc()
                failed.append(name)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        about["clients"] = ", ".join(load.name for load in bench.loads)
    about["took"] = f"{time.monotonic() - begin:.0f} s"
    about["sizes"] = "quick" if options.quick else "full"
    report.table(rows, about)
    report.save(rows, about, options.results)
    if failed:
        print(f"benchmarks: not answered: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
