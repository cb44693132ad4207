"""A lease on an object: of several processes that want to do the same, one does (design §5.3, for less).

It saves work and protects nothing: what is done under it must be harmless when two do it. Ages are judged by the
store's clock. Whoever does not need it lets it go, so that it costs no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import orjson

from memoree.ids import new_ulid
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, PreconditionFailed, StoredObject

TTL_SECONDS = 60.0

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class LeaseTaken(Exception):
    """Another process holds the lease, or took it over."""


class ObjectLease:
    """On the object `key`, for one process. Every method may raise `ObjectStoreError`."""

    def __init__(self, store: ObjectStore, key: str, *, ttl_seconds: float = TTL_SECONDS) -> None:
        self._store = store
        self._key = key
        self._ttl_seconds = ttl_seconds
        self._owner = new_ulid()
        self._writes = 0
        self._etag = ""

    async def during(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Take the lease, do the work while it is renewed, and let go of it. Raises `LeaseTaken`, without having begun
        the work or having cancelled it, and what the work raises."""
        try:
            await self._take()
        except BaseException:
            work.close()
            raise
        working = asyncio.ensure_future(work)
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                renewing.result()
            return working.result()
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            await self._let_go()

    async def _take(self) -> None:
        try:
            found = await self._store.get(self._key)
        except ObjectMissing:
            await self._write(if_absent=True)
            return
        assert found is not None, "a GET without a condition always has a body"
        if not _is_free(found, self._ttl_seconds):
            raise LeaseTaken(f"{self._key} is held by another process")
        self._etag = found.info.etag
        await self._write()

    async def _renew(self) -> None:
        """Raises `LeaseTaken` when somebody else took it, or nothing was heard of the store for as long as it holds."""
        loop = asyncio.get_running_loop()
        renewed_at = loop.time()
        while True:
            await asyncio.sleep(self._ttl_seconds / 3)
            try:
                await self._write()
                renewed_at = loop.time()
            except ObjectStoreError as error:
                log.warning("the lease %s could not be renewed: %s", self._key, error)
                if loop.time() - renewed_at > self._ttl_seconds:
                    raise LeaseTaken(f"{self._key} could not be renewed") from error

    async def _let_go(self) -> None:
        """One that cannot be let go of runs out."""
        try:
            await self._write(released=True)
        except (ObjectStoreError, LeaseTaken) as error:
            log.info("the lease %s is left to run out: %s", self._key, error)

    async def _write(self, *, if_absent: bool = False, released: bool = False) -> None:
        """The number makes every body, and with it every ETag, another one. A write whose answer was lost took effect
        if its body is there."""
        self._writes += 1
        body = orjson.dumps({"owner": self._owner, "write": self._writes, "released": released})
        try:
            condition: dict[str, Any] = {"if_absent": True} if if_absent else {"if_match": self._etag}
            self._etag = await self._store.put(self._key, body, **condition)
        except ObjectStoreError as error:
            found = await self._store.get(self._key)
            if found is not None and found.body == body:
                self._etag = found.info.etag
            elif isinstance(error, PreconditionFailed):
                raise LeaseTaken(f"{self._key} was taken by another process") from error
            else:
                raise


def _is_free(found: StoredObject, ttl_seconds: float) -> bool:
    """A body that says nothing is as good as none once it is old."""
    try:
        released = bool(orjson.loads(found.body)["released"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        released = False
    return released or found.date - found.info.last_modified > timedelta(seconds=ttl_seconds)
