"""Which blobs of a backup nobody needs any more, since everything in it that cites them was erased (design §8).

Digests tell nothing by themselves: what one erased artifact and another, kept one have in common is one blob.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import orjson

from memoree.backup.database import open_copy
from memoree.backup.record import BackupRecord, fetch_checkpoint
from memoree.erasures import Erasure
from memoree.objects import ObjectStore

_ONLY_ERASED = """
    SELECT DISTINCT r.blob_hash FROM artifacts a JOIN artifact_revisions r ON r.artifact_row = a.row_id
    WHERE r.body IS NULL AND a.artifact_id IN (SELECT value FROM json_each(?1)) AND NOT EXISTS (
        SELECT 1 FROM artifact_revisions other JOIN artifacts o ON o.row_id = other.artifact_row
        WHERE other.blob_hash = r.blob_hash AND other.body IS NULL
            AND o.artifact_id NOT IN (SELECT value FROM json_each(?1)))
"""


def named_blobs(recorded: Sequence[Erasure]) -> frozenset[str]:
    """Digests in hex of what nothing else cited when it was erased. Other pasts may need it for something else."""
    return frozenset(digest for erasure in recorded for digest in erasure.blobs)


def only_erased(database: Path, recorded: Sequence[Erasure]) -> frozenset[str]:
    """Digests in hex of the blobs that a finished copy cites from erased artifacts and from no other. Raises
    `apsw.Error`."""
    erased = sorted({entity for erasure in recorded for entity in erasure.entities})
    with closing(open_copy(database)) as db:
        rows: apsw.Cursor = db.execute(_ONLY_ERASED, (orjson.dumps(erased).decode(),))
        return frozenset(bytes(digest).hex() for (digest,) in rows)


async def only_erased_in(store: ObjectStore, backup: BackupRecord, recorded: Sequence[Erasure]) -> frozenset[str]:
    """As `only_erased`, of a backup whose database is fetched for it. Raises as `fetch_checkpoint`."""
    with TemporaryDirectory(prefix="memoree-") as directory:
        path = Path(directory) / "checkpoint.db"
        await fetch_checkpoint(store, backup, path)
        return await asyncio.to_thread(only_erased, path, recorded)
