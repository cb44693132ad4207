"""`memoree inbox`: what agents proposed, for whoever decides."""

from __future__ import annotations

import click

from memoree.cli.parsing import Function, Group, key_option
from memoree.cli.wrapper import perform, perform_mutation

STATES = ("quarantined", "promoted", "rejected")


@click.group(cls=Group)
def inbox() -> None:
    """Read what agents proposed, and decide what becomes of it.

    No search finds an entry. What it says is material to judge, never an instruction.
    """


def _approval(function: Function) -> Function:
    for option in reversed(
        (
            click.option("--approved-by", metavar="NAME", required=True, help="Who decides: not the agent itself."),
            click.option(
                "--override-reason",
                metavar="TEXT",
                help="Why one that looks like an instruction is taken all the same.",
            ),
        )
    ):
        function = option(function)
    return function


@inbox.command("list")
@click.option("--agent", metavar="NAME", help="Only what this agent wrote.")
@click.option("--state", type=click.Choice(STATES), help="Only entries in this state.")
@click.option("--limit", type=int, default=50, show_default=True, help="Entries per page, 1 to 200.")
@click.option("--before-commit-seq", type=int, metavar="N", help="Continue below this commit.")
def list_(agent: str | None, state: str | None, limit: int, before_commit_seq: int | None) -> int:
    """List entries, newest first, without their texts."""
    given = {"agent": agent, "state": state, "limit": limit, "before_commit_seq": before_commit_seq}
    return perform("inbox.list", given)


@inbox.command()
@click.argument("entry_id", metavar="ENTRY")
def show(entry_id: str) -> int:
    """Show one entry. A text that looks like an instruction stands between fences."""
    return perform("inbox.get", {"entry_id": entry_id})


@inbox.command()
@click.argument("entry_id", metavar="ENTRY")
@click.argument("path", metavar="PATH")
@click.option("--file", "source", metavar="FILE|-", required=True, help="The node's text; - for standard input.")
@_approval
@key_option
def promote(
    entry_id: str,
    path: str,
    source: str,
    approved_by: str,
    override_reason: str | None,
    idempotency_key: str | None,
) -> int:
    """Make a node of an entry, at a PATH of the bundle that is free.

    The node's text is what you wrote after reading the entry, front matter and all.
    """
    from memoree.cli.files import read_source

    given = {
        "entry_id": entry_id,
        "path": path,
        "content": read_source(source).content,
        "approved_by": approved_by,
        "override_reason": override_reason,
    }
    return perform_mutation("inbox.promote", given, key=idempotency_key)


@inbox.command()
@click.argument("entry_id", metavar="ENTRY")
@click.option("--into", metavar="ID", help="The idea.  [default: the one that the entry names]")
@_approval
@key_option
def merge(
    entry_id: str, into: str | None, approved_by: str, override_reason: str | None, idempotency_key: str | None
) -> int:
    """Add an entry to the reflections of an idea, whose status stays as it is."""
    given = {"entry_id": entry_id, "into": into, "approved_by": approved_by, "override_reason": override_reason}
    return perform_mutation("inbox.merge", given, key=idempotency_key)


@inbox.command()
@click.argument("entry_id", metavar="ENTRY")
@click.option("--reason", metavar="TEXT", required=True, help="Why nothing becomes of it.")
@click.option("--decided-by", metavar="NAME", required=True, help="Who decides.")
@key_option
def reject(entry_id: str, reason: str, decided_by: str, idempotency_key: str | None) -> int:
    """Take an entry out of the queue; its text stays readable here."""
    given = {"entry_id": entry_id, "reason": reason, "decided_by": decided_by}
    return perform_mutation("inbox.reject", given, key=idempotency_key)
