"""How long the buckets of a deployment may hold what was erased: the lines of a receipt that look at them
(`docs/erasure.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import apsw

from memoree import clock, limits
from memoree.backup import record
from memoree.backup.erased import named_blobs
from memoree.backup.retention import end_of_erased
from memoree.concurrency import for_each
from memoree.database import condemned, events
from memoree.erasures import Erasure, recorded
from memoree.jobs.gc import Grace
from memoree.jobs.replicated import JobSite
from memoree.objects import ObjectMissing, ObjectStore
from memoree.objects.blobs import blob_key


async def blobs_until(site: JobSite, tenant: str, known: Sequence[Erasure], now: datetime) -> datetime | None:
    """When the last blob of what was erased is gone; `None` when it is. It waits for backups that are under way, for a
    past that a restore gave up and that may still be restored, and for the backups of such a past.

    Raises as `memoree.jobs.gc.collect`.
    """
    erased = sorted(named_blobs(known))

    def look(db: apsw.Connection) -> tuple[list[str], str | None]:
        return [each for each in erased if not condemned.is_cited(db, bytes.fromhex(each))], events.last_restore(db)

    (uncited, last_restore), meta = await site.tenancy(tenant).snapshot(look)
    if not await _is_any_there(site.store, tenant, uncited):
        return None
    settings = site.settings
    collected_every = timedelta(seconds=settings.gc_every_seconds)
    ends = [now + timedelta(seconds=limits.BACKUP_INTENT_REMOVAL_SECONDS) + collected_every]
    window = timedelta(seconds=settings.point_in_time_seconds)
    if last_restore is not None and clock.from_stored(last_restore) >= now - window:
        ends.append(now + Grace(settings.gc_grace_seconds, settings.point_in_time_seconds).age)
    others = [each for each in await record.records(site.store, tenant) if each.history != meta.history]
    pruned_every = timedelta(seconds=settings.backup_every_seconds)
    ends += [end + pruned_every for each in others if (end := end_of_erased(each, known)) is not None]
    return max(ends) + collected_every


async def backups_until(
    stores: Sequence[ObjectStore], tenant: str, known: Sequence[Erasure], now: datetime
) -> dict[str, datetime]:
    """By id, when the retention ends of the backups that hold what was erased: those that were made before, and those
    that were begun and are not published, of which nobody knows. Raises as `memoree.backup.record.records`."""
    ends: dict[str, datetime] = {}
    for store in stores:
        begun = [each for each in await record.intents(store, tenant) if not each.published]  # before it may be
        unknown = {each.backup_id: now + timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS) for each in begun}
        found = {each.backup_id: end_of_erased(each, known) for each in await record.records(store, tenant)}
        ends |= unknown | {backup_id: end for backup_id, end in found.items() if end is not None}
    return ends


async def is_anything_retained(site: JobSite, tenant: str) -> bool:
    """Whether a receipt may tell of an instant that is yet to come, which it does on the assumption that everything is
    collected and pruned once a period until then. Raises as `memoree.erasures.recorded`."""
    settings = site.settings
    periods = 2 * (settings.gc_every_seconds + settings.backup_every_seconds)
    history = settings.point_in_time_seconds + settings.gc_grace_seconds + limits.CLOCK_SKEW_SECONDS_MAX
    longest = timedelta(seconds=max(limits.ERASED_IN_BACKUPS_SECONDS, history) + periods)
    now = site.writer.clock()
    return any(clock.from_stored(each.at) + longest > now for each in await recorded(site.store, tenant))


async def _is_any_there(store: ObjectStore, tenant: str, digests: Sequence[str]) -> bool:
    found: list[str] = []

    async def look(digest: str) -> None:
        if not found:
            with suppress(ObjectMissing):
                await store.head(blob_key(tenant, digest))
                found.append(digest)

    await for_each(digests, look, at_once=limits.JOB_REQUESTS_AT_ONCE_MAX)
    return bool(found)
