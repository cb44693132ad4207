"""A deployment in this process: a real api over a replica, a real writer and its queue, and a store that tells who
touched what. Litestream alone is played, so that nothing waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from memoree.clock import utc_now
from memoree.ingest.dead import DeadLetters
from memoree.ingest.message import IngestMessage
from memoree.ingest.publisher import Publisher, StoredUploads
from memoree.ingest.site import IngestSite
from memoree.ingest.worker import IngestWorker
from memoree.jobs.replicated import ReplicatedTenancy
from memoree.objects import ObjectInfo, ObjectStore
from memoree.objects.filesystem import FilesystemStore
from memoree.process_directory import ProcessDirectory
from memoree.queue.sqlite import SqliteQueue
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.service import ReplicatedService
from memoree.replication.litestream import NotRestorable, Synced
from memoree.replication.ltx import LtxName, format_name
from memoree.writer.environment import WriterEnvironment, WriterTimings
from memoree.writer.worker import WriterWorker
from operations.bench import FACTS
from replication.test_ltx import encode

NEVER_SECONDS = 3600.0
"""Nothing happens by itself during a test, so that what happens was asked for."""
QUEUES = ("queue.sqlite3", "ingest.sqlite3")
PAGE_BYTES = 4096
WAIT_SECONDS = 60.0


def is_of(tenant: str, key: str) -> bool:
    """Whether an object is the tenant's alone."""
    return key.startswith(f"tenants/{tenant}/") or key == f"deleted/{tenant}.json"


@dataclass(frozen=True)
class Touch:
    """One request to the store. `who` is the api or the writer; `method` and `key` are the `ObjectStore`'s."""

    who: str
    method: str
    key: str


@dataclass
class Watch:
    """Every request to the store and every SQL statement, in order, while something is watched."""

    touches: list[Touch] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def touched(self, touch: Touch) -> None:
        with self._lock:
            self.touches.append(touch)

    def executed(self, sql: str) -> None:
        if not sql.startswith("PRAGMA"):  # whether a connection has to be opened is a matter of luck
            with self._lock:
                self.statements.append(sql)

    def take(self) -> tuple[list[Touch], list[str]]:
        """What was seen since the last time."""
        with self._lock:
            seen = self.touches, self.statements
            self.touches, self.statements = [], []
        return seen

    @contextmanager
    def on_connections(self) -> Iterator[None]:
        """Of every database of a tenant that is opened inside the block."""

        def watched(db: apsw.Connection) -> None:
            if Path(db.filename).name not in QUEUES:
                db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: self.executed(event["sql"]), id=self)

        apsw.connection_hooks.append(watched)
        try:
            yield
        finally:
            apsw.connection_hooks.remove(watched)


class WatchedStore:
    """An `ObjectStore` whose requests are written down before they are made."""

    def __init__(self, store: ObjectStore, who: str, watch: Watch) -> None:
        self._store, self._who, self._watch = store, who, watch

    def __getattr__(self, method: str) -> Any:
        done = getattr(self._store, method)

        def called(*arguments: Any, **named: Any) -> Any:
            for argument in arguments[: 2 if method == "copy" else 1]:
                key = argument.key if isinstance(argument, ObjectInfo) else str(argument)
                self._watch.touched(Touch(self._who, method, key))
            return done(*arguments, **named)

        return called


class PlayedReplicator:
    """`Replicator`: whole states in memory, and real change files in the store."""

    def __init__(self, store: FilesystemStore) -> None:
        self._store = store
        self._states: dict[str, dict[int, bytes]] = {}

    def child(self, database: Path, prefix: str) -> PlayedChild:
        return PlayedChild(self._store, database, prefix, self._states.setdefault(prefix, {}))

    async def restore(self, prefix: str, txid: int, output: Path) -> None:
        if (state := self._states.get(prefix, {}).get(txid)) is None:
            raise NotRestorable(f"{prefix} has no {txid}")
        output.write_bytes(state)  # noqa: ASYNC240 - a few hundred kilobytes


