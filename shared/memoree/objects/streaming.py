"""Large objects in bounded memory: one window at a time, the next one fetched while this one is used.

A window is a request of its own. So a slow consumer holds no connection to the store, a broken one is repeated where it
broke, and no request outlives the store's patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from blake3 import blake3

from memoree.objects import ObjectMissing, ObjectRange, ObjectStore, OutOfRange
from memoree.objects.blobs import blob_key, check_digest, check_size, missing


async def windows(
    store: ObjectStore, key: str, start: int, stop: int, *, window_bytes: int, if_match: str | None = None
) -> AsyncGenerator[ObjectRange, None]:
    """Bytes `start` to `stop` (exclusive, more than `start`) in order. Close it (`aclosing`) when leaving early.

    Raises what `ObjectStore.get_range` does.
    """

    def fetched(position: int) -> asyncio.Task[ObjectRange]:
        end = min(position + window_bytes, stop)
        return asyncio.create_task(store.get_range(key, position, end, if_match=if_match))

    ahead = fetched(start)
    try:
        for following in range(start + window_bytes, stop, window_bytes):
            window = await ahead
            ahead = fetched(following)
            yield window
        yield await ahead
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)


async def blob_windows(
    store: ObjectStore, tenant: str, digest: str, size: int, start: int, stop: int, *, window_bytes: int
) -> AsyncGenerator[bytes, None]:
    """Bytes `start` to `stop` of a blob of `size` bytes.

    All of a blob is hashed on the way, and its last window is held back until the digest is proven; a part of one
    cannot be. Raises `INTEGRITY_ERROR`, for a blob that is missing or of another size before the first window.
    """
    hasher = blake3() if (start, stop) == (0, size) else None
    found = windows(store, blob_key(tenant, digest), start, stop, window_bytes=window_bytes)
    position = start
    try:
        async with aclosing(found):
            async for window in found:
                check_size(digest, window.object_size, size)
                position += len(window.body)
                if hasher is not None:
                    hasher.update(window.body)
                    if position == stop:
                        check_digest(digest, hasher.hexdigest(), size)
                yield window.body
    except ObjectMissing as error:
        raise missing(digest) from error
    except OutOfRange:
        check_size(digest, position, size)
        raise
