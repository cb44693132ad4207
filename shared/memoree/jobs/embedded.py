"""Jobs over a data directory (the embedded profile)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw

from memoree.clock import Clock
from memoree.database.meta import Meta
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.jobs.tenancy import submitted
from memoree.objects import ObjectStore

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
