"""Removing what commands, uploads, backups and checks left that nobody can use any more (design §5.2, §7). Everything
here has a lifetime, and whoever made it removes it first, unless that process died.

Where buckets have lifecycle rules they do most of this too; not all stores have them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from memoree import limits
from memoree.backup.retention import remove_unfinished
from memoree.clock import Clock
from memoree.objects import ObjectStore
from memoree.objects.removal import Removal, remove_all
from memoree.objects.selftest import KEY_PREFIX
from memoree.reader.service import CANARY_PREFIX
from memoree.replication import layout
from memoree.uploads import WRITES_END_WITHIN, Uploads

FOLDERS = ("commands", "tries", "answers")
"""Of a tenant: parked commands, marks of risky applications, answers too large for one response."""


@dataclass(slots=True)
class Sweep:
    """How many objects of each kind were removed, and what could not be."""

    removed: dict[str, int] = field(default_factory=dict)
    removal: Removal = field(default_factory=Removal)

    def add(self, kind: str, removal: Removal) -> None:
        self.removed[kind] = self.removed.get(kind, 0) + removal.removed
        self.removal.include(removal)

    def to_wire(self) -> dict[str, Any]:
        return {
            **{f"deleted_{kind}": count for kind, count in self.removed.items()},
            "failed_deletes": self.removal.failed,
            "failures": self.removal.failures,
        }


async def sweep_tenant(store: ObjectStore, tenant: str, clock_now: Clock) -> Sweep:
    """One run over a tenant. Raises `StoreUnavailable`."""
    sweep = Sweep()
    prefix = layout.tenant_prefix(tenant)
    for folder in FOLDERS:
        sweep.add(folder, await _remove_old(store, f"{prefix}{folder}/", clock_now()))
    uploads = await Uploads(store, clock_now, through_service=False).sweep(tenant)
    sweep.add("uploads", Removal(removed=uploads))
    sweep.add("unfinished_backups", await remove_unfinished(store, tenant))
    return sweep


async def sweep_site(store: ObjectStore, clock_now: Clock) -> Sweep:
    """One run over what belongs to no tenant: canaries, and parts of large objects whose writers died. Raises
    `StoreUnavailable`."""
    sweep = Sweep()
    for prefix in (CANARY_PREFIX, f"{KEY_PREFIX}/"):
        sweep.add("canaries", await _remove_old(store, prefix, clock_now()))
    aborted = await store.abort_unfinished(layout.TENANTS_PREFIX, before=clock_now() - WRITES_END_WITHIN)
    sweep.add("unfinished_writes", Removal(removed=aborted))
    return sweep


async def _remove_old(store: ObjectStore, prefix: str, now: datetime) -> Removal:
    before = now - timedelta(seconds=limits.LEFTOVERS_SECONDS_MIN)

    async def old() -> AsyncIterator[str]:
        async for info in store.list(prefix):
            if info.last_modified < before:
                yield info.key

    return await remove_all(store, old())
