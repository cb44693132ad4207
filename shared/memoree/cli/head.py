"""`memoree head`: what an operator does about a tenant's head."""

from __future__ import annotations

from pathlib import Path

import click

from memoree.cli.parsing import Command, Group


@click.group(cls=Group)
def head() -> None:
    """Look after the commit point of a tenant."""


@head.command(cls=Command)
@click.option("--tenant", required=True, help="The tenant whose head.json is gone.")
@click.option("--data", type=click.Path(path_type=Path), metavar="DIR", help="The running stack's directory.")
def rebuild(tenant: str, data: Path | None) -> int:
    """Make a lost head.json again from the epochs and change files.

    Writers may keep running. The deployment is the running stack in DIR, or described by MEMOREE_ variables.
    """
    from memoree.cli.working import rebuild_head_of

    return rebuild_head_of(tenant, data)
