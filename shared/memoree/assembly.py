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
    from memoree.jobs.replicated import JobSite
    from memoree.objects.s3 import S3Settings
    from memoree.queue import CommandQueue
    from memoree.reader.service import ReplicatedService
    from memoree.replication.litestream import LitestreamSettings, ReplicaTarget
    from memoree.replication.replicator import LitestreamReplicator
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


# --- stack and cloud --------------------------------------------------------------------------------------------


@asynccontextmanager
async def replicated_service(settings: StackSettings, *, authorization: bool) -> AsyncIterator[ReplicatedService]:
    """An api process: reads a replica, writes through the queue."""
    import asyncio

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
        )
        service = ReplicatedService(environment, queue)
        stack.push_async_callback(service.close)
        yield service


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
async def job_site(settings: StackSettings) -> AsyncIterator[JobSite]:
    """A process that runs jobs: reads as an api does, writes through the queue, and may take reigns of its own."""
    from memoree.jobs.replicated import JobSite
    from memoree.process_directory import ProcessDirectory

    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(_writer_environment(settings))
        service = await stack.enter_async_context(replicated_service(settings, authorization=True))
        scratch = ProcessDirectory(settings.runtime_dir / "jobs")
        stack.callback(scratch.remove)
        yield JobSite(settings, writer.store, service, writer, scratch)


@asynccontextmanager
async def _writer_environment(settings: StackSettings) -> AsyncIterator[WriterEnvironment]:
    import asyncio

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
    """Raises `CONFIG_ERROR` for a URL that is neither kind of queue."""
    parts = urlsplit(settings.queue_url)
    if parts.scheme == "sqlite" and parts.path:
        from memoree.queue.sqlite import SqliteQueue

        return SqliteQueue(Path(parts.path))
    if parts.scheme in ("http", "https"):
        from memoree.queue.sqs import SqsEndpoint, SqsQueue

        endpoint = SqsEndpoint(
            region=settings.region,
            endpoint_url=settings.queue_endpoint_url,
            access_key_id=settings.access_key_id,
            secret_access_key=_secret(settings),
        )
        return SqsQueue(settings.queue_url, settings.dead_letter_url, endpoint=endpoint)
    raise MemoreeError(Code.CONFIG_ERROR, f"{shown(settings.queue_url)} is neither sqlite:///FILE nor an SQS URL")
