"""Jobs over a replicated deployment (the stack and cloud profiles)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw

from memoree import limits
from memoree.clock import Clock
from memoree.database.meta import Meta
from memoree.errors import MemoreeError
from memoree.jobs.tenancy import submitted
from memoree.jobs.tenant_administration import ReplicatedTenants
from memoree.objects import ObjectStore
from memoree.process_directory import ProcessDirectory
from memoree.reader.service import ReplicatedService
from memoree.replication import layout
from memoree.replication.head import HeadFile
from memoree.settings import StackSettings
from memoree.writer.environment import WriterEnvironment

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ReplicatedTenancy:
    """`memoree.jobs.tenancy.Tenancy` over the replicas and the queue of a service."""

    tenant: str
    store: ObjectStore
    service: ReplicatedService
    clock: Clock

    async def snapshot(self, work: Callable[[apsw.Connection], Result]) -> tuple[Result, Meta]:
        return await self.service.snapshot(self.tenant, work, seconds=limits.JOB_SNAPSHOT_SECONDS_MAX)

    async def submit(self, operation: str, input: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        reply = await submitted(self.service, self.tenant, operation, input, key)
        result: Mapping[str, Any] = reply.envelope["result"]
        return result


@dataclass(frozen=True, slots=True)
class JobSite:
    """A replicated deployment as jobs see it. `writer` is what a job needs that takes a reign of its own; `scratch` is
    this process's directory for files that are gone with it, `second` the bucket where backups are kept once more."""

    settings: StackSettings
    store: ObjectStore
    service: ReplicatedService
    writer: WriterEnvironment
    scratch: ProcessDirectory
    second: ObjectStore | None = None

    @property
    def lease_ttl_seconds(self) -> float:
        return self.settings.lease_ttl_seconds

    @property
    def administration(self) -> ReplicatedTenants:
        return ReplicatedTenants(self.store, self.service, self)

    def tenancy(self, tenant: str) -> ReplicatedTenancy:
        return ReplicatedTenancy(tenant, self.store, self.service, self.writer.clock)

    async def tenants(self) -> AsyncIterator[str]:
        """Every tenant that has objects, in any order. Raises `StoreUnavailable`."""
        async for prefix in self.store.children(layout.TENANTS_PREFIX):
            yield prefix.removeprefix(layout.TENANTS_PREFIX).removesuffix("/")

    async def tenants_with_history(self) -> AsyncIterator[str]:
        """Those to which anything was ever written, or that lost their head: an upload alone makes no tenant."""
        async for tenant in self.tenants():
            head = HeadFile(self.store, layout.tenant_prefix(tenant))
            try:
                reading = await head.read()
            except MemoreeError:
                yield tenant
                continue
            if await head.has_remains() if reading is None else reading.head.prefix is not None:
                yield tenant
