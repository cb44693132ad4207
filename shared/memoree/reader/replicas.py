"""The replicas of one process: opened on demand, refreshed while in use, evicted when there are too many."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from memoree import limits
from memoree.errors import MemoreeError
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import tenant_directory_name
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.replica import Replica

ACTIVE_SECONDS = 10.0
"""A tenant nobody asked about for this long is no longer refreshed in the background."""

POLL_GROWTH = 1.3

log = logging.getLogger(__name__)


class Replicas:
    def __init__(self, environment: ReaderEnvironment) -> None:
        self._environment = environment
        self._replicas: dict[str, Replica] = {}
        self._made = 0
        self._background = asyncio.create_task(self._refresh_active())

    @property
    def oldest_check_seconds(self) -> float | None:
        """How long ago head was last seen, for the worst of the tenants in use; `None` when none is."""
        now = time.monotonic()
        ages = [now - replica.checked_at for replica in self._replicas.values() if self._is_active(replica, now)]
        return max(ages, default=None)

    @property
    def alarmed_tenants(self) -> list[str]:
        return [tenant for tenant, replica in self._replicas.items() if replica.is_alarmed]

    async def ready(self, tenant: str, *, strong: bool) -> Replica:
        """The tenant's replica, at most `staleness_seconds_max` behind head, or not behind at all if `strong`.

        A replica that cannot be refreshed is still served, at its age, unless that is what was asked to avoid.
        Raises what `Replica.refresh` raises.
        """
        replica = self._get(tenant)
        replica.used_at = time.monotonic()
        age = replica.used_at - replica.checked_at
        if strong or not replica.is_loaded:
            await replica.refresh_anew()
        elif age > self._environment.staleness_seconds_max:
            try:
                await replica.refresh()
            except ObjectStoreError as error:
                log.warning("tenant %s: serving a state of %.1f s ago: %s", tenant, age, error)
        return replica

    async def until(self, replica: Replica, reached: Callable[[], bool], seconds: float) -> bool:
        """Follow head until a condition holds on the replica; all waiters of a tenant share its looks at head.

        Passing troubles are waited out. Raises `INTEGRITY_ERROR` when head is gone.
        """
        deadline = time.monotonic() + seconds
        pause = limits.POLL_SECONDS_MIN
        while not (replica.is_loaded and reached()):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(pause, left))
            pause = min(pause * POLL_GROWTH, limits.POLL_SECONDS_MAX)
            try:
                await replica.refresh()
            except ObjectStoreError as error:
                log.info("tenant %s: looking at head again: %s", replica.tenant, error)
            except MemoreeError as error:
                if not error.retryable:
                    raise
        replica.used_at = time.monotonic()
        return True

    def _get(self, tenant: str) -> Replica:
        replica = self._replicas.pop(tenant, None)
        if replica is None:
            self._made += 1
            name = f"{tenant_directory_name(tenant)}-{self._made}"
            replica = Replica(tenant, self._environment, self._environment.directory.new_subdirectory(name))
        self._replicas[tenant] = replica  # most recently used last
        return replica

    async def _refresh_active(self) -> None:
        while True:
            await asyncio.sleep(self._environment.staleness_seconds_max / 2)
            now = time.monotonic()
            for tenant, replica in list(self._replicas.items()):
                if self._is_active(replica, now) and replica.is_loaded:
                    try:
                        await replica.refresh()
                    except (ObjectStoreError, MemoreeError) as error:
                        log.warning("tenant %s: not refreshed: %s", tenant, error)
            self._evict()

    def _is_active(self, replica: Replica, now: float) -> bool:
        return now - replica.used_at < ACTIVE_SECONDS

    def _evict(self) -> None:
        while len(self._replicas) > 1 and (
            len(self._replicas) > limits.REPLICAS_MAX
            or sum(replica.size_bytes for replica in self._replicas.values()) > limits.REPLICA_BYTES_MAX
        ):
            oldest = next(iter(self._replicas))
            self._replicas.pop(oldest).discard()

    async def close(self) -> None:
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        for replica in self._replicas.values():
            replica.discard()
        self._replicas.clear()