class PlayedChild:
    """`Child`."""

    def __init__(self, store: FilesystemStore, database: Path, prefix: str, states: dict[int, bytes]) -> None:
        self._store, self._database, self._prefix, self._states = store, database, prefix, states

    async def start(self) -> None: ...

    async def sync(self, timeout_seconds: int) -> Synced:
        before = self._states.get(txid := len(self._states), b"")
        if (body := _state_of(self._database)) != before:
            txid += 1
            self._states[txid] = body
            name = format_name(LtxName(0, txid, txid))
            await self._store.put(f"{self._prefix}{name}", _change(before, body, txid))
        return Synced(txid, txid)

    async def stop(self) -> bool:
        return True

    async def kill(self) -> None: ...

    async def restart(self) -> None: ...


def _state_of(database: Path) -> bytes:
    reader = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return reader.serialize("main")
    finally:
        reader.close()


def _change(before: bytes, after: bytes, txid: int) -> bytes:
    places = range(0, len(after), PAGE_BYTES)
    changed = [
        (at // PAGE_BYTES + 1, after[at : at + PAGE_BYTES])
        for at in places
        if after[at : at + PAGE_BYTES] != before[at : at + PAGE_BYTES]
    ]
    return encode(changed, page_size=PAGE_BYTES, commit_pages=len(places), txids=(txid, txid))


@dataclass
class Site:
    """`open` is the service factory of one application, `directory` where everything of it lies."""

    directory: Path
    watch: Watch = field(default_factory=Watch)
    loop: asyncio.AbstractEventLoop | None = None
    publish: Callable[[Sequence[IngestMessage]], Awaitable[None]] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ReplicatedService]:
        bucket = FilesystemStore(self.directory / "bucket")
        replicator = PlayedReplicator(bucket)
        self.loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            directories = [ProcessDirectory(self.directory / name) for name in ("replicas", "epochs")]
            threads = [ThreadPoolExecutor(4) for _ in directories]
            for directory, pool in zip(directories, threads, strict=True):
                stack.callback(directory.remove)
                stack.push_async_callback(asyncio.to_thread, pool.shutdown)
            queues = [SqliteQueue(self.directory / name) for name in (QUEUES[0], *QUEUES)]
            for queue in queues:
                stack.push_async_callback(queue.close)
            store: Any = WatchedStore(bucket, "api", self.watch)
            service = ReplicatedService(
                ReaderEnvironment(
                    store=store,
                    replicator=replicator,
                    directory=directories[0],
                    facts=FACTS,
                    executor=threads[0],
                    uploads_through_service=True,
                    staleness_seconds_max=NEVER_SECONDS,
                ),
                queues[0],
            )
            stack.push_async_callback(service.close)
            written: Any = WatchedStore(bucket, "writer", self.watch)
            writer = WriterEnvironment(
                store=written,
                replicator=replicator,
                directory=directories[1],
                facts=FACTS,
                executor=threads[1],
                timings=WriterTimings(
                    lease_ttl=NEVER_SECONDS,
                    lease_renew=NEVER_SECONDS / 3,
                    watchdog=NEVER_SECONDS,
                    settle_after_idle=NEVER_SECONDS,
                ),
            )
            running = asyncio.create_task(WriterWorker(writer, queues[1], supervised=True).run(stop))
            stack.push_async_callback(_ended, running, stop)
            self.publish = _publisher(service, store, queues[2])
            yield service


async def _ended(running: asyncio.Task[None], stop: asyncio.Event) -> None:
    stop.set()
    await running


def _publisher(
    service: ReplicatedService, store: ObjectStore, queue: SqliteQueue
) -> Callable[[Sequence[IngestMessage]], Awaitable[None]]:
    """Publishes messages of connectors and returns once the worker has decided all of them."""

    async def knows(tenant: str) -> bool:
        return True

    dead = DeadLetters(queue, queue, utc_now)
    site = IngestSite(
        service,
        service.many_writes.write,
        lambda tenant: ReplicatedTenancy(tenant, store, service, utc_now),
        knows,
        dead,
    )
    worker, publisher = IngestWorker(site), Publisher(queue, StoredUploads(service.uploads, knows))

    async def publish(messages: Sequence[IngestMessage]) -> None:
        await publisher.publish(messages)
        no_more = asyncio.Event()
        no_more.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await worker.run(queue, asyncio.Event(), no_more=no_more)

    return publish
