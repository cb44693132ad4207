"""Blobs for code that runs in threads, fetched by the event loop that owns the store's connections."""

from __future__ import annotations

import asyncio
import threading

from memoree.objects import StoreUnavailable
from memoree.objects.blobs import BlobStore

BLOB_READ_SECONDS_MAX = 60.0


class LoopBlobs:
    """Verified blob reads for code in threads, done by the event loop that owns the store's connections, and in whose
    thread this is made."""

    def __init__(self, blobs: BlobStore, loop: asyncio.AbstractEventLoop) -> None:
        self._blobs = blobs
        self._loop = loop
        self._loop_thread = threading.get_ident()

    def read(self, digest: bytes, size: int) -> bytes:
        """Raises `INTEGRITY_ERROR`, and `StoreUnavailable` also when the bytes take too long."""
        assert threading.get_ident() != self._loop_thread, "the loop would wait for itself"
        reading = asyncio.run_coroutine_threadsafe(self._blobs.read(digest.hex(), size=size), self._loop)
        try:
            return reading.result(BLOB_READ_SECONDS_MAX)
        except TimeoutError:
            reading.cancel()
            raise StoreUnavailable(f"blob {digest.hex()} did not arrive in {BLOB_READ_SECONDS_MAX:g} s") from None
