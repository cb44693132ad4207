"""Garbage collection of the blobs in a data directory: rows are checked and files removed inside one transaction, so
nothing has to be condemned (design §5.5). What an erasure condemned is removed at once, and released as in a bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

import apsw

from memoree import clock, limits
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
    run = _Run(tenancy)
    erased, _ = await tenancy.snapshot(lambda db: [row for row in condemned.rows(db) if condemned.is_erased(db, row)])
    await asyncio.to_thread(run.remove, (row.digest.hex() for row in erased), before=None)
    await asyncio.to_thread(run.remove_garbage)
    over = clock.stored(tenancy.clock() - timedelta(seconds=limits.COLLECT_RELEASE_SECONDS_MIN))
    ripe = [row.digest.hex() for row in erased if row.condemned_at <= over and not run.still_has(row.digest.hex())]
    for batch in _batches(ripe):
        result = await tenancy.submit(condemned.RELEASE, {"digests": batch}, key=f"gc_{new_ulid()}")
        run.report.released += result["blobs"]
    run.report.condemned, _ = await tenancy.snapshot(condemned.count)
    return run.report


class _Run:
    def __init__(self, tenancy: EmbeddedTenancy) -> None:
        self._service = tenancy.service
        self._store = tenancy.service.store
        self._tenant = tenancy.tenant
        self._before = tenancy.clock() - timedelta(seconds=limits.COLLECT_GRACE_SECONDS_MIN)
        self.report = Collection(tenancy.tenant)

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

    def still_has(self, digest: str) -> bool:
        return self._store.exists_sync(blob_key(self._tenant, digest))


def _batches(digests: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(digests)
    while batch := list(islice(waiting, limits.COLLECT_BLOBS_MAX)):
        yield batch
