"""Garbage collection of the blobs in a data directory: rows are checked and files removed inside one transaction, so
nothing has to be condemned (design §5.5). What is condemned, by an erasure or in a deployment where the database was,
is removed and released at once: no DELETE of it is on its way here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

import apsw

from memoree import limits
from memoree.database import condemned
from memoree.ids import new_ulid
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.gc import Collection
from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.objects.blobs import blob_key, blob_prefix, digest_in
from memoree.objects.removal import Removal


async def collect(tenancy: EmbeddedTenancy) -> Collection:
    """One run; writers wait for as long as it takes to look at a thousand files. Raises `TRANSPORT_ERROR` when another
    process keeps the lock, `ObjectStoreError` for a directory that cannot be listed."""
    await asyncio.to_thread(tenancy.service.remove_abandoned)
    run = _Run(tenancy)
    await run.remove_condemned()
    await asyncio.to_thread(run.remove_garbage)
    run.report.condemned, _ = await tenancy.snapshot(condemned.count)
    return run.report


async def collect_condemned(tenancy: EmbeddedTenancy) -> None:
    """Of a run, what an erasure needs. Raises as `collect`."""
    await _Run(tenancy).remove_condemned()


class _Run:
    def __init__(self, tenancy: EmbeddedTenancy) -> None:
        self._tenancy = tenancy
        self._service = tenancy.service
        self._store = tenancy.service.store
        self._tenant = tenancy.tenant
        self._before = tenancy.clock() - timedelta(seconds=limits.COLLECT_GRACE_SECONDS_MIN)
        self.report = Collection(tenancy.tenant)

    async def remove_condemned(self) -> None:
        digests, _ = await self._tenancy.snapshot(lambda db: [row.digest.hex() for row in condemned.rows(db)])
        await asyncio.to_thread(self.remove, digests, before=None)
        for batch in _batches(digest for digest in digests if not self._has(digest)):
            order = {"digests": batch, "unlinked": True}
            result = await self._tenancy.submit(condemned.RELEASE, order, key=f"gc_{new_ulid()}")
            self.report.released += result["blobs"]

    def remove_garbage(self) -> None:
        keys = self._store.keys_sync(blob_prefix(self._tenant))
        digests = (digest for key in keys if (digest := digest_in(self._tenant, key)) is not None)
        self.remove(digests, before=self._before)

    def remove(self, digests: Iterable[str], *, before: datetime | None) -> None:
        """Those that no revision needs and that were written `before` then, if that is given."""
        for batch in _batches(digests):
            self._service.exclusively(lambda db, batch=batch: self._remove(db, batch, before))  # type: ignore[misc]

    def _remove(self, db: apsw.Connection, digests: Sequence[str], before: datetime | None) -> None:
        for digest in digests:
            if condemned.is_cited(db, bytes.fromhex(digest)):
                continue
            key = blob_key(self._tenant, digest)
            try:
                if before is not None and self._store.modified_sync(key) >= before:
                    continue
                size = self._store.size_sync(key)
                self._store.delete_sync(key)
            except ObjectMissing:
                continue
            except ObjectStoreError as error:
                self.report.deletes.include(Removal(failed=1, failures={key: str(error)}))
            else:
                self.report.deletes.removed += 1
                self.report.bytes += size

    def _has(self, digest: str) -> bool:
        return self._store.exists_sync(blob_key(self._tenant, digest))


def _batches(digests: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(digests)
    while batch := list(islice(waiting, limits.COLLECT_BLOBS_MAX)):
        yield batch
