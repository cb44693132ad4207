"""A backup of a tenant of 100 MB with 1 GiB of blobs, against copying its database file and storing the copy.

The job runs in a process that has read the tenant before, as the schedule of a running deployment does; what the first
one takes, which fetches the whole database, is told beside it. Blobs are referred to, not copied.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import time
from pathlib import Path

from memoree.assembly import job_site
from memoree.jobs.backup import create, pieces_of
from memoree.jobs.replicated import JobSite
from memoree.settings import StackSettings

from ..figures import Figure, Ratio, p50
from ..filling import fill
from ..site import BACKUP, Site, say
from ..wire import put_bytes

MB = 1_000_000
SEED = 11
ROUNDS_MAX = 5
"""Each stores the database twice."""
COPY_KEY = "bench/copy"


async def measure(site: Site) -> Figure:
    await site.once_for_all(fill_tenant)
    backups: list[float] = []
    copies: list[float] = []
    async with job_site(job_settings(site)) as jobs:
        first, database_bytes = await _backed_up(jobs, site.plan.backup_blobs)
        for _ in range(min(site.plan.rounds, ROUNDS_MAX)):
            copies.append(await _copied(jobs, site.directory / "copy.sqlite3"))
            backups.append((await _backed_up(jobs, site.plan.backup_blobs))[0])
    absolute = {
        "backup_ms": p50(backups) * 1000,
        "copy_and_put_ms": p50(copies) * 1000,
        "first_backup_ms": first * 1000,
        "backup_database_mb": database_bytes / MB,
    }
    return Figure(p50(backups), p50(copies), absolute)


async def fill_tenant(site: Site) -> None:
    plan, directory = site.plan, site.directory / "backup"
    directory.mkdir(mode=0o700)
    await fill(site.stack, site.store, BACKUP, plan.backup_claims, directory, say)
    say(f"storing {plan.backup_blobs} blobs")
    async with await site.stack.caller(BACKUP) as caller:
        for number in range(plan.backup_blobs):
            blob = random.Random(SEED + number).randbytes(plan.blob_bytes)
            await caller.call(put_bytes(base64.b64encode(blob).decode()))


def job_settings(site: Site) -> StackSettings:
    s3 = site.stack.s3
    return StackSettings(
        bucket=s3.bucket,
        endpoint_url=s3.endpoint_url,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        queue_url=f"sqlite://{site.stack.queue_path}",
        runtime_dir=site.directory / "jobs",
    )


async def _backed_up(jobs: JobSite, blobs: int) -> tuple[float, int]:
    """Seconds, and the size of the database."""
    began = time.perf_counter()
    made = await create(jobs.tenancy(BACKUP), jobs.scratch.path)
    seconds = time.perf_counter() - began
    assert made.manifest.blobs == blobs, made
    return seconds, made.checkpoint.size


async def _copied(jobs: JobSite, copy: Path) -> float:
    """Seconds to copy the very file that a backup reads, flushed, and to store it as it is."""
    began = time.perf_counter()
    size, _ = await jobs.tenancy(BACKUP).snapshot(lambda db: _copy(Path(db.filename), copy))
    await jobs.store.put_stream(COPY_KEY, pieces_of(copy), size=size)
    return time.perf_counter() - began


def _copy(source: Path, target: Path) -> int:
    """Bytes."""
    with source.open("rb") as reading, target.open("wb") as writing:
        shutil.copyfileobj(reading, writing)
        writing.flush()
        os.fsync(writing.fileno())
        return writing.tell()


RATIO = Ratio(
    name="backup_over_copy",
    measured_is="seconds of a backup of 100 MB with 1 GiB of blobs",
    floor_is="copying the database file and storing the copy",
    must=2.5,
    aim=1.5,
    measure=measure,
)
