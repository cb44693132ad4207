"""Removing the prefixes of old epochs, once no point in time that can be asked for needs them (design §8).

The past is followed from head's prefix back to the reign that was there when the point-in-time window began. Prefixes
of lower numbers hold nothing but what was before; a higher number may be a takeover's that is under way. Entries of the
ledger stay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from memoree import clock, limits
from memoree.objects import ObjectStore
from memoree.objects.removal import Removal, remove_all
from memoree.replication import layout, lineage
from memoree.replication.head import HeadFile


@dataclass(slots=True)
class Cleaning:
    """`prefixes` are those that are gone now, `removal` counts their objects. `kept_from` is the number of the oldest
    epoch that is needed; `None` as long as all of them are."""

    tenant: str
    kept_from: int | None
    prefixes: list[str] = field(default_factory=list)
    removal: Removal = field(default_factory=Removal)

    def to_wire(self) -> dict[str, Any]:
        return {
            "tenant": self.tenant,
            "kept_from_epoch": self.kept_from,
            "deleted_prefixes": self.prefixes,
            "deleted_objects": self.removal.removed,
            "failed_deletes": self.removal.failed,
            "failures": self.removal.failures,
        }


async def clean(store: ObjectStore, tenant: str, now: datetime, *, point_in_time_seconds: float) -> Cleaning:
    """One run; a broken off one is finished by the next. Raises `StoreUnavailable`, and `INTEGRITY_ERROR` for a damaged
    head or ledger: then nothing was removed."""
    window = timedelta(seconds=point_in_time_seconds + limits.CLOCK_SKEW_SECONDS_MAX)
    kept_from = await _oldest_needed(store, tenant, clock.stored(now - window))
    cleaning = Cleaning(tenant, kept_from)
    if kept_from is None:
        return cleaning
    folder = f"{layout.tenant_prefix(tenant)}ltx/"
    for prefix in sorted([name async for name in store.children(folder)]):
        epoch = layout.epoch_in(prefix.removeprefix(layout.tenant_prefix(tenant)))
        if epoch is None or epoch >= kept_from:
            continue
        removal = await remove_all(store, _keys(store, prefix))
        cleaning.removal.include(removal)
        if removal.removed and not removal.failed:
            cleaning.prefixes.append(prefix)
    return cleaning


async def _oldest_needed(store: ObjectStore, tenant: str, window_began: str) -> int | None:
    """The number of the reign that was head's when the window began; `None` when none of those known began before."""
    reading = await HeadFile(store, layout.tenant_prefix(tenant)).read()
    if reading is None:
        return None
    async with aclosing(lineage.stretches(store, tenant, reading.head)) as stretches:
        async for stretch in stretches:
            if stretch.entry.at < window_began:
                return stretch.epoch
    return None


async def _keys(store: ObjectStore, prefix: str) -> AsyncIterator[str]:
    async for info in store.list(prefix):
        yield info.key
