"""Backups of a deployment, as its operator and its schedule ask for them: into the bucket, then to the second one.

Results are what the commands print and the functions return: plain members, times in wire form.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any, Literal

from memoree import clock, limits
from memoree.backup import record, second
from memoree.backup.record import BackupRecord
from memoree.backup.retention import Pruned, Retention, prune
from memoree.errors import Code, MemoreeError
from memoree.jobs.backup import Progress, create, require_head, silently
from memoree.jobs.backup_check import Checked, verify
from memoree.jobs.replicated import JobSite
from memoree.objects import ObjectStore, ObjectStoreError
from memoree.objects.removal import Removal
from memoree.replication import layout
from memoree.replication.head import Head, HeadFile

Json = dict[str, Any]
Place = Literal["first", "second"]


async def back_up(site: JobSite, tenant: str, *, full: bool = False, progress: Progress = silently) -> Json:
    """Make a backup, and bring every backup to the second bucket that it does not have. What keeps it from that is
    told under `second`, since the backup itself is made. Raises as `memoree.jobs.backup.create`, and `NOT_FOUND` for a
    tenant that was never written to."""
    await require_head(site.store, tenant)
    made = await create(site.tenancy(tenant), site.scratch.path, full=full, progress=progress)
    return await _with_second(site, made, progress)


async def keep_backed_up(site: JobSite, tenant: str) -> Json:
    """As `back_up`, unless the newest backup is of the state that the tenant is in."""
    newest = await _newest(site.store, tenant)
    reading = await HeadFile(site.store, layout.tenant_prefix(tenant)).read()
    if newest is None or reading is None or _state(newest) != _state(reading.head):
        return await back_up(site, tenant)
    return await _with_second(site, newest, silently)


async def _newest(store: ObjectStore, tenant: str) -> BackupRecord | None:
    """`None` also for one that cannot be read, and so is none to rely on."""
    if not (published := await record.published(store, tenant)):
        return None
    try:
        return await record.find(store, tenant, max(published))
    except MemoreeError:
        return None


def _state(covered: BackupRecord | Head) -> tuple[int, int]:
    return covered.history, covered.batch


async def _with_second(site: JobSite, made: BackupRecord, progress: Progress) -> Json:
    """What is told of a backup, and of what it took to bring every backup to the second bucket."""
    result = summary(made)
    if site.second is not None:
        try:
            copied = await second.copy_missing(site.store, site.second, made.tenant, site.scratch.path, progress)
        except (MemoreeError, ObjectStoreError, OSError) as error:
            copied = second.Copied(failures={made.backup_id: str(error)})
        result["second"] = asdict(copied)
    return result


async def list_all(site: JobSite, tenant: str, place: Place = "first") -> Json:
    """Every backup, oldest first; those that were begun and never published; and those whose record is damaged."""
    store = store_of(site, place)
    found: list[BackupRecord] = []
    unreadable: Json = {}
    for backup_id in await record.published(store, tenant):
        try:
            found.append(await record.find(store, tenant, backup_id))
        except MemoreeError as error:
            if error.code is not Code.NOT_FOUND:  # otherwise it was pruned meanwhile
                unreadable[backup_id] = error.message
    found.sort(key=record.age_order)
    begun = [intent for intent in await record.intents(store, tenant) if not intent.published]
    return {
        "backups": [summary(each) for each in found],
        "unfinished": {intent.backup_id: round(intent.age.total_seconds()) for intent in begun},
        "unreadable": unreadable,
    }


async def show(site: JobSite, tenant: str, backup_id: str, place: Place = "first") -> Json:
    """Everything its record says. Raises `NOT_FOUND`, `INTEGRITY_ERROR`."""
    return asdict(await record.find(store_of(site, place), tenant, backup_id))


async def check(
    site: JobSite,
    tenant: str,
    backup_id: str,
    place: Place = "first",
    *,
    full: bool = False,
    progress: Progress = silently,
) -> Json:
    """See `memoree.jobs.backup_check.verify`."""
    store = store_of(site, place)
    return _checked(await verify(store, tenant, backup_id, site.scratch.path, full=full, progress=progress))


async def prune_all(site: JobSite, tenant: str, *, dry_run: bool = False) -> Json:
    """By the retention of the settings, in both buckets. Raises as `memoree.backup.retention.prune`."""
    kept = site.settings
    retention = Retention(kept.backups_keep_last, kept.backups_keep_daily, kept.backups_keep_weekly)
    result = _pruned(await prune(site.store, tenant, retention, dry_run=dry_run))
    if site.second is not None:
        there = await prune(site.second, tenant, retention, dry_run=dry_run)
        if not dry_run:
            before = site.writer.clock() - timedelta(seconds=limits.BACKUP_INTENT_REMOVAL_SECONDS)
            there.removal.include(await second.sweep(site.second, tenant, site.scratch.path, before))
        result["second"] = _pruned(there)
    return result


def store_of(site: JobSite, place: Place) -> ObjectStore:
    """Raises `CONFIG_ERROR` for a second bucket that is not configured."""
    if place == "first":
        return site.store
    if site.second is None:
        raise MemoreeError(Code.CONFIG_ERROR, "there is no second bucket: MEMOREE_BACKUP_BUCKET names it")
    return site.second


def is_complete(result: Json) -> bool:
    """Whether nothing failed of what `back_up` or `prune_all` were to do."""
    parts = (result, result.get("second", {}))
    return not any(part.get("failures") for part in parts)


def summary(made: BackupRecord) -> Json:
    return {
        "backup_id": made.backup_id,
        "tenant": made.tenant,
        "commit_seq": made.commit_seq,
        "created_at": clock.wire(made.created_at),
        "database_bytes": made.checkpoint.size,
        "stored_bytes": made.checkpoint.stored_size + made.manifest.stored_size,
        "blobs": made.manifest.blobs,
        "blob_bytes": made.manifest.bytes,
    }


def _checked(checked: Checked) -> Json:
    return {
        "backup_id": checked.backup_id,
        "ok": checked.ok,
        "commit_seq": checked.record.commit_seq if checked.record is not None else None,
        "checked_artifact_revisions": checked.artifact_revisions,
        "checked_claim_revisions": checked.claim_revisions,
        "checked_blobs": checked.blobs,
        "restore_drill": checked.drill,
        "faults": [asdict(fault) for fault in checked.faults],
        "faults_left_out": checked.faults_left_out,
    }


def _pruned(pruned: Pruned) -> Json:
    removal: Removal = pruned.removal
    return {
        "kept": pruned.kept,
        "pruned": pruned.pruned,
        "in_use": pruned.in_use,
        "unfinished": pruned.unfinished,
        "removed_objects": removal.removed,
        "failed_removals": removal.failed,
        "failures": removal.failures,
    }
