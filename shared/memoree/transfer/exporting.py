"""Writing a tenant into one archive, from one state of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import apsw
from blake3 import blake3

from memoree.database import condemned, meta
from memoree.database.integrity import Sum
from memoree.erasures import Erasure, recorded
from memoree.jobs.tenancy import Tenancy
from memoree.objects import ObjectMissing, OutOfRange, StoreUnavailable
from memoree.objects.audit import BlobRef
from memoree.objects.blobs import blob_key, check_digest, check_size, missing
from memoree.transfer.archive import HEADER_NAME, ArchiveWriter, Header
from memoree.transfer.tables import exported_tables
from memoree.verification.store import referenced_blobs

PIECE_BYTES = 4 * 1024 * 1024
PIECE_SECONDS_MAX = 60.0

BlobPieces = Callable[[BlobRef], Iterator[bytes]]
Progress = Callable[[int, int], None]
"""How many bytes of blobs are written, and how many there are."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Exported:
    commit_seq: int
    rows: int
    blobs: int
    size_bytes: int


async def export_tenant(tenancy: Tenancy, file: BinaryIO, progress: Progress = lambda done, total: None) -> Exported:
    """Write everything a tenant holds, as of one commit that is no older than this call. Writers go on meanwhile.

    Raises `INTEGRITY_ERROR` for a blob that is missing or damaged, `ObjectStoreError`, `OSError`; the file is no whole
    export then.
    """
    loop = asyncio.get_running_loop()
    blobs = _LoopPieces(tenancy, loop)
    erasures = await recorded(tenancy.store, tenancy.tenant)
    exported, _ = await tenancy.snapshot(lambda db: write_archive(db, blobs.of, erasures, file, progress))
    return exported


def write_archive(
    db: apsw.Connection, blobs: BlobPieces, erasures: Sequence[Erasure], file: BinaryIO, progress: Progress
) -> Exported:
    """`db` must show one state throughout."""
    counters, tables = meta.read(db), exported_tables(db)
    blob_count, blob_bytes = _totals(db)
    header = Header(
        schema_version=counters.schema_version,
        commit_seq=counters.commit_seq,
        hlc=counters.hlc,
        integrity=_integrity(db, counters).hex(),
        tables={table.name: table.count(db) for table in tables},
        erasures=len(erasures),
        blobs=blob_count,
        blob_bytes=blob_bytes,
    )
    archive = ArchiveWriter(file)
    archive.add(HEADER_NAME, header.to_bytes())
    for erasure in erasures:
        archive.add(f"erasures/{erasure.erasure_id}.json", erasure.to_bytes())
    for table in tables:
        for number, part in enumerate(table.parts(db), start=1):
            archive.add(f"tables/{table.name}/{number:06}.jsonl", part)
    done = 0
    for ref in referenced_blobs(db):
        archive.add_pieces(f"blobs/{ref.digest.hex()}", ref.size, blobs(ref))
        done += ref.size
        progress(done, blob_bytes)
    archive.close()
    return Exported(counters.commit_seq, sum(header.tables.values()), blob_count, archive.bytes_written)


def _integrity(db: apsw.Connection, counters: meta.Meta) -> bytes:
    """Of what an export carries, which is everything that is counted but collections under way."""
    carried = Sum(counters.integrity)
    for entry in condemned.entries(db):
        carried.remove(entry)
    return carried.to_bytes()


def _totals(db: apsw.Connection) -> tuple[int, int]:
    count = size = 0
    for ref in referenced_blobs(db):
        count, size = count + 1, size + ref.size
    return count, size


class _LoopPieces:
    """Blobs in pieces for a thread, fetched by the loop that owns the store's connections."""

    def __init__(self, tenancy: Tenancy, loop: asyncio.AbstractEventLoop) -> None:
        self._tenancy = tenancy
        self._loop = loop

    def of(self, ref: BlobRef) -> Iterator[bytes]:
        digest, hasher = ref.digest.hex(), blake3()
        key = blob_key(self._tenancy.tenant, digest)
        for start in range(0, ref.size, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, ref.size)
            try:
                piece = self._await(self._tenancy.store.get_range(key, start, stop))
            except (ObjectMissing, OutOfRange) as error:
                raise missing(digest) from error
            check_size(digest, piece.object_size, ref.size)
            hasher.update(piece.body)
            if stop == ref.size:
                check_digest(digest, hasher.hexdigest(), ref.size)
            yield piece.body

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(PIECE_SECONDS_MAX)
        except TimeoutError:
            running.cancel()
            raise StoreUnavailable(f"a piece of a blob did not arrive in {PIECE_SECONDS_MAX:g} s") from None
