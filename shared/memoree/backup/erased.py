"""Which blobs of a backup nobody needs any more, since everything in it that cites them was erased (design §8).

Digests tell nothing by themselves: what one erased artifact and another, kept one have in common is one blob.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import orjson

from memoree import limits
from memoree.backup.database import open_copy
from memoree.backup.record import BackupRecord, fetch_checkpoint
from memoree.erasures import Erasure, recorded
from memoree.objects import ObjectStore
from memoree.objects.audit import BlobAudit, BlobFault, BlobRef

_ONLY_ERASED = """
    SELECT DISTINCT r.blob_hash FROM artifacts a JOIN artifact_revisions r ON r.artifact_row = a.row_id
    WHERE r.body IS NULL AND a.artifact_id IN (SELECT value FROM json_each(?1)) AND NOT EXISTS (
        SELECT 1 FROM artifact_revisions other JOIN artifacts o ON o.row_id = other.artifact_row
        WHERE other.blob_hash = r.blob_hash AND other.body IS NULL
            AND o.artifact_id NOT IN (SELECT value FROM json_each(?1)))
"""


@dataclass(frozen=True, slots=True)
class WithoutErased:
    """A `BlobAudit` that does not miss what is cited only from what was erased: a copy keeps its reference, and nothing
    keeps the blob. `erased` tells digests in hex; it is asked after faults were found, since an erasure is on record
    before its blobs go."""

    audit: BlobAudit
    erased: Callable[[], frozenset[str]]

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        found = self.audit.faults(referenced)
        while page := list(islice(found, limits.VERIFY_ISSUES_MAX)):
            erased = self.erased()
            yield from (fault for fault in page if fault.name not in erased)


def recorded_by_now(store: ObjectStore, tenant: str, loop: asyncio.AbstractEventLoop) -> list[Erasure]:
    """As `recorded`, for a thread beside the event loop that owns the store's connections."""
    return asyncio.run_coroutine_threadsafe(recorded(store, tenant), loop).result()


def named_blobs(known: Sequence[Erasure]) -> frozenset[str]:
    """Digests in hex of what nothing else cited when it was erased. Other pasts may need it for something else."""
    return frozenset(digest for erasure in known for digest in erasure.blobs)


def only_erased(database: Path, known: Sequence[Erasure]) -> frozenset[str]:
    """Digests in hex of the blobs that a finished copy cites from erased artifacts and from no other. Raises
    `apsw.Error`."""
    erased = sorted({entity for erasure in known for entity in erasure.entities})
    with closing(open_copy(database)) as db:
        rows: apsw.Cursor = db.execute(_ONLY_ERASED, (orjson.dumps(erased).decode(),))
        return frozenset(bytes(digest).hex() for (digest,) in rows)


async def only_erased_in(store: ObjectStore, backup: BackupRecord, known: Sequence[Erasure]) -> frozenset[str]:
    """As `only_erased`, of a backup whose database is fetched for it. Raises as `fetch_checkpoint`."""
    with TemporaryDirectory(prefix="memoree-") as directory:
        path = Path(directory) / "checkpoint.db"
        await fetch_checkpoint(store, backup, path)
        return await asyncio.to_thread(only_erased, path, known)
