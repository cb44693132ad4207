"""The one place where the profiles differ: it turns settings into adapters and ties them together.

Imports of a profile's adapters stay inside its functions: the shell starts without the replicated ones, and an api
process without the writer.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memoree import clock, limits
from memoree.errors import Code, MemoreeError, shown
from memoree.operations.view import ServiceFacts

if TYPE_CHECKING:
    from memoree.embedded import EmbeddedService
    from memoree.http.auth import Tokens
    from memoree.ingest.ingestion import Ingestion
    from memoree.jobs.replicated import JobSite
    from memoree.jobs.tenant_deletion import DeletionSite
    from memoree.objects import ObjectStore
    from memoree.objects.s3 import S3Settings
    from memoree.queue import CommandQueue, DeadLetterBox
    from memoree.queue.sqs import SqsEndpoint
    from memoree.reader.service import ReplicatedService
    from memoree.replication.litestream import LitestreamSettings, ReplicaTarget
    from memoree.replication.replicator import LitestreamReplicator
    from memoree.serverless.writer import WriterSite
    from memoree.settings import StackSettings
    from memoree.writer.environment import WriterEnvironment
    from memoree.writer.worker import WriterWorker

READER_THREADS = 4
WRITER_THREADS = 4


# --- embedded ---------------------------------------------------------------------------------------------------


def embedded_facts(*, running: bool, lifecycle_owner: str = "memoree") -> ServiceFacts:
    return ServiceFacts(
        blob_store="filesystem",
        connections_max=limits.UNIX_CONNECTIONS_MAX,
        authorization=False,
        pid=os.getpid(),
        running=running,
        lifecycle_owner=lifecycle_owner,
    )


def embedded_service(
    data_dir: Path, *, clock: Callable[[], datetime] = clock.utc_now, facts: ServiceFacts | None = None
) -> EmbeddedService:
    """The embedded profile over a data directory, which is created when missing."""
    from memoree.embedded import EmbeddedService

    return EmbeddedService(data_dir, facts=facts or embedded_facts(running=True), clock_now=clock)


@asynccontextmanager
async def embedded_ingestion(data_dir: Path) -> AsyncIterator[Ingestion]:
    """The ingest queue of a data directory, worked off by whoever opens it."""
    from memoree.data_directory import INGEST_QUEUE_NAME
    from memoree.embedded import LOCAL_TENANT
    from memoree.ingest.dead import DeadLetters
    from memoree.ingest.ingestion import Ingestion
    from memoree.ingest.publisher import Publisher, StoredUploads
    from memoree.ingest.site import IngestSite, one_by_one
    from memoree.ingest.worker import IngestWorker
    from memoree.jobs.embedded import EmbeddedTenancy
    from memoree.queue.sqlite import SqliteQueue

    async def knows(tenant: str) -> bool:
        return tenant == LOCAL_TENANT

    async with AsyncExitStack() as stack:
        service = embedded_service(data_dir)
        stack.push_async_callback(service.close)
        queue = SqliteQueue(data_dir / INGEST_QUEUE_NAME)
        stack.push_async_callback(queue.close)
        dead = DeadLetters(queue, queue, clock.utc_now)
        tenancy = EmbeddedTenancy(service)
        worker = IngestWorker(IngestSite(service, one_by_one(service), lambda _tenant: tenancy, knows, dead))
        yield Ingestion(queue, dead, Publisher(queue, StoredUploads(service.uploads, knows)), worker)


# --- stack and cloud --------------------------------------------------------------------------------------------


@asynccontextmanager
async def replicated_service(settings: StackSettings, *, authorization: bool) -> AsyncIterator[ReplicatedService]:
    """An api process: reads a replica, writes through the queue."""
    import asyncio

    from memoree.erasures import Retention
    from memoree.objects.s3 import S3Store
    from memoree.process_directory import ProcessDirectory
    from memoree.reader.environment import ReaderEnvironment
    from memoree.reader.service import ReplicatedService

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(S3Store(s3_settings(settings)))
        queue = _queue(settings)
        stack.push_async_callback(queue.close)
        directory = ProcessDirectory(settings.runtime_dir / "replicas")
        stack.callback(directory.remove)
        executor = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="reader")
        stack.push_async_callback(asyncio.to_thread, executor.shutdown)  # its threads may wait for the loop's answers
        environment = ReaderEnvironment(
            store=store,
            replicator=replicator(settings),
            directory=directory,
            facts=_replicated_facts(settings, authorization=authorization),
            executor=executor,
            uploads_through_service=settings.uploads_through_service,
            staleness_seconds_max=settings.staleness_seconds_max,
            retention=Retention.of(settings),
            deletion=await stack.enter_async_context(_deletion(settings, store)),
            bucket=settings.bucket,
        )
        service = ReplicatedService(environment, queue)
        stack.push_async_callback(service.close)
        yield service


@asynccontextmanager
async def _deletion(settings: StackSettings, store: ObjectStore) -> AsyncIterator[DeletionSite | None]:
    """What an api needs to delete whole tenants, where it may."""
    from memoree.jobs.tenant_deletion import Buckets
    from memoree.objects.s3 import S3Store

    elsewhere = _second_bucket(settings)
    if not settings.api_deletes_tenants:
        yield None
    elif elsewhere is None:
        yield Buckets(store, None, settings.lease_ttl_seconds)
    else:
        async with S3Store(elsewhere) as second:
            yield Buckets(store, second, settings.lease_ttl_seconds)


@asynccontextmanager
async def writer_worker(settings: StackSettings, *, supervised: bool = False) -> AsyncIterator[WriterWorker]:
    """The writer process. `supervised`: see `WriterWorker`."""
    from memoree.writer.worker import WriterWorker

    async with AsyncExitStack() as stack:
        environment = await stack.enter_async_context(_writer_environment(settings))
        queue = _queue(settings)
        stack.push_async_callback(queue.close)
        yield WriterWorker(environment, queue, supervised=supervised)


@asynccontextmanager
async def writer_site(settings: StackSettings) -> AsyncIterator[WriterSite]:
    """A writer that events bring its messages to. Raises `CONFIG_ERROR` for a store that breaks a promise the fence
    needs."""
    from memoree.objects.selftest import prove_store
    from memoree.serverless.writer import WriterSite

    async with AsyncExitStack() as stack:
        environment = await stack.enter_async_context(_writer_environment(settings))
        queue = _queue(settings)
        stack.push_async_callback(queue.close)
        await prove_store(environment.store)
        site = WriterSite(environment, queue)
        stack.push_async_callback(site.close)
        yield site


@asynccontextmanager
async def ingestion(settings: StackSettings, *, follows_tokens: bool = True) -> AsyncIterator[Ingestion]:
    """The ingest queue of a deployment, and a worker for the tenants that were written to or are in the tokens file.
    `follows_tokens`: changes of the latter are seen without being asked for. Raises `CONFIG_ERROR` for a deployment
    that has no such queue."""
    from memoree.ingest.dead import DeadLetters
    from memoree.ingest.ingestion import Ingestion
    from memoree.ingest.publisher import Publisher, StoredUploads
    from memoree.ingest.site import IngestSite
    from memoree.ingest.worker import IngestWorker
    from memoree.jobs.replicated import ReplicatedTenancy
    from memoree.objects.s3 import S3Store
    from memoree.replication import layout
    from memoree.replication.head import HeadFile
    from memoree.uploads import Uploads

    if settings.ingest_queue_url is None:
        raise MemoreeError(Code.CONFIG_ERROR, "the deployment has no ingest queue: MEMOREE_INGEST_QUEUE_URL is not set")
    tokens = _tokens(settings)
    async with AsyncExitStack() as stack:
        if tokens is not None:
            await stack.enter_async_context(tokens.opened(followed=follows_tokens))
        store = await stack.enter_async_context(S3Store(s3_settings(settings)))
        service = await stack.enter_async_context(replicated_service(settings, authorization=True))
        queue, box = _ingest_queue(settings, settings.ingest_queue_url)
        stack.push_async_callback(queue.close)
        stack.push_async_callback(box.close)
        dead = DeadLetters(box, queue, clock.utc_now)

        async def knows(tenant: str) -> bool:
            if tokens is not None and tokens.names(tenant):
                return True
            head = HeadFile(store, layout.tenant_prefix(tenant))
            return await head.read() is not None or await head.is_missing()  # damage is waited for

        def tenancy(tenant: str) -> ReplicatedTenancy:
            return ReplicatedTenancy(tenant, store, service, clock.utc_now)

        uploads = Uploads(store, clock.utc_now, through_service=True)
        site = IngestSite(service, service.many_writes.write, tenancy, knows, dead)
        worker = IngestWorker(site, visibility_seconds=settings.ingest_visibility_seconds)
        yield Ingestion(queue, dead, Publisher(queue, StoredUploads(uploads, knows)), worker, tokens)


def _tokens(settings: StackSettings) -> Tokens | None:
    """Raises `CONFIG_ERROR`."""
    from memoree.http.auth import Tokens
    from memoree.tokens.places import FILE_VARIABLE, SECRET_VARIABLE, TEXT_VARIABLE, Access, chosen_place

    values = {
        FILE_VARIABLE: settings.tokens_file,
        TEXT_VARIABLE: None if settings.tokens is None else settings.tokens.get_secret_value(),
        SECRET_VARIABLE: settings.tokens_secret,
    }
    keys = (settings.region, settings.access_key_id, _secret(settings))
    place = chosen_place(values, Access(settings.endpoint_url, *keys), Access(settings.secrets_endpoint_url, *keys))
    return None if place is None else Tokens(place)


def _ingest_queue(settings: StackSettings, url: str) -> tuple[CommandQueue, DeadLetterBox]:
    """Raises `CONFIG_ERROR` for a URL that is neither kind of queue, or an SQS queue without its dead-letter queue."""
    from memoree.queue.sqlite import SqliteQueue

    queue = _queue_at(settings, url, settings.ingest_dead_letter_url)
    if isinstance(queue, SqliteQueue):
        return queue, queue
    from memoree.queue.sqs_dead import SqsDeadLetters

    if settings.ingest_dead_letter_url is None:
        raise MemoreeError(Code.CONFIG_ERROR, "an SQS ingest queue needs MEMOREE_INGEST_DEAD_LETTER_URL")
    return queue, SqsDeadLetters(settings.ingest_dead_letter_url, endpoint=_sqs_endpoint(settings))


@asynccontextmanager
async def job_site(settings: StackSettings) -> AsyncIterator[JobSite]:
    """A process that runs jobs: reads as an api does, writes through the queue, and may take reigns of its own."""
    from memoree.jobs.replicated import JobSite
    from memoree.objects.s3 import S3Store
    from memoree.process_directory import ProcessDirectory

    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(_writer_environment(settings))
        service = await stack.enter_async_context(replicated_service(settings, authorization=True))
        scratch = ProcessDirectory(settings.runtime_dir / "jobs")
        stack.callback(scratch.remove)
        second = None
        if (elsewhere := _second_bucket(settings)) is not None:
            second = await stack.enter_async_context(S3Store(elsewhere))
        yield JobSite(settings, writer.store, service, writer, scratch, second)


@asynccontextmanager
async def _writer_environment(settings: StackSettings) -> AsyncIterator[WriterEnvironment]:
    import asyncio

    from memoree.database.quota import Quota
    from memoree.objects.s3 import S3Store
    from memoree.process_directory import ProcessDirectory
    from memoree.writer.environment import WriterEnvironment, WriterTimings

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(S3Store(s3_settings(settings)))
        directory = ProcessDirectory(settings.runtime_dir / "epochs")
        stack.callback(directory.remove)
        executor = ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="writer")
        stack.push_async_callback(asyncio.to_thread, executor.shutdown)
        yield WriterEnvironment(
            store=store,
            replicator=replicator(settings),
            directory=directory,
            facts=_replicated_facts(settings, authorization=True),
            executor=executor,
            timings=WriterTimings(
                lease_ttl=settings.lease_ttl_seconds,
                lease_renew=settings.lease_renew_seconds,
                settle_after_idle=settings.settle_after_idle_seconds,
                sync_timeout=settings.sync_timeout_seconds,
                visibility=settings.visibility_seconds,
            ),
            tenants_held_max=settings.tenants_held_max,
            quota_default=Quota(settings.quota_rows, settings.quota_bytes),
        )


def _replicated_facts(settings: StackSettings, *, authorization: bool) -> ServiceFacts:
    return ServiceFacts(
        blob_store=settings.blob_store_name,
        connections_max=limits.HTTP_REQUESTS_IN_FLIGHT_MAX,
        authorization=authorization,
        pid=os.getpid(),
        running=True,
        lifecycle_owner="external",
    )


def s3_settings(settings: StackSettings) -> S3Settings:
    from memoree.objects.s3 import S3Settings

    return S3Settings(
        bucket=settings.bucket,
        endpoint_url=settings.endpoint_url,
        region=settings.region,
        access_key_id=settings.access_key_id,
        secret_access_key=_secret(settings),
    )


def _second_bucket(settings: StackSettings) -> S3Settings | None:
    from memoree.objects.s3 import S3Settings

    if settings.backup_bucket is None:
        return None
    secret = settings.backup_secret_access_key
    return S3Settings(
        bucket=settings.backup_bucket,
        endpoint_url=settings.backup_endpoint_url,
        region=settings.backup_region,
        access_key_id=settings.backup_access_key_id,
        secret_access_key=secret.get_secret_value() if secret is not None else None,
    )


def _secret(settings: StackSettings) -> str | None:
    return settings.secret_access_key.get_secret_value() if settings.secret_access_key is not None else None


def replica_target(settings: StackSettings) -> Callable[[str], ReplicaTarget]:
    from memoree.replication.litestream import Credentials, ReplicaTarget

    secret = _secret(settings)
    keys = Credentials(settings.access_key_id, secret) if settings.access_key_id and secret else None

    def target(prefix: str) -> ReplicaTarget:
        return ReplicaTarget(f"s3://{settings.bucket}/{prefix}", settings.endpoint_url, settings.region, keys)

    return target


def replicator(settings: StackSettings) -> LitestreamReplicator:
    from memoree.replication.replicator import LitestreamReplicator

    return LitestreamReplicator(replica_target(settings), _litestream_settings(settings))


def _litestream_settings(settings: StackSettings) -> LitestreamSettings:
    from memoree.replication.litestream import LitestreamSettings

    return LitestreamSettings(
        l0_retention_seconds=settings.l0_retention_seconds,
        l0_retention_check_seconds=settings.l0_retention_check_seconds,
        snapshot_interval_seconds=settings.snapshot_interval_seconds,
        snapshot_retention_seconds=settings.snapshot_retention_seconds,
        level_seconds=settings.level_seconds,
    )


def _queue(settings: StackSettings) -> CommandQueue:
    return _queue_at(settings, settings.queue_url, settings.dead_letter_url)


def _queue_at(settings: StackSettings, url: str, dead_letter_url: str | None) -> CommandQueue:
    """Raises `CONFIG_ERROR` for a URL that is neither kind of queue."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite" and parts.path:
        from memoree.queue.sqlite import SqliteQueue

        return SqliteQueue(Path(parts.path))
    if parts.scheme in ("http", "https"):
        from memoree.queue.sqs import SqsQueue

        return SqsQueue(url, dead_letter_url, endpoint=_sqs_endpoint(settings))
    raise MemoreeError(Code.CONFIG_ERROR, f"{shown(url)} is neither sqlite:///FILE nor an SQS URL")


def _sqs_endpoint(settings: StackSettings) -> SqsEndpoint:
    from memoree.queue.sqs import SqsEndpoint

    return SqsEndpoint(
        region=settings.region,
        endpoint_url=settings.queue_endpoint_url,
        access_key_id=settings.access_key_id,
        secret_access_key=_secret(settings),
    )
