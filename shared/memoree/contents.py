"""The bytes of a revision as a door streams them: found in one snapshot, read without holding on to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from memoree import limits
from memoree.database.artifacts import Revision
from memoree.objects import ObjectStore
from memoree.objects.streaming import blob_windows


@dataclass(frozen=True, slots=True)
class RevisionContent:
    """`body` holds the bytes where they are no blob. `snapshot_commit_seq` is the state the revision was found in."""

    store: ObjectStore
    tenant: str
    revision: Revision
    body: bytes | None
    snapshot_commit_seq: int

    @property
    def digest(self) -> str:
        """64 hex digits."""
        return self.revision.blob_hash.hex()

    @property
    def size(self) -> int:
        return self.revision.size_bytes

    async def windows(self, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """Bytes `start` to `stop` (exclusive). All of them are proven before the last window comes; nothing proves a
        part. Raises `INTEGRITY_ERROR`, before the first window where the blob is missing or of another size."""
        if self.body is not None:
            yield self.body[start:stop]
            return
        found = blob_windows(
            self.store, self.tenant, self.digest, self.size, start, stop, window_bytes=limits.DOWNLOAD_WINDOW_BYTES
        )
        async with aclosing(found):
            async for window in found:
                yield window
