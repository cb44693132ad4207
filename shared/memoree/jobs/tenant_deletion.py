"""Deleting a tenant: everything below its prefix, in both buckets (field fault 19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from memoree import limits
from memoree.errors import Code, MemoreeError, not_found
from memoree.ids import new_ulid
from memoree.jobs.replicated import JobSite
from memoree.objects import ObjectStore
from memoree.objects.removal import Removal, remove_all
from memoree.replication import layout
from memoree.replication.head import HeadFile, HeadLost


async def delete_tenant(site: JobSite, tenant: str) -> dict[str, Any]:
    """Remove every object, head last: as long as it is there, a broken-off run is no damage that anybody could take for
    a lost head. Objects that could not be removed are told, not raised. Raises `NOT_FOUND` for a tenant that has none,
    `TRANSPORT_ERROR` while a writer is faster, `StoreUnavailable`, and `INTEGRITY_ERROR` for a damaged head."""
    stores = [site.store] if site.second is None else [site.store, site.second]
    if not [key for store in stores async for key in _keys(store, tenant)]:
        not_found("tenant", tenant)
    head = HeadFile(site.store, layout.tenant_prefix(tenant))
    held_seconds = await _fence(head, site.settings.lease_ttl_seconds)
    removal = await remove_all(site.store, _keys(site.store, tenant, but=head.key))
    if held_seconds > 0:
        await asyncio.sleep(held_seconds)  # until then a writer that lost its reign may not have noticed
        removal.include(await remove_all(site.store, _keys(site.store, tenant, but=head.key)))
    if not removal.failed:
        removal.include(await remove_all(site.store, [head.key]))
    if site.second is not None:
        removal.include(await remove_all(site.second, _keys(site.second, tenant)))
    return await _told(stores, tenant, removal)


async def _fence(head: HeadFile, ttl_seconds: float) -> float:
    """From now on no writer can commit. Returns for how long one may still upload, in seconds."""
    for _ in range(limits.JOB_CLAIM_TRIES_MAX):
        if (reading := await head.read()) is None:
            return 0.0
        claim = replace(reading.head, epoch=reading.head.epoch + 1, owner=new_ulid(), released_at=None)
        with suppress(HeadLost):
            await head.swap(reading, claim)
            return reading.lease_seconds_left(ttl_seconds)
    raise MemoreeError(
        Code.TRANSPORT_ERROR,
        "the tenant's writer was faster every time; nothing was removed, stop what writes to the tenant first",
        retry_after_seconds=1.0,
    )


async def _told(stores: list[ObjectStore], tenant: str, removal: Removal) -> dict[str, Any]:
    left = [key for store in stores async for key in _keys(store, tenant)]
    return {
        "tenant": tenant,
        "complete": not left,
        "deleted_objects": removal.removed,
        "objects_left": len(left),
        "failures": removal.failures,
    }


async def _keys(store: ObjectStore, tenant: str, *, but: str | None = None) -> AsyncIterator[str]:
    async for info in store.list(layout.tenant_prefix(tenant)):
        if info.key != but:
            yield info.key
