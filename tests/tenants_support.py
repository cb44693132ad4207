"""Tenants without a deployment: what doors ask of them, and answers as a deployment's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memoree.errors import Code, MemoreeError, not_found
from memoree.tenants import NotHere

CONFIRMATION = "c0ffee"


class FakeTenants:
    """`asked` is everything that would have changed something."""

    def __init__(self, *names: str, deletes: bool = True) -> None:
        self.there = sorted(names)
        self.deletes = deletes
        self.complete = True
        self.asked: list[tuple[Any, ...]] = []

    async def names(self, *, after: str, limit: int) -> Sequence[str]:
        return [name for name in self.there if name > after][:limit]

    async def show(self, tenant: str) -> Mapping[str, Any]:
        if tenant not in self.there:
            not_found("tenant", tenant)
        return {"tenant": tenant, "rows": 3, "bytes": 50}

    async def create(self, tenant: str, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        created = tenant not in self.there
        self.there.append(tenant)
        self.asked.append(("create", tenant, dict(wanted)))
        return {**await self.show(tenant), "created": created}

    async def set_quota(self, tenant: str, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        await self.show(tenant)
        self.asked.append(("quota", tenant, dict(wanted)))
        return {"tenant": tenant, "quota": dict(wanted)}

    async def announce_deletion(self, tenant: str) -> Mapping[str, Any]:
        if not self.deletes:
            raise NotHere("`memoree tenant delete` does it")
        return {**await self.show(tenant), "confirmation": CONFIRMATION}

    async def delete(self, tenant: str, confirmation: str) -> Mapping[str, Any]:
        if not self.deletes:
            raise NotHere("`memoree tenant delete` does it")
        await self.show(tenant)
        if confirmation != CONFIRMATION:
            raise MemoreeError(Code.REVISION_CONFLICT, "no", details={"reason": "confirmation_required"})
        self.asked.append(("delete", tenant))
        return {"tenant": tenant, "complete": self.complete}
