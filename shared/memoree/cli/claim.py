"""`memoree claim`: atomic statements and the evidence they cite."""

from __future__ import annotations

import click

from memoree.cli.names import EVIDENCE_FORMS, parse_evidence, parse_revision, parse_whole
from memoree.cli.parsing import Command, Group, key_option
from memoree.cli.wrapper import actor, perform, perform_mutation, words

CLAIM_TYPES = ("fact", "decision", "constraint", "preference", "procedure", "observation")
EVIDENCE_HELP = f"{EVIDENCE_FORMS}, in bytes, or a citation of it; may be repeated."


@click.group(cls=Group)
def claim() -> None:
    """Assert, revise, retract and read claims."""


@claim.command("assert", cls=Command)
@click.argument("claim_type", metavar="TYPE", type=click.Choice(CLAIM_TYPES))
@click.argument("statement", nargs=-1, required=True)
@click.option("--confidence", type=float, help="From 0 to 1.")
@click.option("--evidence", multiple=True, help=EVIDENCE_HELP)
@click.option("--valid-from", metavar="TIME", help="RFC 3339; inclusive.")
@click.option("--valid-until", metavar="TIME", help="RFC 3339; exclusive.")
@key_option
def assert_(
    claim_type: str,
    statement: tuple[str, ...],
    confidence: float | None,
    evidence: tuple[str, ...],
    valid_from: str | None,
    valid_until: str | None,
    idempotency_key: str | None,
) -> int:
    """Record one typed statement.

    TYPE is fact, decision, constraint, preference, procedure or observation.
    """
    given = {
        "claim_type": claim_type,
        "statement": words(statement),
        "confidence": confidence,
        "evidence": [parse_evidence(item) for item in evidence],
        "valid_from": valid_from,
        "valid_until": valid_until,
        "actor": actor(),
    }
    return perform_mutation("claim.assert", given, key=idempotency_key)


@claim.command()
@click.argument("claim_id", metavar="ID")
@click.option("--revision", metavar="REVISION", help="An older revision.  [default: the current one]")
def get(claim_id: str, revision: str | None) -> int:
    """Show a claim: its statement, its state, what it cites.

    A claim in conflict is live; `memoree conflict list` shows with which.
    """
    claim_id, revision = parse_revision(claim_id, "claim", revision)
    return perform("claim.get", {"claim_id": claim_id, "revision_id": revision})


@claim.command()
@click.argument("claim_id", metavar="ID")
@click.option("--limit", type=int, default=50, show_default=True, help="Revisions per page, 1 to 100.")
@click.option("--before-revision-number", type=int, metavar="N", help="Continue below this revision number.")
def history(claim_id: str, limit: int, before_revision_number: int | None) -> int:
    """List the revisions of a claim, newest first."""
    claim_id = parse_whole(claim_id, "claim")
    given = {"claim_id": claim_id, "limit": limit, "before_revision_number": before_revision_number}
    return perform("claim.history", given)


@claim.command()
@click.argument("claim_id", metavar="ID")
@click.argument("statement", nargs=-1, required=True)
@click.option("--if-revision", metavar="REVISION", required=True, help="The revision this change was made from.")
@click.option("--confidence", type=float, help="From 0 to 1; left out, the new revision has none.")
@click.option("--evidence", multiple=True, help=f"{EVIDENCE_HELP} Left out, the new revision has none.")
@key_option
def revise(
    claim_id: str,
    statement: tuple[str, ...],
    if_revision: str,
    confidence: float | None,
    evidence: tuple[str, ...],
    idempotency_key: str | None,
) -> int:
    """Replace the statement of a claim, with its confidence and its evidence.

    A claim in conflict stays so: its new revision gets a case of its own.
    """
    claim_id, _ = parse_revision(claim_id, "claim", if_revision)
    given = {
        "claim_id": claim_id,
        "if_revision": if_revision,
        "statement": words(statement),
        "confidence": confidence,
        "evidence": [parse_evidence(item) for item in evidence],
        "actor": actor(),
    }
    return perform_mutation("claim.revise", given, key=idempotency_key)


@claim.command()
@click.argument("claim_id", metavar="ID")
@click.option("--reason", required=True)
@key_option
def retract(claim_id: str, reason: str, idempotency_key: str | None) -> int:
    """Withdraw a claim; it stays readable, with the reason."""
    given = {"claim_id": parse_whole(claim_id, "claim"), "reason": reason}
    return perform_mutation("claim.retract", given, key=idempotency_key)
