"""`memoree feedback`: what a search was worth."""

from __future__ import annotations

import click

from memoree.cli.parsing import Function, Group, key_option
from memoree.cli.wrapper import actor, perform, perform_mutation, words

OUTCOMES = ("miss", "useful", "incorrect", "stale")


def _page_options(function: Function) -> Function:
    function = click.option("--before-commit-seq", type=int, metavar="N", help="Continue below this commit.")(function)
    return click.option("--limit", type=int, default=100, show_default=True, help="Records per page, 1 to 100.")(
        function
    )


@click.group(cls=Group)
def feedback() -> None:
    """Say what a search was worth; nothing is captured by itself."""


@feedback.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--outcome", type=click.Choice(OUTCOMES), required=True)
@click.option("--retain-query", is_flag=True, help="Keep the words of the query, not only their fingerprint.")
@click.option("--citation", "citations", multiple=True, help="What was found or should have been; may be repeated.")
@click.option("--note", help="Kept as it is.")
@key_option
def record(
    query: tuple[str, ...],
    outcome: str,
    retain_query: bool,
    citations: tuple[str, ...],
    note: str | None,
    idempotency_key: str | None,
) -> int:
    """Record what the answer to a query was worth; it changes no ranking.

    Without --retain-query the words of the query are not stored, only a fingerprint that tells equal queries apart
    from others within this store.
    """
    given = {
        "query": words(query),
        "outcome": outcome,
        "retain_query": retain_query,
        "citations": list(citations),
        "note": note,
        "actor": actor(),
    }
    return perform_mutation("feedback.record", given, key=idempotency_key)


@feedback.command()
@click.argument("feedback_id", metavar="ID")
def get(feedback_id: str) -> int:
    """Show one record."""
    return perform("feedback.get", {"feedback_id": feedback_id})


@feedback.command("list")
@_page_options
def list_feedback(limit: int, before_commit_seq: int | None) -> int:
    """List the records of this context, newest first."""
    return perform("feedback.list", {"limit": limit, "before_commit_seq": before_commit_seq})


@feedback.command()
@_page_options
def export(limit: int, before_commit_seq: int | None) -> int:
    """List the records whose query was kept, as cases to test a search with."""
    return perform("feedback.export", {"limit": limit, "before_commit_seq": before_commit_seq})
