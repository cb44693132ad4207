"""What a worker of the ingest queue needs of a deployment, whatever the profile behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from memoree.ingest.dead import DeadLetters
from memoree.jobs.tenancy import Tenancy
from memoree.service import Reply, Request, Service

Replied = Callable[[int, Reply], None]
Sent = Callable[[], Awaitable[None]]
WriteMany = Callable[[str, Sequence[Request], Replied, Sent], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class IngestSite:
    """`write_many` tells the reply to each of many mutations of a tenant by its position, as soon as there is one; they
    are applied in any order, and `Sent` is awaited once only their outcomes are left to be waited for. `knows` tells
    whether there is such a tenant: a message that names another would found one by a slip of the pen. It may raise
    `MemoreeError` and `ObjectStoreError`."""

    service: Service
    write_many: WriteMany
    tenancy: Callable[[str], Tenancy]
    knows: Callable[[str], Awaitable[bool]]
    dead: DeadLetters


def one_by_one(service: Service) -> WriteMany:
    """For a service that commits together what comes together anyway."""

    async def write_many(tenant: str, requests: Sequence[Request], replied: Replied, sent: Sent) -> None:
        async def write(number: int, request: Request) -> None:
            replied(number, await service.call(tenant, request))

        async with asyncio.TaskGroup() as together:
            for number, request in enumerate(requests):
                together.create_task(write(number, request))
            await sent()

    return write_many
