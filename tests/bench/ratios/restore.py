"""Restores of a tenant of 100 MB with 1 GiB of blobs, which stay where they are, over itself.

First the backup as a proven database file, against getting the same bytes into a file. Then all of it, from the call
until head points to a new epoch with the restored state, against getting the same bytes and storing them again: a
tenant of a deployment is served from the object store, so no restore of one does without that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from memoree.assembly import job_site
from memoree.backup.record import BackupRecord, fetch_checkpoint, records
from memoree.jobs.backup import create, pieces_of
from memoree.jobs.replicated import JobSite
from memoree.jobs.restore import Options, restore_backup
from memoree.objects.copying import Place
from memoree.objects.streaming import windows

from ..figures import Figure, Ratio, p50
from ..site import BACKUP, Site
from .backup import COPY_KEY, MB, fill_tenant, job_settings

ROUNDS_MAX = 5
WINDOW_BYTES = 8 * 1024 * 1024


async def measure_file(site: Site) -> Figure:
    fetched: list[float] = []
    gets: list[float] = []
    async with job_site(job_settings(site)) as jobs:
        backup = await _newest(site, jobs)
        path = jobs.scratch.new_subdirectory("fetched") / "database"
        await fetch_checkpoint(jobs.store, backup, path)
        await jobs.store.put_stream(COPY_KEY, pieces_of(path), size=backup.checkpoint.size)
        for _ in range(min(site.plan.rounds, ROUNDS_MAX)):
            path.unlink()
            gets.append(await _got(jobs, backup.checkpoint.size, path))
            path.unlink()
            began = time.perf_counter()
            await fetch_checkpoint(jobs.store, backup, path)
            fetched.append(time.perf_counter() - began)
    absolute = {"fetch_backup_ms": p50(fetched) * 1000, "get_database_ms": p50(gets) * 1000}
    return Figure(p50(fetched), p50(gets), absolute)


async def measure_tenant(site: Site) -> Figure:
    restores: list[float] = []
    moves: list[float] = []
    async with job_site(job_settings(site)) as jobs:
        backup = await _newest(site, jobs)
        path = jobs.scratch.new_subdirectory("moved") / "database"
        await fetch_checkpoint(jobs.store, backup, path)
        await jobs.store.put_stream(COPY_KEY, pieces_of(path), size=backup.checkpoint.size)
        for _ in range(min(site.plan.rounds, ROUNDS_MAX)):
            path.unlink()
            began = time.perf_counter()
            await _got(jobs, backup.checkpoint.size, path)
            await jobs.store.put_stream(COPY_KEY, pieces_of(path), size=backup.checkpoint.size)
            moves.append(time.perf_counter() - began)
            restores.append(await _restored(jobs, backup))
    absolute = {
        "restore_ms": p50(restores) * 1000,
        "get_and_put_database_ms": p50(moves) * 1000,
        "restore_database_mb": backup.checkpoint.size / MB,
    }
    return Figure(p50(restores), p50(moves), absolute)


async def _newest(site: Site, jobs: JobSite) -> BackupRecord:
    await site.once_for_all(fill_tenant)
    found = await records(jobs.store, BACKUP)
    return found[-1] if found else await create(jobs.tenancy(BACKUP), jobs.scratch.path)


async def _restored(jobs: JobSite, backup: BackupRecord) -> float:
    began = time.perf_counter()
    restored = await restore_backup(jobs, Place(jobs.store, BACKUP), backup, BACKUP, Options(replace=True))
    seconds = time.perf_counter() - began
    assert restored.got["commit_seq"] == backup.commit_seq, restored
    return seconds


async def _got(jobs: JobSite, size: int, path: Path) -> float:
    began = time.perf_counter()
    with path.open("xb") as file:
        async for window in windows(jobs.store, COPY_KEY, 0, size, window_bytes=WINDOW_BYTES):
            file.write(window.body)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began


FILE = Ratio(
    name="restore_over_get",
    measured_is="seconds to restore a backup of 100 MB as a proven database file",
    floor_is="getting the same bytes into a file",
    must=2.5,
    aim=1.5,
    measure=measure_file,
)
TENANT = Ratio(
    name="restore_over_get_and_put",
    measured_is="seconds of a restore of 100 MB over a living tenant with 1 GiB of blobs",
    floor_is="getting the same bytes and storing them again",
    must=2.5,
    aim=1.5,
    measure=measure_tenant,
)
