"""`memoree erase`: hard forget, by exact ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.jobs import report, tenancy_options, with_site, with_tenancy
from memoree.cli.parsing import Command

if TYPE_CHECKING:
    from memoree.jobs.tenancy import Tenancy


@click.command(cls=Command)
@click.argument("entities", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", help="Why. It stays in the audit log: do not quote what is to go.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be erased.")
@tenancy_options
def erase(entities: tuple[str, ...], reason: str | None, dry_run: bool, tenant: str | None, data: Path | None) -> int:
    """Remove artifacts and claims for good: their content, wherever the store keeps it, with all their revisions.

    An ID is `art_...` or `clm_...`. The receipt has a line for each place where content may be: `erased`, or
    `retained_until` an instant. Broken off, the same command again finishes it. A tenant's writer pauses for seconds.
    """
    from memoree.jobs import erase as job

    if dry_run:
        return report(with_tenancy(tenant, data, lambda opened: job.preview(opened, entities)))
    if reason is None:
        raise click.UsageError("say why: --reason TEXT")
    if tenant is not None:
        return report(with_site(data, lambda site: job.erase_in_deployment(site, tenant, entities, reason)))

    async def in_directory(opened: Tenancy) -> dict[str, Any]:
        from memoree.jobs.embedded import EmbeddedTenancy

        assert isinstance(opened, EmbeddedTenancy), "without --tenant it is the store in the data directory"
        return await job.erase_in_directory(opened, entities, reason)

    return report(with_tenancy(None, data, in_directory))
