"""The tokens file as an object of an S3 store, changed by compare-and-swap."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, PreconditionFailed, StoreUnavailable
from memoree.tokens.document import Document, encode
from memoree.tokens.places import Access, TokensObject
from memoree.tokens.remote import Fetched, RemoteSource, unusable
from memoree.tokens.source import Change, decoded

POLL_SECONDS = 2.0
STALE_SECONDS_MAX = 300.0
PUT_SECONDS_MAX = 5.0
CHANGE_SECONDS_MAX = 10.0
PAUSE_SECONDS_MAX = 0.2
"""Between two tries of a change, drawn anew each time: two that collide must not do so for ever."""

OpenStore = Callable[[], AbstractAsyncContextManager[ObjectStore]]


class ObjectSource(RemoteSource):
    """`open_store` opens the bucket of the place."""

    every_seconds = POLL_SECONDS
    stale_seconds_max = STALE_SECONDS_MAX

    def __init__(self, place: TokensObject, open_store: OpenStore | None = None) -> None:
        super().__init__()
        self._key = place.key
        self._open_store = open_store or (lambda: _opened_bucket(place.bucket, place.access))
        self._store: ObjectStore

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with self._open_store() as self._store:
            await self.refresh()
            yield

    async def fetch(self, version: str | None) -> Fetched | None:
        found = await self._store.get(self._key, if_none_match=version)
        return None if found is None else Fetched(found.info.etag, found.body)

    async def read(self) -> Document:
        try:
            return (await self._stored())[0]
        except ObjectStoreError as error:
            raise unusable(error) from error

    async def update(self, change: Change) -> None:
        try:
            async with asyncio.timeout(CHANGE_SECONDS_MAX):
                await self._update_until_done(change)
        except ObjectStoreError as error:
            raise unusable(error) from error
        except TimeoutError:
            message = "the tokens file could not be changed in time; whether it was is unknown: list the tokens"
            raise MemoreeError(Code.TRANSPORT_ERROR, message) from None
        await self.refresh()

    async def _update_until_done(self, change: Change) -> None:
        while True:
            if await self._updated(change):
                return
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS_MAX))  # noqa: S311 - to collide less, not to hide

    async def _updated(self, change: Change) -> bool:
        """One try. After one whose outcome is unknown, or that came too late, the object itself says what is left to
        do."""
        try:
            document, etag = await self._stored()
            if (changed := change(document)) == document:
                return True
            await self._store.put(
                self._key, encode(changed), if_match=etag, if_absent=etag is None, timeout_seconds=PUT_SECONDS_MAX
            )
        except (PreconditionFailed, StoreUnavailable):
            return False
        return True

    async def _stored(self) -> tuple[Document, str | None]:
        """The document and its ETag; without an object it holds no token."""
        try:
            found = await self._store.get(self._key)
        except ObjectMissing:
            return {}, None
        assert found is not None, "it was asked for whatever its version is"
        return decoded(found.body), found.info.etag


def _opened_bucket(bucket: str, access: Access) -> AbstractAsyncContextManager[ObjectStore]:
    from memoree.objects.s3 import S3Settings, S3Store  # slow to import, and a tokens file is mostly a file

    return S3Store(
        S3Settings(bucket, access.endpoint_url, access.region, access.access_key_id, access.secret_access_key)
    )
