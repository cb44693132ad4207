"""`memoree review`: what wants a decision in a bundle of the store, and plans that decide it."""

from __future__ import annotations

from typing import TextIO

import click

from memoree.cli.parsing import Group, key_option
from memoree.cli.wrapper import actor, perform, perform_mutation


@click.group(cls=Group)
def review() -> None:
    """See which nodes want a decision, and carry out a plan."""


@review.command()
@click.option("--stale-days", type=click.IntRange(0, 36_500), help="Old from so many days.  [default: 60]")
def report(stale_days: int | None) -> int:
    """List the nodes that are stale, in conflict, replaced, forgotten or that nothing points at."""
    return perform("review.report", {"stale_days": stale_days})


@review.command()
@click.argument("plan", metavar="FILE", type=click.File("r", encoding="utf-8"))
@click.option("--approved-by", metavar="NAME", help="Who decided it.  [env: MEMOREE_ACTOR]")
@key_option
def apply(plan: TextIO, approved_by: str | None, idempotency_key: str | None) -> int:
    """Do what FILE says, or standard input for -: lines of `id action [target]`.

    Actions are keep, archive, forget and merge. All lines are judged before the first is done; all are done or none.
    """
    approver = approved_by if approved_by is not None else actor()
    if approver is None:
        raise click.UsageError("--approved-by: say who decided the plan")
    return perform_mutation("review.apply", {"plan": plan.read(), "approved_by": approver}, key=idempotency_key)
