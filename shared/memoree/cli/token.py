"""`memoree token`: who may use a deployment or a served store, and for what."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memoree.cli.jobs import deployment_option, report
from memoree.cli.output import print_success
from memoree.cli.parsing import Command, Group, current_invocation
from memoree.errors import invalid

Function = TypeVar("Function", bound=Callable[..., Any])

SCOPES = ("recall", "ingest", "forget", "inbox", "admin")
COLUMNS = ("id", "tenant", "scopes", "expires_at", "name")
_SPAN = re.compile(r"([1-9]\d{0,5})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def _place_options(function: Function) -> Function:
    option = click.option(
        "--tokens",
        metavar="FILE",
        help="The tokens file, or s3://BUCKET/KEY.  [default: the one of --data DIR, the one that MEMOREE_ variables "
        "name, or that of the stack in the data directory]",
    )
    return option(deployment_option(function))


@click.group(cls=Group)
def token() -> None:
    """Make, list and revoke the tokens that a service accepts.

    A running service knows the change within a second or two.
    """


@token.command(cls=Command)
@click.option("--tenant", metavar="NAME", required=True, help="Whose token it is; * administers all, and reads none.")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, required=True, help="May be repeated.")
@click.option("--expires", metavar="WHEN", help="2027-01-31T00:00:00Z, or from now: 90d, 12h, 30m.  [default: never]")
@click.option("--workspace", metavar="ID", help="With --project, the context of calls that name none.")
@click.option("--project", metavar="ID", help="See --workspace.")
@click.option("--task", metavar="ID", help="Narrows --project.")
@click.option("--agent", metavar="NAME", help="Who is recorded as the author of what is written with it.")
@click.option("--name", metavar="TEXT", help="What it is for, as `list` tells it.")
@_place_options
def create(
    tenant: str,
    scopes: tuple[str, ...],
    expires: str | None,
    workspace: str | None,
    project: str | None,
    task: str | None,
    agent: str | None,
    name: str | None,
    tokens: str | None,
    data: Path | None,
) -> int:
    """Make a token and print it, once: the file keeps its digest alone.

    What a token was given is not changed later: make another one, and revoke this.
    """
    from memoree.cli.tokens import create_token

    context = {"workspace_id": workspace, "project_id": project, "task_id": task}
    entry = {
        "tenant": tenant,
        "scopes": list(scopes),
        "expires_at": None if expires is None else _instant(expires),
        "context": {key: value for key, value in context.items() if value is not None} or None,
        "agent": agent,
        "name": name,
    }
    result = create_token(entry, tokens, data)
    if not current_invocation().for_people:
        return print_success(result, current_invocation())
    from memoree.cli.terminal import console, fields

    click.echo(result.pop("token"))
    console().print(fields(result))
    return 0


@token.command("list", cls=Command)
@click.option("--tenant", metavar="NAME", help="Only those of this tenant.")
@_place_options
def list_(tenant: str | None, tokens: str | None, data: Path | None) -> int:
    """List the tokens: what they may do and until when, never the tokens themselves.

    Entries of the file that the service would ignore are counted.
    """
    from memoree.cli.tokens import list_tokens

    result = list_tokens(tenant, tokens, data)
    if not current_invocation().for_people:
        return print_success(result, current_invocation())
    from memoree.cli.terminal import console, note, table

    console().print(table(COLUMNS, [[row.get(column, "") for column in COLUMNS] for row in result["tokens"]]))
    if result["ignored"]:
        console().print(note(f"entries that the service ignores: {result['ignored']}"))
    return 0


@token.command(cls=Command)
@click.argument("id_", metavar="ID")
@_place_options
def revoke(id_: str, tokens: str | None, data: Path | None) -> int:
    """Take a token away, by its ID or the beginning of it; requests with it are then 401."""
    from memoree.cli.tokens import revoke_token

    return report(revoke_token(id_, tokens, data))


def _instant(text: str) -> str:
    from datetime import timedelta

    from memoree import clock

    if (span := _SPAN.fullmatch(text)) is None:
        try:
            return clock.parse_timestamp(text)
        except ValueError as error:
            invalid(f"expires_at: {error}; or say from now: 90d, 12h, 30m")
    now = clock.utc_now().replace(microsecond=0)
    return clock.stored(now + timedelta(seconds=int(span[1]) * _SECONDS[span[2]]))
