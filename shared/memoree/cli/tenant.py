"""`memoree tenant`: whole tenants of a deployment."""

from __future__ import annotations

from pathlib import Path

import click

from memoree.cli.jobs import deployment_option, report, with_site
from memoree.cli.parsing import Command, Group


@click.group(cls=Group)
def tenant() -> None:
    """Look after whole tenants."""


@tenant.command(cls=Command)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Required: nothing brings the tenant back.")
@deployment_option
def delete(name: str, yes: bool, data: Path | None) -> int:
    """Remove a tenant with everything it has: rows, content, history and backups, in both buckets.

    Take its tokens away first: who may still write to it brings it to life again, empty. Exits 1 when an object could
    not be removed; the same command again goes on.
    """
    if not yes:
        raise click.UsageError(f"this removes everything of {name} for good; say --yes")
    from memoree.jobs.tenant_deletion import delete_tenant

    result = with_site(data, lambda site: delete_tenant(site, name))
    return report(result) or (0 if result["complete"] else 1)
