"""`memoree backup`: copies of the whole store."""

from __future__ import annotations

from pathlib import Path

import click

from memoree.cli.parsing import Group
from memoree.cli.wrapper import perform


@click.group(cls=Group)
def backup() -> None:
    """Copy the store."""


@backup.command()
@click.argument("destination", metavar="DESTINATION", type=click.Path(path_type=Path))
def create(destination: Path) -> int:
    """Copy the verified store into a directory that does not exist yet.

    A relative DESTINATION is one of this working directory. The server writes it: with --endpoint on its machine. When
    no answer came, look at the destination before trying again.
    """
    return perform("backup.create", {"destination": str(destination.absolute())})
