"""What a reader is given: the store, where Litestream wrote, and a local directory of its own process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from memoree import limits
from memoree.clock import Clock, utc_now
from memoree.objects import ObjectStore
from memoree.operations.view import ServiceFacts
from memoree.process_directory import ProcessDirectory
from memoree.replication.litestream import ReplicaTarget


@dataclass(frozen=True, slots=True)
class ReaderEnvironment:
    """`replica_target` turns a key prefix of the store into the place Litestream wrote to."""

    store: ObjectStore
    replica_target: Callable[[str], ReplicaTarget]
    directory: ProcessDirectory
    facts: ServiceFacts
    executor: Executor
    uploads_through_service: bool = False
    """Whether large content comes to the api also where the store could take it from the client."""
    staleness_seconds_max: float = limits.STALENESS_SECONDS_MAX
    clock: Clock = utc_now
