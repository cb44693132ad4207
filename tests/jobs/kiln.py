"""A tenant whose writer, store and clock a test holds in its hands: real SQLite and the real group committer, over a
store in memory whose deletes may come minutes after they were given up, and jobs that may be killed at any step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw

from memoree.backup.record import BackupRecord
from memoree.database import condemned, meta
from memoree.database.meta import Meta
from memoree.ids import new_attempt_id
from memoree.jobs import gc
from memoree.jobs.backup import create
from memoree.jobs.tenancy import request_of
from memoree.objects import ObjectRange, ObjectStoreError, OutOfRange, StoreUnavailable
from memoree.objects.blobs import blob_digest, blob_key, blob_prefix
from memoree.operations.execute import outcome_of
from memoree.writer.group_commit import GroupCommitter
from operations.bench import FACTS, Bench, Json, ManualClock, put_input
from replication.memory_store import MemoryStore

R = TypeVar("R")

TENANT = "local"
LARGE = 20_000
"""More than what lives in a row: a text of so many characters is a blob."""


class Killed(BaseException):
    """The process that ran the job is gone."""


class LateStore(MemoryStore):
    """`deletes` says what becomes of the next presigned deletes: `now`, `late` or `lost`; without, they are obeyed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.deletes: list[str] = []
        self.on_their_way: list[tuple[str, datetime]] = []
        self.broken: set[str] = set()
        """Keys that the store refuses to delete."""

    @property
    def now(self) -> datetime:
        return self.clock()

    @now.setter
    def now(self, _: datetime) -> None:
        """The test's clock is the only one."""

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        found = await self.get(key)
        assert found is not None
        if start >= len(found.body):
            raise OutOfRange(key)
        return ObjectRange(found.body[start:stop], len(found.body))

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, size: int) -> None:
        await self.put(key, b"".join([chunk async for chunk in chunks]))

    async def delete(self, key: str) -> None:
        if key in self.broken:
            raise ObjectStoreError("AccessDenied: not this one")
        await super().delete(key)

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str:
        return f"{key}?{(self.now + timedelta(seconds=expires_seconds)).isoformat()}"

    async def send(self, url: str) -> None:
        key, _, expires = url.partition("?")
        self._begin(f"SEND {key}")
        what = self.deletes.pop(0) if self.deletes else "now"
        if key in self.broken:
            raise ObjectStoreError("AccessDenied: not this one")
        if what == "late":
            self.on_their_way.append((key, datetime.fromisoformat(expires)))
        elif what == "now":
            self._obey(key, datetime.fromisoformat(expires))
        if what != "now":
            raise StoreUnavailable("no answer")

    def obey_late_deletes(self) -> None:
        waiting, self.on_their_way = self.on_their_way, []
        for key, expires in waiting:
            self._obey(key, expires)

    def _obey(self, key: str, expires: datetime) -> None:
        if self.now <= expires and self.keys(key):
            self.remove(key)


def elsewhere(work: Callable[[], object]) -> None:
    """Do the work in another process's stead, from its beginning to its end, while a job of this one is under way."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


class StoreBlobs:
    """What the writer asks of the store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def read(self, digest: bytes, size: int) -> bytes:
        return self._store.body(blob_key(TENANT, digest.hex()))

    def holds(self, digest: bytes) -> bool:
        return bool(self._store.keys(blob_key(TENANT, digest.hex())))

    def put(self, data: bytes) -> None:
        self._store.place(blob_key(TENANT, blob_digest(data)), data)


class Kiln:
    """`memoree.jobs.tenancy.Tenancy`."""

    tenant = TENANT

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory)
        self.clock = self.bench.clock
        self.store = LateStore(self.clock)
        self.bench.blobs = StoreBlobs(self.store)  # type: ignore[assignment]
        self.bench.committer = GroupCommitter(self.bench.db, self.bench.blobs, FACTS, self.clock)
        self.scratch = directory / "scratch"
        self.scratch.mkdir()
        self.steps = 0
        self.kill_at: int | None = None
        self.before_step: Callable[[str], None] = lambda _: None
        self.store.before_request = self._step

    def _step(self, what: str) -> None:
        self.before_step(what)
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed(what)

    # --- what jobs see ------------------------------------------------------------------------------------------

    async def snapshot(self, work: Callable[[apsw.Connection], R]) -> tuple[R, Meta]:
        self._step("snapshot")
        return work(self.bench.db), meta.read(self.bench.db)

    async def submit(self, operation: str, input: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        self._step(f"before {operation}")
        result = self.command(operation, input, key=key)
        self._step(f"after {operation}")
        return result

    # --- what tests do ------------------------------------------------------------------------------------------

    def command(self, operation: str, input: Mapping[str, Any], *, key: str | None = None) -> Json:
        (attempt,) = self.bench.commit([request_of(operation, input, key or new_attempt_id()).call])
        return outcome_of(self.bench.db, attempt).result

    def orphan(self, text: str) -> str:
        """A blob that reached the store and whose command never did; its digest."""
        data = text.ljust(LARGE, ".").encode()
        self.store.place(blob_key(TENANT, blob_digest(data)), data)
        return blob_digest(data)

    def cite(self, text: str) -> Json:
        """Store the text as any client does: the blob first, then the command."""
        return self.bench.put(text.ljust(LARGE, "."))

    def cite_what_is_there(self, text: str) -> None:
        """As a command does that was under way for long: its blob was stored back then."""
        call = self.bench.request("artifact.put", put_input(text.ljust(LARGE, ".")))
        (attempt,) = self.bench.commit([call], upload=False)
        assert attempt.status == "applied"

    def collect(self, *, kill_at: int | None = None, **grace: float) -> gc.Collection:
        """One run; `kill_at` is the step at which its process ends. Raises `Killed`."""
        self.steps, self.kill_at = 0, kill_at
        try:
            return asyncio.run(
                gc.collect(self, gc.Grace(**grace), send=self.store.send, monotonic=lambda: self.clock().timestamp())
            )
        finally:
            self.kill_at = None

    def back_up(self) -> BackupRecord:
        return asyncio.run(create(self, self.scratch))  # type: ignore[arg-type]

    def has(self, digest: str) -> bool:
        return bool(self.store.keys(blob_key(TENANT, digest)))

    def blobs(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self.store.keys(blob_prefix(TENANT))}

    def cited(self) -> set[str]:
        rows = self.bench.db.execute("SELECT DISTINCT blob_hash FROM artifact_revisions WHERE body IS NULL")
        return {digest.hex() for (digest,) in rows}

    def condemned(self) -> set[str]:
        return {row.digest.hex() for row in condemned.rows(self.bench.db)}
