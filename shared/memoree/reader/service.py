"""The replicated service: reads a local replica, writes through the queue (design §5.1, §6)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import apsw

from memoree import clock, limits
from memoree.contents import RevisionContent
from memoree.database import attempts
from memoree.database.meta import Meta
from memoree.database.quota import Quota
from memoree.erasures import Erasure, ErasureReceipt, deployment_receipt, record
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId, UploadId, new_ulid
from memoree.long_reads import LongReads, Stop
from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.objects.blobs import BlobCache, BlobStore
from memoree.objects.loop_blobs import LoopBlobs
from memoree.objects.secret import shared_secret
from memoree.operations.artifacts import locate
from memoree.operations.call import Call
from memoree.operations.content import StagedContent
from memoree.operations.execute import Success, outcome_of, replay_from_snapshot, run_read
from memoree.operations.quota import CREATE
from memoree.operations.registry import Mutation
from memoree.operations.view import View
from memoree.queue import CommandQueue, QueueError
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.generation import Generation
from memoree.reader.many_writes import ManyWrites
from memoree.reader.outgoing import outgoing, unreachable
from memoree.reader.pace import Pace
from memoree.reader.replica import Replica
from memoree.reader.replicas import Replicas
from memoree.reader.short_reads import ShortReads
from memoree.reader.upkeep import RemoteUpkeep
from memoree.replication.tombstone import deleted
from memoree.service import (
    CURSOR_KEY,
    Check,
    OperationStatus,
    Reply,
    Request,
    read_reply,
    refusal,
    write_pending,
    write_reply,
)
from memoree.tenants import Tenants
from memoree.uploads import Uploads, group_of

QUEUE_AGE_SECONDS_MAX = 5.0
"""Readiness turns red when the oldest command has waited this long: the writer is dead or stuck."""
REPLICA_AGE_SECONDS_MAX = 6.0
"""Readiness turns red when a tenant in use could not be brought up to head for this long."""
CANARY_PREFIX = "canaries/"

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class ReplicatedService:
    """`memoree.service.Service` for the stack and cloud profiles. Make it inside a running event loop."""

    def __init__(self, environment: ReaderEnvironment, queue: CommandQueue) -> None:
        self._environment = environment
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._replicas = Replicas(environment)
        self._pace = Pace()
        self._long_reads = LongReads()
        self._short_reads = ShortReads()
        self._blob_cache = BlobCache(limits.BLOB_CACHE_BYTES_MAX)
        self._many_writes = ManyWrites(environment, queue, self._replicas, self._on_view)
        self._cursor_key: bytes | None = None
        self._uploads = Uploads(
            environment.store, environment.clock, through_service=environment.uploads_through_service
        )

    async def call(
        self,
        tenant: str,
        request: Request,
        *,
        wait_seconds: float = limits.WRITE_WAIT_SECONDS_DEFAULT,
        strong: bool = False,
    ) -> Reply:
        """See `memoree.service.Service.call`."""
        call = request.call
        try:
            if isinstance(call.operation, Mutation):
                return await self._write(tenant, request, wait_seconds)
            return await self._read(tenant, call, strong=strong)
        except MemoreeError as error:
            return refusal(call.request_id, error)
        except (ObjectStoreError, QueueError) as error:
            log.warning("%s could not be completed: %s", call.operation.name, error)
            return refusal(call.request_id, unreachable(error))
        except Exception:
            log.exception("%s failed", call.operation.name)
            return refusal(call.request_id, MemoreeError(Code.INTERNAL_ERROR, "the operation failed; see the log"))

    # --- reads --------------------------------------------------------------------------------------------------

    async def _read(self, tenant: str, call: Call[Any], *, strong: bool) -> Reply:
        async with self._replicas.ready(tenant, strong=strong) as replica:
            wanted = getattr(call.input, "min_commit_seq", None)
            if wanted is not None:
                await self._replicas.until(
                    replica,
                    lambda: replica.generation.meta.commit_seq >= wanted,
                    limits.MIN_COMMIT_SEQ_WAIT_SECONDS,
                )
            result, commit_seq = await self._result(tenant, replica, call, strong=strong)
        return read_reply(call, result, commit_seq)

    async def _result(
        self, tenant: str, replica: Replica, call: Call[Any], *, strong: bool
    ) -> tuple[dict[str, Any], int]:
        """What a read finds, and the commit number of that."""
        operation = call.operation
        if operation.short:
            kind = (tenant, operation.name)
            work = self._short_reads.timed(kind, lambda view: run_read(view, call))
            return await self._seen(tenant, replica, work, strong=strong, at_once=self._short_reads.run_at_once(kind))
        if not operation.long:
            return await self._seen(tenant, replica, lambda view: run_read(view, call), strong=strong)

        def begin(threads: Executor, stop: Stop) -> Awaitable[tuple[dict[str, Any], int]]:
            def stoppable(view: View) -> dict[str, Any]:
                with stop.watching(view) as watched:
                    return run_read(watched, call)

            return self._seen(tenant, replica, stoppable, strong=strong, executor=threads)

        return await self._long_reads.run(tenant, begin)

    async def revision_content(
        self, tenant: str, artifact_id: str, revision_id: str, *, strong: bool = False
    ) -> RevisionContent:
        """See `memoree.service.Service.revision_content`."""
        try:
            async with self._replicas.ready(tenant, strong=strong) as replica:
                (revision, body), commit_seq = await self._seen(
                    tenant, replica, lambda view: locate(view, artifact_id, revision_id), strong=strong
                )
        except ObjectStoreError as error:
            raise unreachable(error) from error
        return RevisionContent(self._environment.store, tenant, revision, body, commit_seq)

    async def _seen(
        self,
        tenant: str,
        replica: Replica,
        work: Callable[[View], Result],
        *,
        strong: bool,
        executor: Executor | None = None,
        at_once: bool = False,
    ) -> tuple[Result, int]:
        """What `work` finds in the newest generation, and the commit number of that."""
        generation = replica.generation
        try:
            result = await self._on_view(tenant, generation, work, executor, at_once=at_once)
        except MemoreeError as error:
            if error.code is not Code.NOT_FOUND or strong:
                raise
            # Exact lookups take no `min_commit_seq`, and "does not exist" is final: look at head before saying it.
            await replica.refresh_anew()
            generation = replica.generation
            result = await self._on_view(tenant, generation, work, executor, at_once=at_once)
        return result, generation.meta.commit_seq

    async def _on_view(
        self,
        tenant: str,
        generation: Generation,
        work: Callable[[View], Result],
        executor: Executor | None = None,
        *,
        at_once: bool = False,
    ) -> Result:
        """Run in a thread, or at once, over the newest generation; all a request reads comes from it."""
        blobs = LoopBlobs(self._blob_store(tenant), self._loop)
        upkeep = RemoteUpkeep(self._environment, tenant, self._loop, partial(self.snapshot, tenant))

        def look(db: apsw.Connection) -> Result:
            now = clock.stored(self._environment.clock())
            return work(View(db, blobs, self._environment.facts, generation.meta, now, upkeep=upkeep))

        if at_once:
            with generation.connection() as db:
                return look(db)
        return await generation.read(executor or self._environment.executor, look)

    async def snapshot(
        self,
        tenant: str,
        work: Callable[[apsw.Connection], Result],
        *,
        executor: Executor | None = None,
        seconds: float | None = None,
    ) -> tuple[Result, Meta]:
        """What `work` finds, in a thread, in a state that is no older than head is now, and that state's counters.
        The file is not written however long it takes. Raises what `Replica.refresh` raises, also when it takes more
        than `seconds` to have that state; than a request may take, by default."""
        async with self._replicas.ready(tenant, strong=True, seconds=seconds) as replica:
            generation = replica.generation
            return await generation.read(executor or self._environment.executor, work), generation.meta

    # --- writes -------------------------------------------------------------------------------------------------

    async def _write(self, tenant: str, request: Request, wait_seconds: float) -> Reply:
        call = request.call
        founds = call.operation.name == CREATE
        async with self._replicas.ready(tenant, strong=founds) as replica:
            if not founds:
                await replica.require_not_deleted()
            if (replayed := await self._replay(tenant, replica, call)) is not None:
                return write_reply(call, *replayed)
            group = tenant
            if call.upload_id is not None:
                try:
                    content, group = await self._uploaded(tenant, call.upload_id)
                except MemoreeError:
                    # A repeat is answered also when its upload is long gone, and this replica may be behind.
                    await replica.refresh_anew()
                    if (replayed := await self._replay(tenant, replica, call)) is not None:
                        return write_reply(call, *replayed)
                    raise
                request = replace(request, call=replace(call, content=content))
            elif call.content is not None and not call.content.inline:
                assert call.content.data is not None
                await self._blob_store(tenant).put(call.content.data)
            attempt_id = await self._enqueue(tenant, request, replica, group)
            return write_reply(call, *await self._outcome(replica, attempt_id, wait_seconds, founds=founds))

    async def _uploaded(self, tenant: str, upload_id: UploadId) -> tuple[StagedContent, str]:
        """What an upload was declared to be, and the group that the command goes to: the tenant's when there is such a
        blob, otherwise one where the upload is verified first. Raises what `Uploads` does for an upload at fault."""
        upload = await self._uploads.find(tenant, upload_id)
        content = StagedContent(upload.digest, upload.size, data=None, upload_id=upload_id)
        if await self._blob_store(tenant).size_of(upload.digest.hex()) == upload.size:
            return content, tenant
        await self._uploads.sent(tenant, upload)
        return content, group_of(upload_id)

    async def _replay(self, tenant: str, replica: Replica, call: Call[Any]) -> tuple[Success, int] | None:
        """The recorded outcome of an exact repeat, and its snapshot. A record found is looked up once more in what
        head says now: a restore may have replaced the history it belongs to."""

        async def look() -> tuple[Success, int] | None:
            generation = replica.generation
            found = await self._on_view(tenant, generation, lambda view: replay_from_snapshot(view, call))
            return None if found is None else (found, generation.meta.commit_seq)

        if await look() is None:
            return None
        await replica.refresh_anew()
        return await look()

    async def _enqueue(self, tenant: str, request: Request, replica: Replica, group: str) -> AttemptId:
        history = replica.history
        attempt_id, message = await outgoing(self._environment, tenant, request, history=history, group=group)
        await self._queue.send(message)
        return attempt_id

    async def _outcome(
        self, replica: Replica, attempt_id: AttemptId, wait_seconds: float, *, founds: bool
    ) -> tuple[Success, int]:
        """The attempt's outcome out of the replica, so that this process reads its own write from then on.

        Raises the refusal it met, `WRITE_PENDING`, or `FORBIDDEN` when the tenant is deleted meanwhile.
        """
        looked_at: Generation | None = None
        decided: list[tuple[Success, int] | MemoreeError] = []

        def reached() -> bool:
            nonlocal looked_at
            if replica.tombstone is not None and not founds:
                raise deleted(replica.tenant)
            if (generation := replica.generation) is not looked_at:
                looked_at = generation
                with generation.connection() as db:
                    if (attempt := attempts.find(db, attempt_id)) is not None:
                        decided.append(_outcome_of(db, attempt, generation))
            return bool(decided)

        if not await self._replicas.until(replica, reached, wait_seconds, self._pace):
            raise write_pending(attempt_id)
        (outcome,) = decided
        if isinstance(outcome, MemoreeError):
            raise outcome
        return outcome

    @property
    def many_writes(self) -> ManyWrites:
        """For who has many writes at once."""
        return self._many_writes

    async def operation_status(self, tenant: str, attempt_id: AttemptId) -> OperationStatus:
        """See `memoree.service.Service.operation_status`."""

        def look(view: View) -> OperationStatus:
            now_ms = clock.milliseconds(self._environment.clock())
            return OperationStatus.of(view.db, attempt_id, commit_seq=view.meta.commit_seq, now_ms=now_ms)

        try:
            async with self._replicas.ready(tenant, strong=True) as replica:
                return await self._on_view(tenant, replica.generation, look)
        except ObjectStoreError as error:
            raise unreachable(error) from error

    @property
    def uploads(self) -> Uploads:
        """See `memoree.service.Service.uploads`."""
        return self._uploads

    async def newer(self, tenant: str, commit_seq: int, seconds: float) -> bool:
        """See `memoree.service.Service.newer`."""
        try:
            async with self._replicas.ready(tenant, strong=False) as replica:
                return await self._replicas.wait(
                    replica, lambda: replica.generation.meta.commit_seq > commit_seq, seconds
                )
        except ObjectStoreError as error:
            raise unreachable(error) from error

    async def cursor_key(self) -> bytes:
        """See `memoree.service.Service.cursor_key`."""
        if self._cursor_key is None:
            try:
                self._cursor_key = await shared_secret(self._environment.store, CURSOR_KEY)
            except ObjectStoreError as error:
                raise unreachable(error) from error
        return self._cursor_key

    async def record_erasure(self, tenant: str, erasure: Erasure, *, blobs: int) -> ErasureReceipt:
        """See `memoree.service.Service.record_erasure`. The writer rewrites the database at the same time."""
        try:
            await record(self._environment.store, tenant, erasure)
        except ObjectStoreError as error:
            raise unreachable(error) from error
        return deployment_receipt(self._environment.retention, self._environment.clock(), blobs=blobs)

    @property
    def administration(self) -> Tenants:
        """See `memoree.service.Service.administration`."""
        from memoree.jobs.tenant_administration import ReplicatedTenants

        return ReplicatedTenants(self._environment.store, self, self._environment.deletion)

    def granted(self, tenant: str) -> Quota | None:
        """See `memoree.service.Service.granted`: as the newest state says that this process has of it."""
        return self._replicas.granted(tenant)

    async def queue_lag(self, tenant: str) -> bool:
        """See `memoree.service.Service.queue_lag`."""
        try:
            waiting = await self._queue.waiting_in(tenant, most=limits.QUEUE_LAG_COMMANDS + 1)
        except QueueError as error:
            log.warning("the queue does not tell how many commands wait: %s", error)
            return False
        return waiting is not None and waiting > limits.QUEUE_LAG_COMMANDS

    # --- health -------------------------------------------------------------------------------------------------

    async def readiness(self) -> list[Check]:
        """See `memoree.service.Service.readiness`."""
        return list(await asyncio.gather(self._check_store(), self._check_queue(), self._check_replicas()))

    async def _check_store(self) -> Check:
        """A canary really written, read and removed: health endpoints of stores lie (design §11)."""
        key, canary = f"{CANARY_PREFIX}{new_ulid()}", new_ulid().encode()
        store = self._environment.store
        began = time.monotonic()
        try:
            await store.put(key, canary)
            found = await store.get(key)
            await store.delete(key)
        except (ObjectStoreError, ObjectMissing) as error:
            return Check("store", ok=False, detail=str(error))
        ok = found is not None and found.body == canary
        detail = "" if ok else "the canary was not read back as it was written"
        return Check("store", ok=ok, detail=detail, measures={"seconds": time.monotonic() - began})

    async def _check_queue(self) -> Check:
        try:
            stats = await self._queue.stats()
        except QueueError as error:
            return Check("queue", ok=False, detail=str(error))
        measures: dict[str, float] = {"waiting": stats.waiting, "in_flight": stats.in_flight, "dead": stats.dead}
        detail, age = "", stats.oldest_age_seconds
        if age is None and not stats.waiting and not stats.in_flight:
            age = 0.0
        if age is not None:  # SQS tells it to CloudWatch alone
            measures["oldest_age_seconds"] = age
            if age > QUEUE_AGE_SECONDS_MAX:
                detail = f"the oldest command has waited {age:.1f} s: is the writer running?"
        return Check("queue", ok=not detail, detail=detail, measures=measures)

    async def _check_replicas(self) -> Check:
        alarmed, ages = self._replicas.alarmed_tenants, self._replicas.ages()
        if alarmed:
            detail = f"head of {len(alarmed)} tenants is missing or damaged, or does not vouch for their states"
        elif ages.replica_seconds > REPLICA_AGE_SECONDS_MAX:
            detail = f"a tenant in use is shown as it was {ages.replica_seconds:.1f} s ago"
        else:
            detail = ""
        measures = {"replica_age_seconds": ages.replica_seconds, "head_age_seconds": ages.head_seconds}
        return Check("replicas", ok=not detail, detail=detail, measures=measures)

    async def close(self) -> None:
        await self._long_reads.close()
        await self._replicas.close()

    def _blob_store(self, tenant: str) -> BlobStore:
        return BlobStore(self._environment.store, tenant, cache=self._blob_cache)


def _outcome_of(
    db: apsw.Connection, attempt: attempts.Attempt, generation: Generation
) -> tuple[Success, int] | MemoreeError:
    try:
        return outcome_of(db, attempt), generation.meta.commit_seq
    except MemoreeError as refused:
        return refused
