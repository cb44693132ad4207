"""`memoree.operations.view.Upkeep` over a replica and the object store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
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

    def __call__(
        self, work: Callable[[apsw.Connection], Result], *, executor: Executor | None = None
    ) -> Coroutine[Any, Any, tuple[Result, Meta]]: ...


@dataclass(frozen=True, slots=True)
class _Source:
    """`memoree.jobs.tenancy.Source`, whose snapshot is copied in a thread of its own: other reads never wait for it."""

    tenant: str
    store: ObjectStore
    clock: Clock
    take: Snapshot
    thread: Executor

    async def snapshot(self, work: Callable[[apsw.Connection], Result]) -> tuple[Result, Meta]:
        return await self.take(work, executor=self.thread)


@dataclass(frozen=True, slots=True)
class RemoteUpkeep:
    """Of one tenant, for code that runs in threads beside the loop."""

    environment: ReaderEnvironment
    tenant: str
    loop: asyncio.AbstractEventLoop
    snapshot: Snapshot

    def blob_audit(self) -> RemoteAudit:
        return RemoteAudit(self.environment.store, self.tenant, self.loop)

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

        store, scratch = self.environment.store, self.environment.directory.path

        async def made(thread: Executor) -> BackupRecord:
            await require_head(store, self.tenant)
            return await create(_Source(self.tenant, store, self.environment.clock, self.snapshot, thread), scratch)

        with ThreadPoolExecutor(1, thread_name_prefix="backup") as thread:
            record = asyncio.run_coroutine_threadsafe(made(thread), self.loop).result()
        assert record.commit_seq >= commit_seq_min, "a strong snapshot is no older than what anybody has seen"
        directory = f"{place}{record.backup_id}/"
        blobs = f"{bucket}{blob_prefix(self.tenant)}"
        return MadeBackup(directory, f"{directory}{CHECKPOINT_NAME}", blobs, record.commit_seq, 0)
