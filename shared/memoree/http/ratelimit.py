"""A token bucket per tenant (MemoryProtocol §3): starts full, refills continuously, one token a request.

Its rate and burst are the tenant's own where its quota names some, from when this process knows it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from memoree.database.quota import Quota
from memoree.http.answers import HeaderList

BUCKETS_MAX = 10_000
"""Full buckets are forgotten beyond this many; a full bucket and none decide alike."""


Granted = Callable[[str], Quota | None]
"""A tenant's quota, `None` while it is not known. Asked at every request: it may not wait for anything."""


class Pace(NamedTuple):
    """Of one process: tokens a second, and tokens at once."""

    rate: float
    capacity: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
    pace: Pace

    def level(self, now: float) -> float:
        return min(self.pace.capacity, self.tokens + (now - self.filled_at) * self.pace.rate)


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
    """The rate and burst of each tenant, shared fairly by `processes` api processes. For one event loop."""

    def __init__(
        self,
        rate_per_second: float,
        burst: int,
        *,
        processes: int = 1,
        granted: Granted = lambda _tenant: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._default = Quota(rate_per_second=rate_per_second, rate_burst=burst)
        self._processes = processes
        self._granted = granted
        self._monotonic = monotonic
        self._buckets: dict[str, _Bucket] = {}

    def take(self, tenant: str) -> Decision:
        """Spend one token of the tenant, or say when there will be one."""
        bucket = self._refilled(tenant)
        retry_after = 0.0
        if bucket.tokens >= 1.0:
            bucket.tokens -= 1.0
        else:
            retry_after = (1.0 - bucket.tokens) / bucket.pace.rate
        return Decision(
            limit=int(bucket.pace.capacity),
            remaining=int(bucket.tokens),
            reset_seconds=(bucket.pace.capacity - bucket.tokens) / bucket.pace.rate,
            retry_after_seconds=retry_after,
        )

    def give_back(self, tenant: str) -> None:
        """A 403 spends nothing, also where it is found out only after the body was read."""
        bucket = self._refilled(tenant)
        bucket.tokens = min(bucket.pace.capacity, bucket.tokens + 1.0)

    def _refilled(self, tenant: str) -> _Bucket:
        now = self._monotonic()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget_full_buckets(now)
            pace = self._pace(self._granted(tenant) or self._default)
            bucket = self._buckets[tenant] = _Bucket(pace.capacity, now, pace)
            return bucket
        if (granted := self._granted(tenant)) is not None:
            bucket.pace = self._pace(granted)
        bucket.tokens, bucket.filled_at = bucket.level(now), now
        return bucket

    def _pace(self, granted: Quota) -> Pace:
        wanted = granted.over(self._default)
        assert wanted.rate_per_second is not None and wanted.rate_burst is not None, "the default has both"
        return Pace(max(1.0, wanted.rate_per_second) / self._processes, max(1.0, wanted.rate_burst / self._processes))

    def _forget_full_buckets(self, now: float) -> None:
        full = [tenant for tenant, bucket in self._buckets.items() if bucket.level(now) >= bucket.pace.capacity]
        for tenant in full:
            del self._buckets[tenant]
