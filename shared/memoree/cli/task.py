"""`memoree task`: the status of tasks in a bundle of the store."""

from __future__ import annotations

import click

from memoree.cli.parsing import Group, key_option
from memoree.cli.wrapper import actor, perform_mutation

STATUSES = ("backlog", "in-progress", "done", "blocked")


@click.group(cls=Group)
def task() -> None:
    """Set the status of tasks."""


@task.command("set-status")
@click.argument("task_id", metavar="ID")
@click.argument("status", metavar="STATUS", type=click.Choice(STATUSES))
@click.option("--reason", metavar="TEXT", help="Why it is blocked.")
@click.option(
    "--if-revision",
    metavar="REVISION",
    required=True,
    help="The revision of the task that you have read: the arev_… of its citation.",
)
@key_option
def set_status(task_id: str, status: str, reason: str | None, if_revision: str, idempotency_key: str | None) -> int:
    """Set the status of one task; nothing else of its file changes.

    STATUS is backlog, in-progress, done or blocked. `memoree search` and `memoree recall` show citations.
    """
    given = {
        "id": task_id,
        "status": status,
        "blocked_reason": reason,
        "if_revision": if_revision,
        "actor": actor(),
    }
    return perform_mutation("task.set_status", given, key=idempotency_key)
