"""The table for people, JSON for programs, and plots."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.stats import Row, Stats, quantile

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def show(value: float, unit: str) -> str:
    """A figure with three digits that mean something, and its unit."""
    if unit == "no":
        return "no"
    if unit == "s":
        for scale, name in _SCALES:
            if abs(value) >= scale:
                return f"{value / scale:.3g} {name}"
        return f"{value * 1e6:.3g} µs"
    if unit in ("bytes", "bytes/s"):
        rate = unit.removeprefix("bytes")
        for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if abs(value) >= 1 << power:
                return f"{value / (1 << power):.3g} {name}{rate}"
        return f"{value:.0f} B{rate}"
    return f"{value:,.0f} {unit}" if abs(value) >= 10 else f"{value:.3g} {unit}"


def progress(row: Row) -> None:
    """One line on stderr for each row as it comes."""
    ratio = f"  {row.ratio:.2f} × the floor" if row.ratio is not None else ""
    what = f"{row.question}: {row.what} [{row.client}]" if row.client else row.what
    print(f"  {what}: {show(row.value.median, row.unit)}{ratio}", file=sys.stderr, flush=True)


def table(rows: Sequence[Row], about: Mapping[str, str]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=170)
    for name, value in about.items():
        console.print(f"[dim]{name}:[/dim] {escape(value)}", highlight=False)
    for question in dict.fromkeys(row.question for row in rows):
        console.print(_table(question, [row for row in rows if row.question == question]))
    met = [row.met for row in rows if row.met is not None]
    console.print(f"{sum(met)} of {len(met)} goals met", highlight=False)


def _table(question: str, rows: Sequence[Row]) -> Table:
    found = Table(title=question, title_justify="left", title_style="bold")
    found.add_column("what", ratio=3)
    found.add_column("client")
    for name in ("floor", "min", "median", "p99", "ratio", "p99 ratio", "goal"):
        found.add_column(name, justify="right")
    found.add_column("note", ratio=2, style="dim")
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.met]
        found.add_row(
            escape(row.what),
            row.client,
            show(row.floor.median, row.unit) if row.floor else "",
            show(row.value.min, row.unit),
            show(row.value.median, row.unit),
            show(row.value.p99, row.unit),
            _ratio(row.ratio),
            _ratio(row.ratio_p99),
            f"[{style}]{row.goal}[/]" if style else "",
            escape(row.note),
        )
    return found


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def save(rows: Sequence[Row], about: Mapping[str, str], directory: Path) -> None:
    """`results.json`, and the plots where matplotlib is there."""
    directory.mkdir(parents=True, exist_ok=True)
    facts = {"machine": dict(about), "rows": [_facts(row) for row in rows]}
    (directory / "results.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    try:
        import matplotlib as mpl
    except ImportError:
        print("benchmarks: no plots without matplotlib (the `bench` group)", file=sys.stderr)
        return
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "pinfold"})
    _plot_ratios(rows, about, directory / "ratios.svg")
    for question in dict.fromkeys(row.question for row in rows if row.samples):
        mine = [row for row in rows if row.question == question and row.samples]
        _plot_latencies(question, mine, about, directory / f"{question}.svg")


def _facts(row: Row) -> dict[str, Any]:
    return {
        "question": row.question,
        "what": row.what,
        "client": row.client,
        "unit": row.unit,
        "floor": _numbers(row.floor),
        "value": _numbers(row.value),
        "ratio": _round(row.ratio),
        "ratio_p99": _round(row.ratio_p99),
        "goal": str(row.goal) if row.goal else None,
        "met": row.met,
        "note": row.note,
    }


def _numbers(stats: Stats | None) -> dict[str, float] | None:
    return None if stats is None else {k: _digits(v) for k, v in asdict(stats).items()}


def _digits(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _plot_ratios(rows: Sequence[Row], about: Mapping[str, str], path: Path) -> None:
    """Every ratio with a goal, with the goal as a mark."""
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.goal is not None and row.ratio is not None][::-1]
    if not shown:
        return
    figure = Figure(figsize=(9, 1.2 + 0.32 * len(shown)), layout="constrained")
    axes = figure.subplots()
    places = range(len(shown))
    colours = ["#2a9d5c" if row.met else "#c8443c" for row in shown]
    axes.barh(places, [row.ratio or 0.0 for row in shown], color=colours, height=0.6)
    goals = [row.goal.ratio for row in shown if row.goal is not None]
    axes.scatter(goals, places, marker="|", s=160, color="#222", zorder=3, label="goal")
    names = [f"{row.what} [{row.client}]" if row.client else row.what for row in shown]
    axes.set_yticks(places, names)
    axes.axvline(1.0, color="#888", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlabel("ratio to the floor of the same run (median to median)")
    axes.set_title(_caption(about), fontsize=8, color="#666", loc="left")
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _plot_latencies(
    question: str, rows: Sequence[Row], about: Mapping[str, str], path: Path
) -> None:
    """The distribution of each row: share of samples that took at most so long."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        colour = f"C{number % 10}"
        for name, samples in row.samples.items():
            ordered = sorted(samples)
            shares = [step / 100 for step in range(101)]
            times = [quantile(ordered, share) * 1e3 for share in shares]
            label = f"{row.what} [{row.client}]" if row.client else row.what
            axes.plot(
                times,
                shares,
                color=colour,
                linestyle="-" if name == "value" else ":",
                label=label if name == "value" else None,
            )
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds (dotted: the floor)")
    axes.set_ylabel("share of samples")
    axes.set_title(f"{question}\n{_caption(about)}", fontsize=8, color="#666", loc="left")
    axes.legend(loc="lower right", frameon=False, fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def _caption(about: Mapping[str, str]) -> str:
    return ", ".join(about[name] for name in ("date", "cpu", "kernel", "commit") if name in about)
