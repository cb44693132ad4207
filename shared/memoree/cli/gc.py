"""`memoree gc`: removing what nothing holds any more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.jobs import report, tenancy_options, with_site
from memoree.cli.parsing import Command
from memoree.errors import not_found

if TYPE_CHECKING:
    from memoree.jobs.replicated import JobSite
    from memoree.jobs.schedule import Done


@click.command(cls=Command)
@tenancy_options
def gc(tenant: str | None, data: Path | None) -> int:
    """Delete blobs that nothing holds any more, prefixes of old epochs, and what commands and uploads left.

    Nothing younger than a day goes, nor what a backup holds or a point in time needs. Without --tenant, the blobs of
    the store in the data directory. Exits 1 when something could not be deleted.
    """
    if tenant is None:
        if data is not None:
            raise click.UsageError("--data is for a deployment; name the --tenant")
        import asyncio

        result, failed = asyncio.run(_collect_here())
        return report(result) or (1 if failed else 0)
    done = with_site(data, lambda site: _collect_of(site, tenant))
    return report(done.result) or (1 if done.problems else 0)


async def _collect_of(site: JobSite, tenant: str) -> Done:
    """Raises `NOT_FOUND` for a name that nothing is stored under."""
    from memoree.jobs.scheduled import collect
    from memoree.replication import layout

    if not [key async for key in site.store.children(layout.tenant_prefix(tenant))]:
        not_found("tenant", tenant)
    return await collect(site, tenant)


async def _collect_here() -> tuple[dict[str, Any], int]:
    from memoree.assembly import embedded_service
    from memoree.jobs.embedded import EmbeddedTenancy
    from memoree.jobs.local_gc import collect
    from memoree.paths import discover

    service = embedded_service(discover().data_dir)
    try:
        collection = await collect(EmbeddedTenancy(service))
    finally:
        await service.close()
    return {"blobs": collection.to_wire()}, collection.deletes.failed
