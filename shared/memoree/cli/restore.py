"""`memoree restore`: a tenant of a deployment as it was at an earlier time. `memoree backup restore` is beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memoree.cli.jobs import deployment_option, progress, report, with_site
from memoree.cli.parsing import Command
from memoree.errors import Code, MemoreeError

if TYPE_CHECKING:
    from memoree.jobs.restore import Options, Restored
    from memoree.replication.lineage import UpToCommit, UpToTime

Function = TypeVar("Function", bound=Callable[..., Any])

NO_POINT_IN_TIME = (
    "a data directory keeps no earlier states: `memoree backup restore DIR` puts back a backup of it, and --tenant "
    "names a tenant of a deployment, which has a past to go back to"
)


def restoring_options(function: Function) -> Function:
    """`replace` and `allow_missing_blobs`, for `options`."""
    function = click.option(
        "--allow-missing-blobs", is_flag=True, help="Restore also what needs blobs that are nowhere."
    )(function)
    return click.option("--replace", is_flag=True, help="Undo what the tenant or store holds now.")(function)


into_option = click.option("--as", "into", metavar="NAME", help="Restore into this tenant, a new one as a rule.")


@click.command(cls=Command)
@click.option("--tenant", metavar="NAME", help="Of a deployment.")
@click.option("--to-commit", type=click.IntRange(min=0), metavar="N", help="Up to this commit.")
@click.option("--to-time", metavar="TIME", help="Up to this instant, such as 2026-03-02T20:40:00Z.")
@click.option("--list", "listing", is_flag=True, help="What the tenant can be restored to, newest first.")
@into_option
@restoring_options
@deployment_option
def restore(
    tenant: str | None,
    to_commit: int | None,
    to_time: str | None,
    listing: bool,
    into: str | None,
    replace: bool,
    allow_missing_blobs: bool,
    data: Path | None,
) -> int:
    """Make a tenant what it was: the newest state that can be restored and is not later than asked for.

    The answer says which state that was. The tenant goes on meanwhile; what it holds is replaced all at once, in a new
    history, and only with --replace. What was erased since is erased again.
    """
    if sum((to_commit is not None, to_time is not None, listing)) != 1:
        raise click.UsageError("name one of --to-commit, --to-time and --list")
    if tenant is None:
        raise MemoreeError(Code.CONFIG_ERROR, NO_POINT_IN_TIME)
    from memoree.jobs.restore import restorable_points, restore_point

    if listing:
        return report(with_site(data, lambda site: restorable_points(site, tenant)))
    wanted, how = _wanted(to_commit, to_time), options(replace, allow_missing_blobs)
    return reported(with_site(data, lambda site: restore_point(site, tenant, wanted, into or tenant, how)))


def _wanted(to_commit: int | None, to_time: str | None) -> UpToCommit | UpToTime:
    from memoree.clock import parse_timestamp
    from memoree.replication.lineage import UpToCommit, UpToTime

    if to_commit is not None:
        return UpToCommit(to_commit)
    assert to_time is not None
    try:
        return UpToTime(parse_timestamp(to_time))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to-time") from None


def options(replace: bool, allow_missing_blobs: bool) -> Options:
    from memoree.jobs.restore import Options

    return Options(replace, allow_missing_blobs, progress)


def reported(restored: Restored) -> int:
    return report(asdict(restored))


def restore_data_directory(backup: Path, how: Options) -> Restored:
    """Into the data directory of this environment. Raises as `restore_directory`."""
    import asyncio

    from memoree.assembly import embedded_facts, embedded_service
    from memoree.jobs.restore_directory import require_backup, restore_directory
    from memoree.paths import discover, prepare_data_dir

    require_backup(backup)  # before a store is made that nobody asked for
    data_dir = discover().data_dir
    prepare_data_dir(data_dir)
    service = embedded_service(data_dir, facts=embedded_facts(running=False))
    try:
        return asyncio.run(restore_directory(service, data_dir, backup, how))
    finally:
        service.close_sync()
