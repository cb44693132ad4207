"""An export becomes a new tenant of a deployment."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from memoree.replication.head import Head, HeadFile, HeadLost
from memoree.transfer.importing import Imported, PutObject, check, read_archive
from memoree.writer.reign import LeaseHeld, Reign

PUT_SECONDS_MAX = 900.0

log = logging.getLogger(__name__)


async def import_tenant(site: JobSite, tenant: str, file: BinaryIO) -> Imported:
    """Make a new tenant of an export: blobs first, then the database as the first epoch, all at once. The record of
    erasures comes after that: a tenant that was born meanwhile knows nothing of them.

    Raises as `import_directory`, `INVALID_REQUEST` also for a tenant that has objects, `CONFIG_ERROR` or
    `TRANSPORT_ERROR` for one that somebody else began with meanwhile, `ObjectStoreError`.
    """
    check_tenant(tenant)
    await _check_empty(site.store, tenant)
    loop = asyncio.get_running_loop()
    scratch = site.scratch.new_subdirectory("import")
    database = scratch / DATABASE_NAME
    stored: list[str] = []
    erasures = _Kept(scratch, layout.erasures_prefix(tenant), partial(_put_remote, site.store, loop, stored))
    try:
        imported = await asyncio.to_thread(read_archive, file, database, tenant, erasures.put)
        await asyncio.to_thread(check, database, RemoteAudit(site.store, tenant, loop))
        reign = await _begin(site, tenant, database)
        try:
            await erasures.bring(site.store)
            with suppress(HeadLost):  # head has covered it, and somebody went on from there
                await reign.settle()
        finally:
            await reign.abandon()
    except BaseException:
        await asyncio.shield(_take_back(site.store, tenant, stored))
        raise
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    return imported


async def _begin(site: JobSite, tenant: str, database: Path) -> Reign:
    try:
        return await Reign.begin(tenant, site.writer, origin=_Import(database))
    except (HeadLost, LeaseHeld) as error:
        raise MemoreeError(
            Code.TRANSPORT_ERROR, f"somebody else has just begun with tenant {tenant}; nothing was imported: {error}"
        ) from error


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
class _Kept:
    """Takes the objects of an archive, and keeps those below `prefix` in the directory `scratch` until `bring`;
    `put_others` takes the others."""

    scratch: Path
    prefix: str
    put_others: PutObject
    keys: list[str] = field(default_factory=list)

    def put(self, key: str, size: int, pieces: Iterator[bytes]) -> None:
        if not key.startswith(self.prefix):
            self.put_others(key, size, pieces)
            return
        self._path(len(self.keys)).write_bytes(b"".join(pieces))
        self.keys.append(key)

    async def bring(self, store: ObjectStore) -> None:
        """It is no failure of an import that is done: what the database tells of, the next collection of garbage
        records."""
        try:
            for number, key in enumerate(self.keys):
                await store.put(key, self._path(number).read_bytes())
        except ObjectStoreError as error:
            log.warning("not everything below %s is recorded yet: %s", self.prefix, error)

    def _path(self, number: int) -> Path:
        return self.scratch / f"kept-{number}"


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
