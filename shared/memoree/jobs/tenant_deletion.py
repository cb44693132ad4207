"""Deleting a tenant: everything below its prefix, in both buckets (field fault 19). What is left is a tombstone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from memoree import limits
from memoree.errors import Code, MemoreeError, not_found
from memoree.ids import new_ulid
from memoree.objects import ObjectStore
from memoree.objects.removal import Removal, remove_all
from memoree.replication import layout, tombstone
from memoree.replication.head import HeadFile, HeadLost, HeadReading

RENEWALS_PER_LEASE = 3


class DeletionSite(Protocol):
    """What a deletion needs of a deployment; a `JobSite` has it."""

    @property
    def store(self) -> ObjectStore: ...

    @property
    def second(self) -> ObjectStore | None: ...

    @property
    def lease_ttl_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Buckets:
    """A `DeletionSite` of these alone."""

    store: ObjectStore
    second: ObjectStore | None
    lease_ttl_seconds: float


async def delete_tenant(site: DeletionSite, tenant: str) -> dict[str, Any]:
    """Remove every object once the tombstone is there, head last: as long as it is there, a broken-off run is no damage
    that anybody could take for a lost head. Until then the tenant's lease is held, and what a reign that asks for none
    made meanwhile goes too. Objects that could not be removed are told, not raised. Raises `NOT_FOUND` for a tenant
    that has none, `TRANSPORT_ERROR` while a writer is faster, `StoreUnavailable`, and `INTEGRITY_ERROR` for a damaged
    head."""
    stores = [site.store] if site.second is None else [site.store, site.second]
    if not [key for store in stores async for key in _keys(store, tenant)]:
        not_found("tenant", tenant)
    head = HeadFile(site.store, layout.tenant_prefix(tenant))
    removal = Removal()
    for _ in range(limits.JOB_CLAIM_TRIES_MAX):
        with suppress(HeadLost):
            await _remove_fenced(site, tenant, head, removal)
            break
    else:
        raise _outrun("some of the tenant was removed; the same command goes on")
    if not removal.failed:
        removal.include(await remove_all(site.store, [head.key]))
    if site.second is not None:
        removal.include(await remove_all(site.second, _keys(site.second, tenant)))
    return await _told(stores, tenant, removal)


async def _remove_fenced(site: DeletionSite, tenant: str, head: HeadFile, removal: Removal) -> None:
    """Remove everything but head, and tell `removal`. Raises `HeadLost` when somebody took the tenant over."""
    ttl_seconds = site.lease_ttl_seconds
    fenced = await _fence(head)
    await tombstone.bury(site.store, tenant, 0 if fenced is None else fenced[1].head.history)
    if fenced is None:
        removal.include(await remove_all(site.store, _keys(site.store, tenant, but=head.key)))
        return
    taken_from, claim = fenced
    async with _held(head, claim, ttl_seconds):
        removal.include(await remove_all(site.store, _keys(site.store, tenant, but=head.key)))
        if (held_seconds := taken_from.lease_seconds_left(ttl_seconds)) > 0:
            await asyncio.sleep(held_seconds)  # until then a writer that lost its reign may not have noticed
            removal.include(await remove_all(site.store, _keys(site.store, tenant, but=head.key)))


async def _fence(head: HeadFile) -> tuple[HeadReading, HeadReading] | None:
    """From now on no writer can commit. Returns head as it was and as it is; `None` where there is none."""
    for _ in range(limits.JOB_CLAIM_TRIES_MAX):
        if (reading := await head.read()) is None:
            return None
        claim = replace(reading.head, epoch=reading.head.epoch + 1, owner=new_ulid(), released_at=None)
        with suppress(HeadLost):
            return reading, await head.swap(reading, claim)
    raise _outrun("nothing was removed, stop what writes to the tenant first")


@asynccontextmanager
async def _held(head: HeadFile, claim: HeadReading, ttl_seconds: float) -> AsyncIterator[None]:
    """Keep the lease, so that no writer takes over what is being removed. Raises `HeadLost` at the end if somebody
    did."""

    async def renew() -> None:
        reading = claim
        while True:
            await asyncio.sleep(ttl_seconds / RENEWALS_PER_LEASE)
            reading = await head.swap(reading, reading.head)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    present = await head.read()
    if present is not None and present.head.owner != claim.head.owner:
        raise HeadLost(f"head was moved by {present.head.owner}")


def _outrun(what: str) -> MemoreeError:
    return MemoreeError(
        Code.TRANSPORT_ERROR, f"the tenant's writer was faster every time; {what}", retry_after_seconds=1.0
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
