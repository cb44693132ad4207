"""The blobs of a restored state: all that it needs are among its tenant's before anybody is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import orjson

from memoree import clock, limits
from memoree.clock import Clock
from memoree.concurrency import for_each
from memoree.database.condemned import Condemned
from memoree.database.connection import open_reader
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.objects.audit import BlobRef
from memoree.objects.blobs import BlobStore
from memoree.objects.copying import Place, copy_blob
from memoree.objects.presence import PresenceAudit

_NEEDED = """
    SELECT r.blob_hash, max(r.size_bytes) FROM artifact_revisions r JOIN artifacts a ON a.row_id = r.artifact_row
    WHERE r.body IS NULL AND a.artifact_id NOT IN (SELECT value FROM json_each(?))
    GROUP BY r.blob_hash ORDER BY r.blob_hash
"""


@dataclass(slots=True)
class Brought:
    """How many blobs were copied, and the digests of those that are nowhere."""

    copied: int = 0
    missing: list[str] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """The first of the missing ones."""
        return self.missing[: limits.RESTORE_MISSING_TOLD_MAX]

    def require_all(self) -> None:
        """Raises `INTEGRITY_ERROR` with the digests of missing ones."""
        if self.missing:
            raise MemoreeError(
                Code.INTEGRITY_ERROR,
                f"{len(self.missing)} blobs of this state are missing or damaged, nothing was restored; the first is "
                f"{self.missing[0]}; --allow-missing-blobs restores what is there",
                details={"missing": self.told, "missing_count": len(self.missing)},
            )


def needed_blobs(database: Path, erasures: Sequence[Erasure]) -> Iterator[BlobRef]:
    """What the revisions need that no erasure removes, in ascending order of digests."""
    erased = sorted({entity for erasure in erasures for entity in erasure.entities})
    with closing(open_reader(database, immutable=True)) as db:
        for digest, size in db.execute(_NEEDED, (orjson.dumps(erased).decode(),)):
            yield BlobRef(digest, size)


async def bring_blobs(source: Place, target: Place, database: Path, erasures: Sequence[Erasure]) -> Brought:
    """See that the blobs are in `target`, copying from `source` what is not. A blob that is there with its size is
    believed; `memoree verify` proves it. Raises `StoreUnavailable`."""
    brought = Brought()
    if source == target:
        audit = PresenceAudit(target.store, target.tenant, asyncio.get_running_loop())
        faults = await asyncio.to_thread(list, audit.faults(needed_blobs(database, erasures)))
        brought.missing = [fault.name for fault in faults]
        return brought
    present = BlobStore(target.store, target.tenant)

    async def bring(ref: BlobRef) -> None:
        if await present.size_of(ref.digest.hex()) == ref.size:
            return
        try:
            await copy_blob(source, target, ref)
        except MemoreeError:
            brought.missing.append(ref.digest.hex())
        else:
            brought.copied += 1

    await for_each(needed_blobs(database, erasures), bring, at_once=limits.BACKUP_COPIES_AT_ONCE_MAX)
    return brought


def carried_over(
    database: Path, erasures: Sequence[Erasure], condemned: Sequence[Condemned], now: Clock
) -> list[Condemned]:
    """What stays condemned: blobs that may be deleted at any moment, by a collector that knows nothing of a restore.

    Raises a retryable `TRANSPORT_ERROR` when the database needs one of them; once its deletion must be over it may.
    """
    rows = {row.digest: row for row in condemned}
    if not rows:
        return []
    oldest = now() - timedelta(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
    for ref in needed_blobs(database, erasures):
        row = rows.pop(ref.digest, None)
        if row is not None and clock.from_stored(row.condemned_at) > oldest:
            raise MemoreeError(
                Code.TRANSPORT_ERROR,
                f"blob {ref.digest.hex()}, which this state needs, is being collected since "
                f"{clock.wire(row.condemned_at)}; try again {limits.COLLECT_RELEASE_SECONDS_MIN // 60} minutes later",
                details={"reason": "digest_condemned", "digest": ref.digest.hex()},
                retry_after_seconds=float(limits.COLLECT_RELEASE_SECONDS_MIN),
            )
    return list(rows.values())
