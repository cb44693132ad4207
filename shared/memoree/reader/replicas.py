"""The replicas of one process: opened on demand, refreshed while in use, evicted when there are too many."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memoree import limits
from memoree.database.quota import Quota
from memoree.errors import MemoreeError
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import tenant_directory_name
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.pace import Pace, pauses
from memoree.reader.replica import Replica

ACTIVE_SECONDS = 10.0
"""A tenant nobody asked about for this long is no longer refreshed in the background."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaAges:
    """How long ago a replica agreed with head, and how long ago head was seen at all. Zero when none is in use."""

    replica_seconds: float
    head_seconds: float


class Replicas:
    def __init__(self, environment: ReaderEnvironment) -> None:
        self._environment = environment
        self._directory = environment.directory.new_subdirectory("files")
        self._replicas: dict[str, Replica] = {}
        self._made = 0
        self._background = asyncio.create_task(self._refresh_active())

    def ages(self) -> ReplicaAges:
        """For the worst of the tenants in use; one that was not in use before counts from then."""
        now = time.monotonic()
        active = [replica for replica in self._replicas.values() if self._is_active(replica, now)]
        return ReplicaAges(
            replica_seconds=max((now - max(each.checked_at, each.in_use_since) for each in active), default=0.0),
            head_seconds=max((now - max(each.head_seen_at, each.in_use_since) for each in active), default=0.0),
        )

    @property
    def alarmed_tenants(self) -> list[str]:
        return [tenant for tenant, replica in self._replicas.items() if replica.is_alarmed]

    @asynccontextmanager
    async def ready(self, tenant: str, *, strong: bool, seconds: float | None = None) -> AsyncIterator[Replica]:
        """The tenant's replica for one request, not evicted meanwhile: at most `staleness_seconds_max` behind head,
        or not behind at all if `strong`. Where head has to be looked at, or the tenant loaded, that may take
        `seconds`, and otherwise as long as a request may take.

        A replica that cannot be refreshed is still served, at its age, unless that is what was asked to avoid.
        Raises what `Replica.refresh` raises.
        """
        replica = self._get(tenant)
        if not self._is_active(replica, now := time.monotonic()):
            replica.in_use_since = now
        with replica.in_use():
            if strong or not replica.is_loaded:
                await replica.refresh_anew(seconds)
            elif (age := time.monotonic() - replica.checked_at) > self._environment.staleness_seconds_max:
                try:
                    await replica.refresh(limits.STALE_WAIT_SECONDS_MAX)
                except (ObjectStoreError, MemoreeError) as error:
                    passing = isinstance(error, ObjectStoreError) or error.retryable
                    if not (passing and replica.is_loaded):
                        raise
                    log.warning("tenant %s: serving a state of %.1f s ago: %s", tenant, age, error)
            yield replica

    async def until(
        self,
        replica: Replica,
        reached: Callable[[], bool],
        seconds: float,
        pace: Pace | None = None,
        *,
        apart_seconds: float = 0.0,
    ) -> bool:
        """Follow head until a condition holds on a replica in use; all waiters of a tenant share its looks at head.
        The first look is at once, or when `pace` says so, which learns from it; none begins sooner than
        `apart_seconds` after anybody's last.

        Passing troubles are waited out. Raises `INTEGRITY_ERROR` when head is gone.
        """
        deadline = time.monotonic() + seconds
        looks = 0
        for pause in pauses(0.0 if pace is None else pace.first_seconds):
            left = deadline - time.monotonic()
            if not (replica.is_loaded and reached()):
                await replica.changed(max(0.0, min(pause, left)))
            if replica.is_loaded and reached():
                break
            if left <= 0:
                return False
            if time.monotonic() - replica.checked_at < apart_seconds:
                continue
            looks += 1
            await self._look_patiently(replica, left)
        if pace is not None:
            pace.learn(looks)
        return True

    async def wait(self, replica: Replica, reached: Callable[[], bool], seconds: float) -> bool:
        """Whether a condition holds on a replica in use, within that time. Unlike `until` it leaves looking at head to
        the background, and does it only where that seldom does.

        Passing troubles are waited out. Raises `INTEGRITY_ERROR` when head is gone.
        """
        deadline = time.monotonic() + seconds
        while not (replica.is_loaded and reached()):
            if (left := deadline - time.monotonic()) <= 0:
                return False
            replica.used_at = time.monotonic()
            await replica.changed(min(left, limits.FEED_LOOK_SECONDS))
            if time.monotonic() - replica.head_seen_at >= limits.FEED_LOOK_SECONDS:
                await self._look_patiently(replica, max(0.0, deadline - time.monotonic()))
        return True

    async def _look_patiently(self, replica: Replica, seconds: float) -> None:
        """Look at head, unless that fails for now."""
        try:
            await replica.refresh(seconds)
        except ObjectStoreError as error:
            log.info("tenant %s: looking at head again: %s", replica.tenant, error)
        except MemoreeError as error:
            if not error.retryable:
                raise

    def granted(self, tenant: str) -> Quota | None:
        """Of a tenant in hand, whether it is used or not."""
        replica = self._replicas.get(tenant)
        return replica.generation.quota if replica is not None and replica.is_loaded else None

    def _get(self, tenant: str) -> Replica:
        replica = self._replicas.pop(tenant, None)
        if replica is None:
            self._made += 1
            name = f"{tenant_directory_name(tenant)}-{self._made}"
            replica = Replica(tenant, self._environment, self._directory / name)
        self._replicas[tenant] = replica  # most recently used last
        return replica

    async def _refresh_active(self) -> None:
        """In the background; one tenant's long restore keeps no other tenant waiting."""
        while True:
            await asyncio.sleep(self._environment.staleness_seconds_max)
            now = time.monotonic()
            for replica in self._replicas.values():
                if self._is_active(replica, now) and replica.is_loaded:
                    replica.start_refresh()
            self._evict()

    def _is_active(self, replica: Replica, now: float) -> bool:
        return now - replica.used_at < ACTIVE_SECONDS

    def _evict(self) -> None:
        """The long unused ones; then down to the bounds, least recently used first, and never the last one. Never a
        replica in use."""
        now = time.monotonic()
        for tenant, replica in list(self._replicas.items()):
            if not replica.is_busy and now - replica.used_at > limits.LOCAL_COPY_IDLE_SECONDS_MAX:
                self._replicas.pop(tenant).discard()
        sizes = {tenant: replica.size_bytes for tenant, replica in self._replicas.items()}
        for tenant in list(sizes)[:-1]:
            if len(sizes) <= limits.REPLICAS_MAX and sum(sizes.values()) <= limits.REPLICA_BYTES_MAX:
                return
            if not self._replicas[tenant].is_busy:
                self._replicas.pop(tenant).discard()
                del sizes[tenant]

    async def close(self) -> None:
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        await asyncio.gather(*(replica.close() for replica in self._replicas.values()))
        self._replicas.clear()
