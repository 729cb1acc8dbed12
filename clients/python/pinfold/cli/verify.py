"""`pinfold verify`: the verification plan against a live supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pinfold import interrupts
from pinfold.cli import show
from pinfold.cli.plain import to_json
from pinfold.cli.settings import Settings, connection_options
from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from pinfold.client import Client
    from pinfold.verify.phase import Spec
    from pinfold.verify.report import Report

_CANNOT_RUN = 2


@click.command()
@connection_options
@click.option("--section", type=click.Choice(["tau", "tasks", "all"]), default="all")
@click.option("--phase", "names", multiple=True, metavar="NAME", help="Only these phases.")
@click.option("--list", "only_list", is_flag=True, help="List the phases and run none.")
@click.option(
    "--patience",
    type=click.FloatRange(1),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="What has not come by then is missing.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
@click.pass_obj
def verify(
    settings: Settings,
    section: str,
    names: tuple[str, ...],
    only_list: bool,
    patience: float,
    as_json: bool,
) -> int:
    """Check every rule about calls, waits, cancels, sub-agents and tasks on a live supervisor.

    By default on one of its own, on a fresh state directory; --address or --state name
    another, of which it uses new agents only. The exit code is 0 when every check has passed,
    1 when one has failed, 2 when it could not run.
    """
    from pinfold.verify import plan

    try:
        specs = plan.phases(section, names)
        if only_list:
            show.table(
                ("PHASE", "SECTION", "WHAT"),
                [(spec.name, spec.section, spec.title) for spec in specs],
                empty="no phases",
            )
            return 0
        report = interrupts.run(_run(settings, specs, patience, quiet=as_json))
    except (plan.CannotRun, PinfoldError, OSError) as error:
        show.note(str(error))
        return _CANNOT_RUN
    if as_json:
        click.echo(to_json(report.to_plain()))
    else:
        from pinfold.verify.show import show as show_report

        show_report(report)
    return 0 if report.passed else 1


async def _run(settings: Settings, specs: list[Spec], patience: float, *, quiet: bool) -> Report:
    from pinfold.client import Client
    from pinfold.launch import is_listening
    from pinfold.verify import own, plan

    if settings.address is not None or settings.state is not None:
        if settings.is_local and not is_listening(settings.state_directory):
            raise plan.CannotRun(f"no supervisor runs on {settings.state_directory}")
        async with settings.client() as client:
            return await _verify(client, specs, patience, quiet=quiet)
    async with own.started() as mine, Client.connect(state=mine.state, token="") as client:
        report = await _verify(client, specs, patience, quiet=quiet)
    report.survivors(mine.left)
    return report


async def _verify(client: Client, specs: list[Spec], patience: float, *, quiet: bool) -> Report:
    from pinfold.verify import plan
    from pinfold.verify.show import Progress

    if quiet:
        return await plan.run(client, specs, patience=patience)
    return await plan.run(client, specs, patience=patience, done=Progress(len(specs)))
