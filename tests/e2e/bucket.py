"""Looking into the bucket of a running stack."""

from __future__ import annotations

import asyncio

from e2e.deployment import Deployment
from memoree.objects.s3 import S3Store


def keys(stack: Deployment, tenant: str, below: str) -> list[str]:
    """The tenant's keys under a folder such as `commands/`, without what comes before it."""
    prefix = f"tenants/{tenant}/"

    async def listed() -> list[str]:
        async with S3Store(stack.s3) as store:
            return [info.key.removeprefix(prefix) async for info in store.list(prefix + below)]

    return asyncio.run(listed())


def delete(stack: Deployment, tenant: str, key: str) -> None:
    async def deleted() -> None:
        async with S3Store(stack.s3) as store:
            await store.delete(f"tenants/{tenant}/{key}")

    asyncio.run(deleted())
