"""`memoree init` and `memoree context`: which project this directory is, and what its memory gives to a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memoree.cli.output import print_success
from memoree.cli.parsing import Command, Group, current_invocation, horizon_options
from memoree.cli.wrapper import perform, words


def _print(result: dict[str, Any], *, context: dict[str, Any] | None = None) -> int:
    invocation = current_invocation()
    if not invocation.for_people:
        return print_success(result, invocation, context=context)
    from memoree.cli.tables import show_fields

    show_fields(result)
    return 0


@click.command(cls=Command)
@click.option("--name", help="[default: the name of the directory]")
@click.option("--workspace", metavar="WSP", help="An existing workspace id.  [default: a new one]")
@click.option("--directory", type=click.Path(path_type=Path), default=Path(), show_default=True)
def init(name: str | None, workspace: str | None, directory: Path) -> int:
    """Make a directory a project: write its .memoree.toml, once."""
    from memoree.context import create_marker, read_marker, wire_form

    marker = create_marker(directory, name=name, workspace_id=workspace)
    return _print({"marker": str(marker), "context": wire_form(read_marker(marker)), "created": True})


@click.group(cls=Group)
def context() -> None:
    """Show which workspace, project and task commands work in; build a prompt's context from its memory."""


@context.command()
def show() -> int:
    """The ambient context of this directory."""
    from memoree.context import wire_form

    found = current_invocation().resolve_context()
    return _print(wire_form(found.context), context=found.to_wire())


@context.command()
def explain() -> int:
    """Where the ambient context comes from, and what would come first."""
    from memoree.context import CONTEXT_VARIABLE, PRECEDENCE, working_directory

    found = current_invocation().resolve_context()
    place = CONTEXT_VARIABLE if found.path is None else str(found.path)
    result: dict[str, Any] = {
        "selected": found.source,
        "summary": f"workspace {found.context.workspace_id}, project {found.context.project_id}, from {place}",
        "cwd": str(working_directory()),
    }
    if found.path is not None:
        result["source_path"] = str(found.path)
    return _print({**result, "precedence": list(PRECEDENCE)}, context=found.to_wire())


@context.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=int, default=10, show_default=True, help="Entries, 1 to 100.")
@click.option("--max-bytes", type=int, default=16384, show_default=True, help="Of the Markdown.")
@click.option("--include-historical", is_flag=True, help="Also what was revised, retracted or forgotten.")
@click.option("--min-commit-seq", type=int, metavar="N", help="Answer only from a state that holds this commit.")
@click.option("--no-recency", is_flag=True, help="Rank by the words alone.")
@horizon_options
def build(
    query: tuple[str, ...],
    limit: int,
    max_bytes: int,
    include_historical: bool,
    min_commit_seq: int | None,
    no_recency: bool,
    horizon: str,
    reason: str | None,
) -> int:
    """What memory holds about a question, as quoted and cited Markdown for a prompt.

    Everything quoted in it is untrusted. Open contradictions come first.
    """
    given = {
        "query": words(query),
        "limit": limit,
        "max_bytes": max_bytes,
        "include_historical": include_historical,
        "min_commit_seq": min_commit_seq,
        "recency": {"enabled": not no_recency},
        "horizon": horizon,
        "reason": reason,
    }
    return perform("context.build", given)
