"""The floor of every write: PUT of 1 KiB through aiobotocore, a warm connection, the stack's own bucket.

The client is the product's own adapter (no `Expect: 100-continue`, no checksums beyond what is required), which is the
fastest way aiobotocore has; a slower client would flatter the product.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import count

from memoree.objects.s3 import S3Store

OBJECT_BYTES = 1024
WARM_UP_PUTS = 20
KEY_PREFIX = "tenants/bench-puts/blobs/"


class Puts:
    def __init__(self, store: S3Store) -> None:
        self._store = store
        self._numbers = count()

    async def warm_up(self) -> None:
        await self.latencies(WARM_UP_PUTS)

    async def latencies(self, samples: int) -> list[float]:
        """Seconds of each of so many PUTs, one after the other."""
        return [await self._one() for _ in range(samples)]

    async def throughput(self, clients: int, puts_each: int) -> float:
        """PUTs per second of so many concurrent clients."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self.latencies(puts_each))
        return clients * puts_each / (time.perf_counter() - began)

    async def _one(self) -> float:
        key, body = f"{KEY_PREFIX}{next(self._numbers):08}", os.urandom(OBJECT_BYTES)
        began = time.perf_counter()
        await self._store.put(key, body)
        return time.perf_counter() - began
