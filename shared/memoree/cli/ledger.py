"""`memoree ledger`: what agents did in a project of the store, and which failures are open."""

from __future__ import annotations

import click

from memoree.cli.parsing import Group, key_option
from memoree.cli.wrapper import actor, perform, perform_mutation


@click.group(cls=Group)
def ledger() -> None:
    """Append to a project's ledger, and read it."""


@ledger.command()
@click.argument("topic")
@click.argument("action")
@click.option("--phase", default="step", show_default=True, help="start, step, done, fail, block or note.")
@click.option("--status", help="ok, wip, partial or fail.  [default: ok]")
@click.option("--artifact", metavar="PATH", help="What came of it.")
@click.option("--ref", help="A name for the event: what comes under it again is not appended.")
@key_option
def append(
    topic: str,
    action: str,
    phase: str,
    status: str | None,
    artifact: str | None,
    ref: str | None,
    idempotency_key: str | None,
) -> int:
    """Append one event: what was done on a topic, which may be the id of a node.

    MEMOREE_ACTOR says who did it.
    """
    given = {
        "topic": topic,
        "action": action,
        "phase": phase,
        "status": status,
        "artifact": artifact,
        "ref": ref,
        "actor": actor(),
    }
    return perform_mutation("ledger.append", given, key=idempotency_key)


@ledger.command()
def status() -> int:
    """Where every topic stands, and which failures are open."""
    return perform("ledger.status", {})


@ledger.command()
@click.argument("topic")
@click.option("--limit", type=click.IntRange(1, 1000), help="The newest, at most.  [default: 200]")
def read(topic: str, limit: int | None) -> int:
    """Print the newest events of a topic."""
    return perform("ledger.read", {"topic": topic, "limit": limit})
