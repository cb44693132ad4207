"""An export becomes a new tenant of a deployment."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

import apsw

from memoree.data_directory import DATABASE_NAME
from memoree.database import meta
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.jobs.replicated import JobSite
from memoree.objects import ObjectStore, ObjectStoreError
from memoree.objects.blobs import check_tenant
from memoree.objects.remote_audit import RemoteAudit
from memoree.objects.removal import remove_all
from memoree.replication import layout
from memoree.replication.head import Head, HeadFile
from memoree.transfer.importing import Imported, check, read_archive
from memoree.writer.reign import Reign

PUT_SECONDS_MAX = 900.0


async def import_tenant(site: JobSite, tenant: str, file: BinaryIO) -> Imported:
    """Make a new tenant of an export: blobs first, then the database as the first epoch, all at once.

    Raises as `import_directory`, `INVALID_REQUEST` also for a tenant that has commits, and what `Reign.begin` raises.
    """
    check_tenant(tenant)
    await _check_empty(site.store, tenant)
    loop = asyncio.get_running_loop()
    scratch = site.scratch.new_subdirectory("import")
    database = scratch / DATABASE_NAME
    stored: list[str] = []
    put = partial(_put_remote, site.store, loop, stored)
    try:
        imported = await asyncio.to_thread(read_archive, file, database, tenant, put)
        await asyncio.to_thread(check, database, RemoteAudit(site.store, tenant, loop))
        reign = await Reign.begin(tenant, site.writer, origin=_Import(database))
        try:
            await reign.settle()
        finally:
            await reign.abandon()
    except BaseException:
        await asyncio.shield(_take_back(site.store, tenant, stored))
        raise
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    return imported


async def _check_empty(store: ObjectStore, tenant: str) -> None:
    """Not even an object of an import that broke off may be there: what it recorded of erasures is another's."""
    async for info in store.list(layout.tenant_prefix(tenant)):
        invalid(
            f"tenant {tenant} has objects already, {shown(info.key)} among them; an import makes a new one, and "
            "`memoree tenant delete` removes what one left that broke off"
        )


async def _take_back(store: ObjectStore, tenant: str, keys: Sequence[str]) -> None:
    """What a failed import stored belongs to nobody, unless the tenant was born meanwhile."""
    with suppress(ObjectStoreError, MemoreeError):
        if await HeadFile(store, layout.tenant_prefix(tenant)).read() is None:
            await remove_all(store, keys)


def _put_remote(
    store: ObjectStore,
    loop: asyncio.AbstractEventLoop,
    stored: list[str],
    key: str,
    size: int,
    pieces: Iterator[bytes],
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    async def put() -> None:
        stored.append(key)
        await store.put_stream(key, chunks(), size=size)

    asyncio.run_coroutine_threadsafe(put(), loop).result(PUT_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class _Import:
    """`memoree.writer.origin.Origin` of a database that was built and proved already."""

    database: Path
    kind: Literal["import"] = "import"

    async def fetch(self, path: Path) -> None:
        await asyncio.to_thread(shutil.move, self.database, path)

    def adopt(self, db: apsw.Connection, head: Head) -> None:
        counters = meta.read(db)
        if head.commit_seq:
            raise MemoreeError(Code.CONFIG_ERROR, "the tenant was written to meanwhile; nothing was imported")
        counters.history, counters.batch = head.history, head.batch + 1
        meta.write(db, counters)
