"""`memoree search`: ranked references over artifacts and claims."""

from __future__ import annotations

import click

from memoree.cli.parsing import Command, horizon_options
from memoree.cli.wrapper import perform, words


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=int, default=10, show_default=True, help="Hits, 1 to 100.")
@click.option("--include-historical", is_flag=True, help="Also what was revised, retracted or forgotten.")
@click.option("--min-commit-seq", type=int, metavar="N", help="Answer only from a state that holds this commit.")
@click.option("--no-recency", is_flag=True, help="Rank by the words alone.")
@horizon_options
def search(
    query: tuple[str, ...],
    limit: int,
    include_historical: bool,
    min_commit_seq: int | None,
    no_recency: bool,
    horizon: str,
    reason: str | None,
) -> int:
    """Find artifacts and claims by their words."""
    given = {
        "query": words(query),
        "limit": limit,
        "include_historical": include_historical,
        "min_commit_seq": min_commit_seq,
        "recency": {"enabled": not no_recency},
        "horizon": horizon,
        "reason": reason,
    }
    return perform("search", given)
