"""What a reader is given: the store, what replicates to it, and a local directory of its own process."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memoree import limits
from memoree.clock import Clock, utc_now
from memoree.erasures import Retention
from memoree.objects import ObjectStore
from memoree.operations.view import ServiceFacts
from memoree.process_directory import ProcessDirectory
from memoree.replication.replicator import Replicator

if TYPE_CHECKING:
    from memoree.jobs.tenant_deletion import DeletionSite


@dataclass(frozen=True, slots=True)
class ReaderEnvironment:
    store: ObjectStore
    replicator: Replicator
    directory: ProcessDirectory
    facts: ServiceFacts
    executor: Executor
    uploads_through_service: bool = False
    """Whether large content comes to the api also where the store could take it from the client."""
    staleness_seconds_max: float = limits.STALENESS_SECONDS_MAX
    clock: Clock = utc_now
    retention: Retention = field(default_factory=Retention)
    deletion: DeletionSite | None = None
    """Where this process may delete whole tenants."""
    bucket: str | None = None
    """The name of the store, where it is a bucket."""
