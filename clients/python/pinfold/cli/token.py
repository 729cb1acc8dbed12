"""`pinfold token`: who may do what."""

from __future__ import annotations

import click

from pinfold.cli import show
from pinfold.cli.plain import to_json
from pinfold.cli.settings import SECONDS_NOT_ZERO, Settings, connection_options, json_option


@click.group()
@connection_options
def token() -> None:
    """Make, list and revoke tokens."""


@token.command()
@connection_options
@click.option("--agent", "agent_id", default="", help="For this agent and what is below it.")
@click.option("--label", default="", help="A name for lists.")
@click.option("--valid-for", type=SECONDS_NOT_ZERO, metavar="SECONDS")
@json_option
@click.pass_obj
def create(
    settings: Settings, agent_id: str, label: str, valid_for: float | None, as_json: bool
) -> None:
    """Make a token and print it, once. Without --agent it is an operator's."""
    answer = settings.call(
        lambda client: client.create_token(agent_id=agent_id, label=label, valid_for=valid_for)
    )
    click.echo(to_json(answer) if as_json else answer.token)


@token.command(name="list")
@connection_options
@json_option
@click.pass_obj
def list_(settings: Settings, as_json: bool) -> None:
    """List tokens; their secrets are not kept."""
    found = settings.call(lambda client: client.list_tokens())
    if as_json:
        for item in found:
            click.echo(to_json(item))
        return
    show.table(
        ("TOKEN", "FOR", "CREATED", "EXPIRES", "LABEL"),
        [
            (
                item.token_id,
                f"agent {item.agent_id}" if item.agent_id else "operator",
                item.created_at.ToJsonString(),
                item.expires_at.ToJsonString() if item.HasField("expires_at") else "",
                item.label,
            )
            for item in found
        ],
        empty="no tokens",
    )


@token.command()
@connection_options
@click.argument("token_id", metavar="TOKEN_ID")
@click.pass_obj
def revoke(settings: Settings, token_id: str) -> None:
    """Make a token invalid at once."""
    settings.call(lambda client: client.revoke_token(token_id))
