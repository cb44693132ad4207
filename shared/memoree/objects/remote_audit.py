"""`BlobAudit` over an object store, for a thread beside the event loop that owns the store's connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from blake3 import blake3

from memoree import limits
from memoree.objects import ObjectMissing, ObjectRange, ObjectStore, OutOfRange, StoreUnavailable
from memoree.objects.audit import MISSING, BlobFault, BlobRef, difference
from memoree.objects.blobs import blob_key

PIECE_SECONDS_MAX = 60.0


class RemoteAudit:
    """The loop fetches a few pieces ahead; the thread hashes, which needs no interpreter lock."""

    def __init__(self, store: ObjectStore, tenant: str, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._tenant = tenant
        self._loop = loop

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        """As `BlobAudit.faults`."""
        hasher, damaged = blake3(), b""
        for piece in self._read_ahead(referenced):
            digest = piece.ref.digest.hex()
            if damaged == piece.ref.digest:
                continue
            fault: BlobFault | None
            try:
                got = piece.bytes_read()
            except (ObjectMissing, OutOfRange):
                fault = BlobFault(digest, MISSING)
            else:
                hasher.update(got.body)
                if piece.stop < piece.ref.size and got.object_size == piece.ref.size:
                    continue
                fault = difference(digest, hasher.hexdigest(), got.object_size, piece.ref.size)
            hasher = blake3()
            if fault is not None:
                damaged = piece.ref.digest
                yield fault

    def _read_ahead(self, referenced: Iterator[BlobRef]) -> Iterator[_Piece]:
        ahead: deque[_Piece] = deque()
        try:
            for ref in referenced:
                for start in range(0, ref.size, limits.VERIFY_PIECE_BYTES):
                    ahead.append(self._asked_for(ref, start))
                    if len(ahead) > limits.VERIFY_PIECES_AHEAD:
                        yield ahead.popleft()
            while ahead:
                yield ahead.popleft()
        finally:
            for piece in ahead:
                piece.reading.cancel()

    def _asked_for(self, ref: BlobRef, start: int) -> _Piece:
        stop = min(start + limits.VERIFY_PIECE_BYTES, ref.size)
        reading = self._store.get_range(blob_key(self._tenant, ref.digest.hex()), start, stop)
        return _Piece(ref, stop, asyncio.run_coroutine_threadsafe(reading, self._loop))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a blob up to `stop`, on their way."""

    ref: BlobRef
    stop: int
    reading: Future[ObjectRange]

    def bytes_read(self) -> ObjectRange:
        try:
            return self.reading.result(PIECE_SECONDS_MAX)
        except TimeoutError:
            self.reading.cancel()
            message = f"blob {self.ref.digest.hex()} did not arrive in {PIECE_SECONDS_MAX:g} s"
            raise StoreUnavailable(message) from None
