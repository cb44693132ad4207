"""`BlobAudit` that believes what the store lists: every blob is there and has its size. No byte of them is read.

A thousand blobs cost one request, so a backup can afford it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from memoree import limits
from memoree.objects import ObjectInfo, ObjectStore, StoreUnavailable
from memoree.objects.audit import MISSING, BlobFault, BlobRef
from memoree.objects.blobs import blob_prefix


class PresenceAudit:
    """Of one tenant, for a thread beside the event loop that owns the store's connections."""

    def __init__(self, store: ObjectStore, tenant: str, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._tenant = tenant
        self._loop = loop

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        """As `BlobAudit.faults`."""
        wanted = next(referenced, None)
        if wanted is None:
            return
        for info in self._listed():
            digest = info.key.rpartition("/")[2]
            while wanted is not None and wanted.digest.hex() < digest:
                yield BlobFault(wanted.digest.hex(), MISSING)
                wanted = next(referenced, None)
            if wanted is None:
                return
            if wanted.digest.hex() == digest:
                if info.size != wanted.size:
                    yield BlobFault(digest, f"has {info.size} bytes where {wanted.size} were recorded")
                wanted = next(referenced, None)
        while wanted is not None:
            yield BlobFault(wanted.digest.hex(), MISSING)
            wanted = next(referenced, None)

    def _listed(self) -> Iterator[ObjectInfo]:
        listing = self._store.list(blob_prefix(self._tenant))
        while page := asyncio.run_coroutine_threadsafe(_page(listing), self._loop).result(limits.LIST_PAGE_SECONDS_MAX):
            yield from page


async def _page(listing: AsyncIterator[ObjectInfo]) -> list[ObjectInfo]:
    page: list[ObjectInfo] = []
    try:
        async with asyncio.timeout(limits.LIST_PAGE_SECONDS_MAX):
            async for info in listing:
                page.append(info)
                if len(page) == limits.LIST_PAGE_OBJECTS:
                    break
    except TimeoutError as error:
        raise StoreUnavailable(f"no list within {limits.LIST_PAGE_SECONDS_MAX:.0f} s") from error
    return page
