"""`pinfold agents` and `tasks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pinfold.cli import show
from pinfold.cli.plain import enum_name, to_json
from pinfold.cli.settings import Settings, connection_options, json_option
from pinfold.v1 import agent_pb2, task_service_pb2
from pinfold.values import seconds

if TYPE_CHECKING:
    from pinfold.v1.agent_pb2 import Agent


@click.command()
@connection_options
@click.option("-a", "--all", "with_ended", is_flag=True, help="Also those that are stopped.")
@click.option("--stop", "stop_id", metavar="AGENT", help="Stop this one and all below it.")
@json_option
@click.pass_obj
def agents(settings: Settings, with_ended: bool, stop_id: str | None, as_json: bool) -> None:
    """List agents, or stop one."""
    if stop_id is not None:
        _stop(settings, stop_id, as_json)
        return
    found = settings.call(lambda client: client.list_agents(live_only=not with_ended))
    if as_json:
        for agent in found:
            click.echo(to_json(agent))
        return
    show.table(
        ("AGENT", "PARENT", "STATE", "SURFACE", "ROLE", "CALLS", "PROMPTS", "STATUS", "LABEL"),
        [_row(agent) for agent in found],
        empty="no agents",
    )


def _row(agent: Agent) -> tuple[str, ...]:
    status = ""
    if agent.HasField("status"):
        state = enum_name(agent_pb2.ReportedState.DESCRIPTOR, agent.status.state)
        status = f"{state}: {agent.status.title}"
    return (
        agent.agent_id,
        agent.parent_id,
        enum_name(agent_pb2.AgentState.DESCRIPTOR, agent.state),
        enum_name(agent_pb2.Surface.DESCRIPTOR, agent.surface),
        agent.role,
        str(agent.running_calls),
        str(agent.pending_prompts),
        status,
        agent.label,
    )


def _stop(settings: Settings, agent_id: str, as_json: bool) -> None:
    answer = settings.call(lambda client: client.agent(agent_id).stop(reason="pinfold agents"))
    if as_json:
        click.echo(to_json(answer))
        return
    receipt = answer.receipt
    click.echo(
        f"{agent_id}: stopped; ended {show.plural(answer.ended_calls, 'call')}, "
        f"{show.plural(answer.stopped_agents, 'agent')} below, "
        f"{show.plural(receipt.ended_processes, 'process')} in "
        f"{show.span(seconds(receipt.duration))}"
    )
    if receipt.surviving_pids:
        pids = ", ".join(map(str, receipt.surviving_pids))
        click.echo(f"{agent_id}: still alive: {pids}", err=True)


@click.command()
@connection_options
@click.option("--agent", "agent_id", default="", help="Only this agent's.")
@click.option("-a", "--all", "with_ended", is_flag=True, help="Also those that have ended.")
@json_option
@click.pass_obj
def tasks(settings: Settings, agent_id: str, with_ended: bool, as_json: bool) -> None:
    """List tasks: calls by kind and number."""
    found = settings.call(
        lambda client: client.list_tasks(agent_id=agent_id, live_only=not with_ended)
    )
    if as_json:
        for task in found:
            click.echo(to_json(task))
        return
    show.table(
        ("AGENT", "TASK", "STATUS", "DETAIL", "CALL", "LABEL"),
        [
            (
                task.agent_id,
                task.task_id,
                enum_name(task_service_pb2.TaskStatus.DESCRIPTOR, task.status),
                task.detail,
                task.call_id,
                task.label,
            )
            for task in found
        ],
        empty="no tasks" if with_ended else "no live tasks (all: pinfold tasks -a)",
    )
