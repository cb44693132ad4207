"""`memoree retrieve`: what memory holds about a query, and what comes near when it holds nothing."""

from __future__ import annotations

import click

from memoree.cli.parsing import Command, horizon_options
from memoree.cli.wrapper import perform, words


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@click.option("--reformulation", metavar="TEXT", help="Other words to look with when nothing answers QUERY.")
@click.option("--max-claims", type=int, default=5, show_default=True, help="1 to 10.")
@click.option("--max-artifact-refs", type=int, default=3, show_default=True, help="1 to 20.")
@click.option("--max-excerpt-bytes", type=int, default=320, show_default=True, help="Of each excerpt, 1 to 1024.")
@click.option("--max-recovery-leads", type=int, default=8, show_default=True, help="1 to 8.")
@click.option("--max-recovery-bytes", type=int, default=12288, show_default=True, help="1 to 12288.")
@click.option("--min-commit-seq", type=int, metavar="N", help="Answer only from a state that holds this commit.")
@click.option("--no-recency", is_flag=True, help="Rank by the words alone.")
@click.option("--profile", is_flag=True, help="Also say how long each step took.")
@horizon_options
def retrieve(
    query: tuple[str, ...],
    reformulation: str | None,
    max_claims: int,
    max_artifact_refs: int,
    max_excerpt_bytes: int,
    max_recovery_leads: int,
    max_recovery_bytes: int,
    min_commit_seq: int | None,
    no_recency: bool,
    profile: bool,
    horizon: str,
    reason: str | None,
) -> int:
    """Ask memory; when no claim answers, see what its claims nearby cite.

    Recovered evidence is never an answer, and a reformulation never makes it one: ask again with the words that are
    stored.
    """
    given = {
        "query": words(query),
        "reformulation": reformulation,
        "max_claims": max_claims,
        "max_artifact_refs": max_artifact_refs,
        "max_excerpt_bytes": max_excerpt_bytes,
        "max_recovery_leads": max_recovery_leads,
        "max_recovery_bytes": max_recovery_bytes,
        "min_commit_seq": min_commit_seq,
        "recency": {"enabled": not no_recency},
        "profile": profile,
        "horizon": horizon,
        "reason": reason,
    }
    return perform("memory.retrieve", given)
