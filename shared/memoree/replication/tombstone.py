"""`deleted/<tenant>.json`: that a tenant was deleted, so that no command still under way brings it to life again.

It is written before anything of the tenant is removed, and stays. Who finds no head looks here before a birth: only
what was sent for the history after the buried one may found the tenant anew, as `tenant.create` is, and restores and
imports may. A tenant founded anew begins in that history, so that whatever was meant for the old one is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from memoree.clock import stored, utc_now
from memoree.errors import Code, MemoreeError, shown
from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed
from memoree.replication import layout

FORMAT = 1


class TenantDeleted(Exception):
    """The tenant is no more, and what was asked for does not found it anew."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """`history` is the newest one that anything of the tenant can be of."""

    tenant: str
    history: int
    deleted_at: str
    format: int = FORMAT

    @property
    def next_history(self) -> int:
        return self.history + 1

    def to_bytes(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, body: bytes, key: str) -> Tombstone:
        """Raises `INTEGRITY_ERROR` for a damaged one, and `CONFIG_ERROR` for one of a later format."""
        try:
            document = orjson.loads(body)
            if document["format"] > FORMAT:
                raise MemoreeError(Code.CONFIG_ERROR, f"{key} has format {document['format']}; upgrade this program")
            return cls(**document)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise MemoreeError(Code.INTEGRITY_ERROR, f"{key} is damaged: {error}") from error


async def find(store: ObjectStore, tenant: str) -> Tombstone | None:
    """Raises `StoreUnavailable`, and as `Tombstone.from_bytes`."""
    reading = await _read(store, layout.tombstone_key(tenant))
    return reading[0] if reading is not None else None


async def bury(store: ObjectStore, tenant: str, history: int) -> Tombstone:
    """Say that the tenant is deleted up to that history; an earlier deletion's is never taken back. Raises
    `ObjectStoreError`, and as `Tombstone.from_bytes`."""
    key = layout.tombstone_key(tenant)
    while True:
        present = await _read(store, key)
        if present is not None:
            history = max(history, present[0].history)
        new = Tombstone(tenant, history, stored(utc_now()))
        try:
            if present is None:
                await store.put(key, new.to_bytes(), if_absent=True)
            else:
                await store.put(key, new.to_bytes(), if_match=present[1])
        except PreconditionFailed:
            continue  # two deletions at once
        return new


def deleted(tenant: str) -> MemoreeError:
    return MemoreeError(
        Code.FORBIDDEN,
        f"tenant {shown(tenant)} was deleted; nothing can be written to it unless an operator creates it anew",
        details={"reason": "tenant_deleted"},
    )


async def _read(store: ObjectStore, key: str) -> tuple[Tombstone, str] | None:
    try:
        found = await store.get(key)
    except ObjectMissing:
        return None
    assert found is not None, "a GET without a condition always has a body"
    return Tombstone.from_bytes(found.body, key), found.info.etag
