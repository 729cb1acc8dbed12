"""The report for people: sections on a terminal, plain lines when piped."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pinfold.cli.show import CONTROL
from pinfold.verify.report import PhaseResult, Report


class Progress:
    """A line as each phase ends, on a terminal's stderr only."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._left = total

    def __call__(self, result: PhaseResult) -> None:
        self._left -= 1
        if self._console.is_terminal:
            mark = "[green]pass[/]" if result.passed else "[red]FAIL[/]"
            self._console.print(
                f"{mark} {result.name} [dim]{result.seconds:.1f} s, {self._left} to go[/]"
            )


def show(report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    piped = not sys.stdout.isatty()

    def heading(text: str) -> None:
        console.print(text if piped else Text(f"\n{text}", style="bold"), markup=False)

    def line(text: str, style: str = "") -> None:
        console.print(Text(_plain(text), style=style))

    heading(f"Verification of {report.supervisor}")
    heading("Routes tested")
    if piped:
        for section, route, count, failed in report.routes():
            verdict = "FAIL" if failed else "pass"
            line(f"  {verdict}  {section}: {route} ({_of(count, failed)})")
    else:
        console.print(_routes(report))
    if report.failures:
        heading("Unexpected output")
        for phase, check in report.failures:
            line(f"  {phase.name}: {check.route}: {check.name}", "red")
            for title, value in (("expected", check.expected), ("got", check.got)):
                first, *more = value.split("\n")
                line(f"    {title}: {first}")
                for other in more:
                    line(f"    {' ' * len(title)}  {other}")
    heading("Timing surprises, missed or duplicate prompts, leaks, order")
    for kind, text in report.findings() or [("none", "")]:
        line(f"  {kind}: {text}" if text else f"  {kind}")
    if report.confirmations():
        heading("Confirmed")
    for holds, sentence in report.confirmations():
        line(f"  {'yes' if holds else 'NO'}: {sentence}", "" if holds else "red")
    if remarks := report.remarks():
        heading("How it was tested")
        for text in remarks:
            line(f"  {text}")
    heading("Phases")
    for phase in report.phases:
        verdict = "pass" if phase.passed else "FAIL"
        checks = _of(len(phase.checks), len(phase.failures))
        line(
            f"  {verdict}  {phase.section} {phase.name} ({checks}, {phase.seconds:.1f} s)",
            "" if phase.passed else "red",
        )
    checks = _of(len(report.checks), len(report.failures))
    verdict = "passed" if report.passed else "FAILED"
    heading(f"{verdict}: {len(report.phases)} phases, {checks}, {report.seconds:.1f} s")


def _routes(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "section", "route", "checks"):
        table.add_column(name)
    for section, route, count, failed in report.routes():
        verdict = Text("FAIL", style="red") if failed else Text("pass", style="green")
        table.add_row(verdict, section, route, _of(count, failed))
    return table


def _of(count: int, failed: int) -> str:
    return f"{failed} of {count} checks failed" if failed else f"{count} checks"


def _plain(text: str) -> str:
    return text.translate(CONTROL)
