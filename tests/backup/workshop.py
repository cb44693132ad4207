"""A tenant as jobs see it, over real SQLite and a directory of objects: a store that has a row of every kind, whose
objects a test may age, damage and lose."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw

from memoree.backup.record import BackupRecord
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.database.meta import Meta
from memoree.jobs.backup import create
from memoree.jobs.backup_check import Checked, verify
from memoree.objects.blobs import blob_prefix
from memoree.objects.filesystem import FilesystemStore
from memoree.replication import layout
from mixed_mutations import mixed_mutations
from operations.bench import Bench

R = TypeVar("R")


class Workshop:
    """`memoree.jobs.tenancy.Source` of the tenant `local`; every job runs in an event loop of its own. Made anew in
    the same directory, it goes on there."""

    tenant = "local"

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory)
        self.database = directory / "store.sqlite3"
        self.store = FilesystemStore(directory / "objects")
        self.clock = self.bench.clock
        self.scratch = directory / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.copied: Callable[[], None] = lambda: None
        """Called in the thread that has just copied the database."""

    def close(self) -> None:
        self.bench.close()

    def fill(self) -> None:
        mixed_mutations(self.bench.write)

    def put(self, text: str) -> dict[str, Any]:
        content = {"type": "text", "data": text}
        return self.bench.write("artifact.put", {"kind": "note", "title": "t", "content": content})

    def blob_artifacts(self) -> tuple[str, ...]:
        """The ids of those that have a blob."""
        rows = self.bench.db.execute(
            "SELECT DISTINCT a.artifact_id FROM artifacts a JOIN artifact_revisions r ON r.artifact_row = a.row_id "
            "WHERE r.body IS NULL ORDER BY a.row_id"
        )
        return tuple(str(artifact_id) for (artifact_id,) in rows)

    async def snapshot(self, work: Callable[[apsw.Connection], R]) -> tuple[R, Meta]:
        def look() -> tuple[R, Meta]:
            with closing(open_reader(self.database, immutable=False)) as db:
                seen = meta.read(db)
                found = work(db)
                self.copied()
                return found, seen

        return await asyncio.to_thread(look)

    def back_up(self, **how: Any) -> BackupRecord:
        return asyncio.run(create(self, self.scratch, **how))

    def verify(self, backup_id: str, **how: Any) -> Checked:
        return asyncio.run(verify(self.store, self.tenant, backup_id, self.scratch, **how))

    def backup_keys(self) -> list[str]:
        return list(self.store.keys_sync(layout.backups_prefix(self.tenant)))

    def blob_keys(self) -> list[str]:
        return list(self.store.keys_sync(blob_prefix(self.tenant)))

    def path(self, key: str) -> Path:
        return self.store.root / key

    def age(self, key: str, **duration: float) -> None:
        """Let the object be so much older by the store's clock."""
        written = self.path(key).stat().st_mtime - timedelta(**duration).total_seconds()
        os.utime(self.path(key), (written, written))
