"""Jobs over a data directory (the embedded profile)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import apsw

from memoree.clock import Clock
from memoree.database import quota
from memoree.database.meta import Meta
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.errors import MemoreeError, not_found
from memoree.ids import new_ulid
from memoree.jobs.tenancy import request_of, submitted
from memoree.objects import ObjectStore
from memoree.operations.quota import QUOTA
from memoree.tenants import NotHere

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class EmbeddedTenancy:
    """`memoree.jobs.tenancy.Tenancy` over an open data directory."""

    service: EmbeddedService
    tenant: str = LOCAL_TENANT

    @property
    def store(self) -> ObjectStore:
        return self.service.store

    @property
    def clock(self) -> Clock:
        return self.service.clock

    async def snapshot(self, work: Callable[[apsw.Connection], Result]) -> tuple[Result, Meta]:
        return await asyncio.to_thread(self.service.snapshot, work)

    async def submit(self, operation: str, input: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        reply = await submitted(self.service, self.tenant, operation, input, key)
        result: Mapping[str, Any] = reply.envelope["result"]
        return result


@dataclass(frozen=True, slots=True)
class EmbeddedTenants:
    """`memoree.tenants.Tenants` over a data directory: it has one, which is there from its first opening, and goes with
    the directory."""

    service: EmbeddedService

    async def names(self, *, after: str, limit: int) -> Sequence[str]:
        return [LOCAL_TENANT][:limit] if after < LOCAL_TENANT else []

    async def show(self, tenant: str) -> Mapping[str, Any]:
        _require_local(tenant)
        own, counters = await asyncio.to_thread(self.service.snapshot, quota.read)
        return {
            "tenant": tenant,
            "commit_seq": counters.commit_seq,
            "history": counters.history,
            "schema_version": counters.schema_version,
            "rows": counters.held_rows,
            "bytes": counters.held_bytes,
            "quota": own._asdict(),
        }

    async def create(self, tenant: str, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        if tenant != LOCAL_TENANT:
            raise NotHere(f"a data directory has the one tenant {LOCAL_TENANT}; a deployment has as many as are made")
        if wanted:
            await self.set_quota(tenant, wanted)
        return {**await self.show(tenant), "created": False}

    async def set_quota(self, tenant: str, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        _require_local(tenant)
        reply = await self.service.call(tenant, request_of(QUOTA, wanted, new_ulid()))
        if (error := reply.envelope.get("error")) is not None:
            raise MemoreeError.from_wire(error)
        written = reply.envelope["result"]
        return {"tenant": tenant, "quota": {name: written.get(name) for name in quota.Quota._fields}}

    async def announce_deletion(self, tenant: str) -> Mapping[str, Any]:
        _not_deleted(tenant)

    async def delete(self, tenant: str, confirmation: str) -> Mapping[str, Any]:
        _not_deleted(tenant)


def _require_local(tenant: str) -> None:
    if tenant != LOCAL_TENANT:
        not_found("tenant", tenant)


def _not_deleted(tenant: str) -> NoReturn:
    _require_local(tenant)
    raise NotHere("a data directory is deleted as a whole, by whoever owns it")
