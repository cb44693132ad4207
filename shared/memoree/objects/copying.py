"""Blobs from one place to another: proven on the way, in bounded memory, and shown whole or not at all."""

from __future__ import annotations

from contextlib import aclosing
from typing import NamedTuple

from memoree import limits
from memoree.objects import ObjectStore
from memoree.objects.audit import BlobRef
from memoree.objects.blobs import blob_key
from memoree.objects.streaming import blob_windows


class Place(NamedTuple):
    """One tenant's objects in one store."""

    store: ObjectStore
    tenant: str


async def copy_blob(source: Place, target: Place, ref: BlobRef) -> None:
    """Write the blob, also where there is one: what stands there may be damaged. Raises `INTEGRITY_ERROR` when the
    source has none, or another; then the target is left as it was. Raises `StoreUnavailable`."""
    digest = ref.digest.hex()
    chunks = blob_windows(
        source.store, source.tenant, digest, ref.size, 0, ref.size, window_bytes=limits.BACKUP_WINDOW_BYTES
    )
    async with aclosing(chunks):
        await target.store.put_stream(blob_key(target.tenant, digest), chunks, size=ref.size)
