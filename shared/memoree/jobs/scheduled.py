"""The jobs of a deployment by name: what its schedule runs, and what a function is told to run."""

from __future__ import annotations

from typing import Any

from memoree import limits
from memoree.errors import MemoreeError
from memoree.jobs import backup_site, gc, leftovers, prefixes
from memoree.jobs import verify as verification
from memoree.jobs.backup import Progress, silently
from memoree.jobs.replicated import JobSite
from memoree.jobs.retained import is_anything_retained
from memoree.jobs.schedule import Done, Job
from memoree.objects import ObjectStoreError
from memoree.settings import StackSettings


def jobs(settings: StackSettings) -> list[Job[JobSite]]:
    """All of them; those whose period is 0 are not run by themselves."""
    return [
        Job("backup", settings.backup_every_seconds, back_up, also_idle=False),
        Job("verify", settings.verify_every_seconds, verify),
        Job("gc", settings.gc_every_seconds, collect),
    ]


async def back_up(site: JobSite, tenant: str) -> Done:
    """A backup, if the newest is not of the present state, a copy of it in the second bucket, and the retention. When
    that fails the backup is made all the same: it is told, and not a reason to make another one."""
    made = await backup_site.keep_backed_up(site, tenant)
    try:
        pruned = await backup_site.prune_all(site, tenant)
    except (MemoreeError, ObjectStoreError, OSError) as error:
        pruned = {"failures": {tenant: str(error)}}
    results = {"backup": made, "prune": pruned}
    incomplete = [name for name, result in results.items() if not backup_site.is_complete(result)]
    problem = f"not everything was done of: {', '.join(incomplete)}" if incomplete else None
    again = site.settings.backup_every_seconds if await is_anything_retained(site, tenant) else None
    return Done(results, len(incomplete), problem, again)


async def verify(site: JobSite, tenant: str, *, full: bool = False, progress: Progress = silently) -> Done:
    """See `memoree.jobs.verify`."""
    verdict = await verification.verify(
        site.store, site.writer.replicator, tenant, site.scratch.path, full=full, progress=progress
    )
    count = len(verdict.issues) + verdict.issues_left_out
    problem = None if verdict.ok else f"{count} issues, the first: {verdict.issues[0]}"
    return Done(verdict.to_wire(), count, problem)


async def collect(site: JobSite, tenant: str) -> Done:
    """Blobs that nothing holds, prefixes of old epochs, leftovers: of the tenant, and those that belong to none."""
    settings, now = site.settings, site.writer.clock
    grace = gc.Grace(settings.gc_grace_seconds, settings.point_in_time_seconds)
    blobs = await gc.collect(site.tenancy(tenant), grace)
    epochs = await prefixes.clean(site.store, tenant, now(), point_in_time_seconds=settings.point_in_time_seconds)
    sweeps = {"leftovers": await leftovers.sweep_tenant(site.store, tenant, now)}
    sweeps["site"] = await leftovers.sweep_site(site.store, now)
    result: dict[str, Any] = {
        "blobs": blobs.to_wire(),
        "prefixes": epochs.to_wire(),
        **{name: sweep.to_wire() for name, sweep in sweeps.items()},
    }
    failed = sum(removal.failed for removal in (blobs.deletes, epochs.removal, *(s.removal for s in sweeps.values())))
    problem = f"{failed} objects could not be deleted" if failed else None
    again = [settings.gc_every_seconds] if await is_anything_retained(site, tenant) else []
    again += [limits.COLLECT_RELEASE_SECONDS_MIN + limits.JOBS_WAIT_SECONDS] if blobs.condemned else []
    return Done(result, failed, problem, min(again, default=None))
