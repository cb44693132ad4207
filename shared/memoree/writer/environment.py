"""What a writer is given: the store, what replicates to it, a local directory, and its timings."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field

from memoree import limits
from memoree.clock import Clock, utc_now
from memoree.database.quota import NONE, Quota
from memoree.objects import ObjectStore
from memoree.operations.view import ServiceFacts
from memoree.process_directory import ProcessDirectory
from memoree.replication.replicator import Replicator


@dataclass(frozen=True, slots=True)
class WriterTimings:
    """The lease and idling of a writer, in seconds; tests of long idling shorten them."""

    lease_ttl: float = limits.LEASE_TTL_SECONDS
    lease_renew: float = limits.LEASE_RENEW_SECONDS
    watchdog: float = limits.WATCHDOG_SECONDS
    settle_after_idle: float = limits.SETTLE_AFTER_IDLE_SECONDS
    sync_timeout: int = limits.SYNC_TIMEOUT_SECONDS
    visibility: float = limits.VISIBILITY_SECONDS


@dataclass(frozen=True, slots=True)
class WriterEnvironment:
    """`tenants_held_max` bounds the leases held at once, and with them the Litestream children."""

    store: ObjectStore
    replicator: Replicator
    directory: ProcessDirectory
    facts: ServiceFacts
    executor: Executor
    timings: WriterTimings = field(default_factory=WriterTimings)
    tenants_held_max: int = limits.TENANTS_HELD_MAX
    clock: Clock = utc_now
    quota_default: Quota = NONE
    """Of tenants that have none of their own."""
