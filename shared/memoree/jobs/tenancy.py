"""One tenant as a job sees it, whatever the profile behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import apsw

from memoree import limits
from memoree.clock import Clock
from memoree.database.meta import Meta
from memoree.envelope import Envelope
from memoree.errors import MemoreeError
from memoree.ids import new_ulid
from memoree.objects import ObjectStore
from memoree.operations.call import validate
from memoree.service import Reply, Request, Service

SUBMIT_SECONDS_MAX = 120.0
RETRY_SECONDS_DEFAULT, RETRY_SECONDS_MAX = 1.0, 10.0
CONTEXT = {"workspace_id": "memoree", "project_id": "jobs"}
"""Of the requests of jobs: their idempotency keys are apart from those of every caller who names no such project."""

Result = TypeVar("Result")


class Source(Protocol):
    """One tenant to read from. `store` holds its objects below `layout.tenant_prefix(tenant)`, blobs among them."""

    @property
    def tenant(self) -> str: ...

    @property
    def store(self) -> ObjectStore: ...

    @property
    def clock(self) -> Clock: ...

    async def snapshot(self, work: Callable[[apsw.Connection], Result]) -> tuple[Result, Meta]:
        """What `work` finds, in a thread, in one covered state that is no older than the moment of this call, and
        that state's counters. Raises `ObjectStoreError`, and `MemoreeError` for a tenant that cannot be read."""


class Tenancy(Source, Protocol):
    """One tenant to read from and to have changed."""

    async def submit(self, operation: str, input: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """The result of a mutation that the tenant's writer applied and head covers. The same `key` and input again
        repeat the first result. Raises the refusal, and `TRANSPORT_ERROR` or `WRITE_PENDING` when it is still
        undecided after `SUBMIT_SECONDS_MAX`."""


def request_of(operation: str, input: Mapping[str, Any], key: str) -> Request:
    """A job's mutation as a service takes it."""
    envelope = Envelope(
        request_id=f"req_{new_ulid()}",
        op=operation,
        idempotency_key=key,
        context=CONTEXT,
        context_source="explicit",
        input=dict(input),
    )
    return Request(envelope, validate(envelope))


async def submitted(service: Service, tenant: str, operation: str, input: Mapping[str, Any], key: str) -> Reply:
    """A successful reply to a job's mutation: the identical request is sent until it is decided. Raises as
    `Tenancy.submit`."""
    request = request_of(operation, input, key)
    deadline = time.monotonic() + SUBMIT_SECONDS_MAX
    while True:
        reply = await service.call(tenant, request, wait_seconds=limits.WRITE_WAIT_SECONDS_MAX)
        if reply.envelope["ok"]:
            return reply
        error = MemoreeError.from_wire(reply.envelope["error"])
        if not error.retryable or time.monotonic() >= deadline:
            raise error
        await asyncio.sleep(min(reply.retry_after_seconds or RETRY_SECONDS_DEFAULT, RETRY_SECONDS_MAX))
