"""`memoree citation`: exact bytes by citation."""

from __future__ import annotations

import click

from memoree.cli.names import parse_citation
from memoree.cli.parsing import Group
from memoree.cli.wrapper import perform


@click.group(cls=Group)
def citation() -> None:
    """Read the bytes that a citation names."""


@citation.command()
@click.argument("citation", metavar="CITATION")
@click.option("--max-bytes", type=int, default=8192, show_default=True, help="Cut at a character, 4 to 8192 bytes.")
def get(citation: str, max_bytes: int) -> int:
    """Show the text at memoree://artifact/ARTIFACT@REVISION#START-END, with or without the prefix.

    Also of old revisions and of forgotten artifacts. A citation that is cut comes back with the span that is shown.
    What names a whole revision is read with `memoree artifact get`.
    """
    return perform("citation.get", {"citation": parse_citation(citation), "max_bytes": max_bytes})
