"""`memoree recall`: what memory holds about a question, claims first."""

from __future__ import annotations

import click

from memoree.cli.parsing import Command, horizon_options
from memoree.cli.wrapper import perform, words


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@click.option("--max-claims", type=int, default=5, show_default=True, help="1 to 10.")
@click.option("--max-artifact-refs", type=int, default=3, show_default=True, help="1 to 20.")
@click.option("--max-excerpt-bytes", type=int, default=320, show_default=True, help="Of each excerpt, 1 to 1024.")
@click.option("--max-candidate-claims", type=int, default=0, show_default=True, help="Weak matches, 0 to 5.")
@click.option("--max-candidate-artifact-refs", type=int, default=0, show_default=True, help="Weak matches, 0 to 5.")
@click.option("--min-commit-seq", type=int, metavar="N", help="Answer only from a state that holds this commit.")
@click.option("--no-recency", is_flag=True, help="Rank by the words alone.")
@horizon_options
def recall(
    query: tuple[str, ...],
    max_claims: int,
    max_artifact_refs: int,
    max_excerpt_bytes: int,
    max_candidate_claims: int,
    max_candidate_artifact_refs: int,
    min_commit_seq: int | None,
    no_recency: bool,
    horizon: str,
    reason: str | None,
) -> int:
    """Ask memory: the claims that answer, their evidence, and the artifacts that match.

    Nothing found says something about the words that were asked, and nothing about the fact.
    """
    given = {
        "query": words(query),
        "max_claims": max_claims,
        "max_artifact_refs": max_artifact_refs,
        "max_excerpt_bytes": max_excerpt_bytes,
        "max_candidate_claims": max_candidate_claims,
        "max_candidate_artifact_refs": max_candidate_artifact_refs,
        "min_commit_seq": min_commit_seq,
        "recency": {"enabled": not no_recency},
        "horizon": horizon,
        "reason": reason,
    }
    return perform("memory.recall", given)
