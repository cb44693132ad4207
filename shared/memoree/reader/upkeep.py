"""`memoree.operations.view.Upkeep` over a replica and the object store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import apsw

from memoree.clock import Clock
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError, shown
from memoree.objects import ObjectStore
from memoree.objects.blobs import blob_prefix
from memoree.objects.remote_audit import RemoteAudit
from memoree.operations.backup import BUCKET_SCHEME
from memoree.operations.view import MadeBackup
from memoree.reader.environment import ReaderEnvironment
from memoree.replication import layout

Result = TypeVar("Result")


class Snapshot(Protocol):
    """`ReplicatedService.snapshot` of one tenant."""

    def __call__(self, work: Callable[[apsw.Connection], Result]) -> Coroutine[Any, Any, tuple[Result, Meta]]: ...


@dataclass(frozen=True, slots=True)
class RemoteUpkeep:
    """Of one tenant, for code that runs in threads beside the loop."""

    environment: ReaderEnvironment
    tenant: str
    loop: asyncio.AbstractEventLoop
    snapshot: Snapshot

    @property
    def store(self) -> ObjectStore:
        return self.environment.store

    @property
    def clock(self) -> Clock:
        return self.environment.clock

    def blob_audit(self) -> RemoteAudit:
        return RemoteAudit(self.store, self.tenant, self.loop)

    def back_up(self, destination: str, *, commit_seq_min: int) -> MadeBackup:
        """As `Upkeep.back_up`. Its snapshot is its own: taken after the intent that protects what it refers to."""
        from memoree.backup.record import CHECKPOINT_NAME, BackupRecord
        from memoree.jobs.backup import create, require_head

        bucket = f"{BUCKET_SCHEME}{self.environment.bucket}/"
        place = f"{bucket}{layout.backups_prefix(self.tenant)}"
        if destination.rstrip("/") not in (each.rstrip("/") for each in (BUCKET_SCHEME, bucket, place)):
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"{shown(destination)} is no place for backups of this tenant: they go to its own bucket, s3://",
            )

        async def made() -> BackupRecord:
            await require_head(self.store, self.tenant)
            return await create(self, self.environment.directory.path)

        record = asyncio.run_coroutine_threadsafe(made(), self.loop).result()
        assert record.commit_seq >= commit_seq_min, "a strong snapshot is no older than what anybody has seen"
        directory = f"{place}{record.backup_id}/"
        blobs = f"{bucket}{blob_prefix(self.tenant)}"
        return MadeBackup(directory, f"{directory}{CHECKPOINT_NAME}", blobs, record.commit_seq, 0)
