"""Garbage collection of a real deployment: a store with presigned deletes, a writer, and collectors that are killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Clients, Site
from memoree.assembly import job_site
from memoree.clock import utc_now
from memoree.database import condemned
from memoree.ids import new_attempt_id
from memoree.jobs.replicated import JobSite
from memoree.objects.blobs import BlobStore, blob_prefix
from memoree.queue.sqlite import SqliteQueue
from memoree.writer.worker import WriterWorker

pytestmark = pytest.mark.stack

COLLECTOR = Path(__file__).with_name("collector_process.py")
DAYS_LATER = "5"
CRASH_POINTS = ("gc_settled", "gc_condemned", "gc_confirmed", "gc_deleted")


def text(name: str) -> str:
    return name.ljust(20_000, ".")


async def orphan(jobs: JobSite, tenant: str, name: str) -> str:
    """A blob whose command never came."""
    return await BlobStore(jobs.store, tenant).put(text(name).encode())


async def refusal_of(clients: Clients, name: str) -> str | None:
    """Why the text cannot be stored; `None` when it was."""
    payload = {"kind": "note", "title": name, "content": {"type": "text", "data": text(name)}}
    envelope = (await clients.call("artifact.put", payload, key=new_attempt_id(), wait_seconds=10)).envelope
    if envelope["ok"]:
        return None
    assert envelope["error"]["retryable"]
    return str(envelope["error"]["details"]["reason"])


async def blobs(jobs: JobSite, tenant: str) -> set[str]:
    return {info.key.rpartition("/")[2] async for info in jobs.store.list(blob_prefix(tenant))}


@asynccontextmanager
async def writer(jobs: JobSite, site: Site) -> AsyncIterator[Callable[[float], None]]:
    """The writer in this process, whose clock can be put ahead; the store's and the requests' stay what they are."""
    ahead = timedelta(0)

    def put_ahead(hours: float) -> None:
        nonlocal ahead
        ahead = timedelta(hours=hours)

    queue = SqliteQueue(site.directory / "queue.sqlite3")
    worker = WriterWorker(replace(jobs.writer, clock=lambda: utc_now() + ahead), queue, supervised=True)
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        yield put_ahead
    finally:
        stop.set()
        await running
        await queue.close()


async def run_collector(site: Site, *, crash_at: str | None = None) -> int:
    environment = site.environment
    if crash_at is not None:
        environment["MEMOREE_TEST_CRASH_AT"] = crash_at
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(COLLECTOR), site.tenant, DAYS_LATER, env=environment
    )
    return await process.wait()


@pytest.mark.proves("operations-35", "operations-38")
@pytest.mark.fault_class(11)
def test_collectors_killed_at_any_step_leave_nothing_that_later_ones_do_not_make_good(
    site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            tenancy = jobs.tenancy(site.tenant)
            async with writer(jobs, site) as put_ahead:
                kept = await clients.write_cited("kept")
                garbage = set()
                for point in CRASH_POINTS:
                    garbage.add(await orphan(jobs, site.tenant, point))
                    assert await run_collector(site, crash_at=point) == -signal.SIGKILL
                assert await refusal_of(clients, CRASH_POINTS[0]) == "digest_condemned"

                put_ahead(3)
                assert await run_collector(site) == 0
                assert garbage.isdisjoint(await blobs(jobs, site.tenant))
                put_ahead(6)
                assert await run_collector(site) == 0
                condemned_left, _ = await tenancy.snapshot(condemned.count)
                assert condemned_left == 0
                assert await refusal_of(clients, CRASH_POINTS[0]) is None
                assert len(garbage & await blobs(jobs, site.tenant)) == 1
        Checker(site, tmp_path).check([kept])

    asyncio.run(run())
