"""A token bucket per tenant (MemoryProtocol §3): starts full, refills continuously, one token a request."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from memoree.http.answers import HeaderList

BUCKETS_MAX = 10_000
"""Full buckets are forgotten beyond this many; a full bucket and none decide alike."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


@dataclass(frozen=True, slots=True)
class Decision:
    """`retry_after_seconds` is 0 when the request may pass."""

    limit: int
    remaining: int
    reset_seconds: float
    """Until the bucket is full again."""
    retry_after_seconds: float = 0.0

    @property
    def allowed(self) -> bool:
        return self.retry_after_seconds == 0.0

    def headers(self) -> HeaderList:
        return (
            (b"ratelimit-limit", b"%d" % self.limit),
            (b"ratelimit-remaining", b"%d" % self.remaining),
            (b"ratelimit-reset", b"%d" % math.ceil(self.reset_seconds)),
        )


class Limiter:
    """The rate and burst of one tenant, shared fairly by `processes` api processes. For one event loop."""

    def __init__(
        self,
        rate_per_second: float,
        burst: int,
        *,
        processes: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = max(1.0, rate_per_second) / processes
        self._capacity = max(1.0, burst / processes)
        self._monotonic = monotonic
        self._buckets: dict[str, _Bucket] = {}

    def take(self, tenant: str) -> Decision:
        """Spend one token of the tenant, or say when there will be one."""
        bucket = self._refilled(tenant)
        retry_after = 0.0
        if bucket.tokens >= 1.0:
            bucket.tokens -= 1.0
        else:
            retry_after = (1.0 - bucket.tokens) / self._rate
        return Decision(
            limit=int(self._capacity),
            remaining=int(bucket.tokens),
            reset_seconds=(self._capacity - bucket.tokens) / self._rate,
            retry_after_seconds=retry_after,
        )

    def give_back(self, tenant: str) -> None:
        """A 403 spends nothing, also where it is found out only after the body was read."""
        bucket = self._refilled(tenant)
        bucket.tokens = min(self._capacity, bucket.tokens + 1.0)

    def _refilled(self, tenant: str) -> _Bucket:
        now = self._monotonic()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget_full_buckets(now)
            bucket = self._buckets[tenant] = _Bucket(self._capacity, now)
            return bucket
        bucket.tokens = self._level(bucket, now)
        bucket.filled_at = now
        return bucket

    def _level(self, bucket: _Bucket, now: float) -> float:
        return min(self._capacity, bucket.tokens + (now - bucket.filled_at) * self._rate)

    def _forget_full_buckets(self, now: float) -> None:
        full = [tenant for tenant, bucket in self._buckets.items() if self._level(bucket, now) >= self._capacity]
        for tenant in full:
            del self._buckets[tenant]
