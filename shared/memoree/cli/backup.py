"""`memoree backup`: copies of the whole store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memoree.cli.jobs import deployment_option, progress, report, with_site
from memoree.cli.parsing import Group
from memoree.cli.restore import into_option, options, reported, restore_data_directory, restoring_options
from memoree.cli.wrapper import perform

FAULTY_STATUS = 1

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group(cls=Group)
def backup() -> None:
    """Copy the store."""


def _tenant_options(function: Function) -> Function:
    tenant = click.option("--tenant", metavar="NAME", required=True, help="Of the deployment.")
    return tenant(deployment_option(function))


_from_option = click.option(
    "--from",
    "place",
    type=click.Choice(["first", "second"]),
    default="first",
    show_default=True,
    help="The bucket to look into.",
)


@backup.command()
@click.argument("destination", metavar="[DESTINATION]", required=False, type=click.Path(path_type=Path))
@click.option("--tenant", metavar="NAME", help="Back up this tenant of a deployment, in its bucket.")
@deployment_option
@click.option("--full", is_flag=True, help="With --tenant: read and hash every blob, not just a few.")
def create(destination: Path | None, tenant: str | None, data: Path | None, full: bool) -> int:
    """Copy the verified store into a directory that does not exist yet, or a tenant of a deployment into its bucket.

    A relative DESTINATION is one of this working directory. The server writes it: with --endpoint on its machine. When
    no answer came, look at the destination before trying again. With --tenant, there is no DESTINATION.
    """
    if tenant is None:
        if destination is None or data is not None or full:
            raise click.UsageError("name a DESTINATION, or a --tenant (which --data and --full need)")
        return perform("backup.create", {"destination": str(destination.absolute())})
    if destination is not None:
        raise click.UsageError("the backups of a --tenant go to its bucket; leave DESTINATION out")
    from memoree.jobs.backup_site import back_up, is_complete

    result = with_site(data, lambda site: back_up(site, tenant, full=full, progress=progress))
    return report(result) or (0 if is_complete(result) else FAULTY_STATUS)


@backup.command("list")
@_tenant_options
@_from_option
def list_(tenant: str, data: Path | None, place: Any) -> int:
    """Every backup of a tenant, and what was left unfinished."""
    from memoree.jobs.backup_site import list_all

    return report(with_site(data, lambda site: list_all(site, tenant, place)))


@backup.command()
@click.argument("backup_id", metavar="ID")
@_tenant_options
@_from_option
def show(backup_id: str, tenant: str, data: Path | None, place: Any) -> int:
    """What the record of a backup says."""
    from memoree.jobs.backup_site import show

    return report(with_site(data, lambda site: show(site, tenant, backup_id, place)))


@backup.command()
@click.argument("backup_id", metavar="ID")
@_tenant_options
@_from_option
@click.option("--full", is_flag=True, help="Read and hash every blob; otherwise they are there, of the right size.")
def verify(backup_id: str, tenant: str, data: Path | None, place: Any, full: bool) -> int:
    """Restore a backup into a scratch directory and prove everything in it. Exits 1 when something is wrong."""
    from memoree.jobs.backup_site import check

    result = with_site(data, lambda site: check(site, tenant, backup_id, place, full=full, progress=progress))
    return report(result) or (0 if result["ok"] else FAULTY_STATUS)


@backup.command()
@_tenant_options
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
def prune(tenant: str, data: Path | None, dry_run: bool) -> int:
    """Remove the backups that the retention does not keep, and what broken-off ones left a day ago.

    MEMOREE_BACKUPS_KEEP_LAST, _DAILY and _WEEKLY say which are kept; the newest always is. Exits 1 when an object could
    not be removed.
    """
    from memoree.jobs.backup_site import is_complete, prune_all

    result = with_site(data, lambda site: prune_all(site, tenant, dry_run=dry_run))
    return report(result) or (0 if is_complete(result) else FAULTY_STATUS)


@backup.command()
@click.argument("source", metavar="BACKUP")
@click.option("--tenant", metavar="NAME", help="Whose backup it is, of a deployment.")
@deployment_option
@_from_option
@into_option
@restoring_options
def restore(
    source: str,
    tenant: str | None,
    data: Path | None,
    place: Any,
    into: str | None,
    replace: bool,
    allow_missing_blobs: bool,
) -> int:
    """Make a tenant of a deployment, or the store of the data directory, what a backup holds.

    BACKUP is the id of a backup of the --tenant; without one, a directory that `memoree backup create` made. What is
    there is replaced all at once, in a new history, and only with --replace. What was erased since is erased again.
    """
    how = options(replace, allow_missing_blobs)
    if tenant is None:
        if data is not None or into is not None or place != "first":
            raise click.UsageError("--data, --from and --as are for a deployment; name the --tenant")
        return reported(restore_data_directory(Path(source).absolute(), how))
    from memoree.jobs.restore import restore_found

    return reported(with_site(data, lambda site: restore_found(site, tenant, source, place, into or tenant, how)))
