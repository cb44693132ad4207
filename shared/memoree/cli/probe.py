"""`memoree probe`: where to look when nothing stored counts as an answer."""

from __future__ import annotations

import click

from memoree.cli.parsing import Command, horizon_options
from memoree.cli.wrapper import perform, words


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@click.option("--original-query", metavar="TEXT", help="The question, where QUERY is another wording of it.")
@click.option("--max-leads", type=int, default=8, show_default=True, help="1 to 8.")
@click.option("--min-commit-seq", type=int, metavar="N", help="Answer only from a state that holds this commit.")
@click.option("--no-recency", is_flag=True, help="Rank by the words alone.")
@horizon_options
def probe(
    query: tuple[str, ...],
    original_query: str | None,
    max_leads: int,
    min_commit_seq: int | None,
    no_recency: bool,
    horizon: str,
    reason: str | None,
) -> int:
    """List titles and pointers of what comes near a query and does not answer it.

    What does answer it is not among them: `memoree retrieve` shows that.
    """
    given = {
        "query": words(query),
        "original_query": original_query,
        "max_leads": max_leads,
        "min_commit_seq": min_commit_seq,
        "recency": {"enabled": not no_recency},
        "horizon": horizon,
        "reason": reason,
    }
    return perform("memory.probe", given)
