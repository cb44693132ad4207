"""Which backups are kept, and removing the others (design §8).

The newest is always kept, and so is one that somebody reads. No older one holds what was erased for longer than
`ERASED_IN_BACKUPS_SECONDS`. What a broken-off backup left is removed after a day,
never earlier: it may be another run's that is still under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from memoree import limits
from memoree.backup.record import INTENT_NAME, READERS_FOLDER, RECORD_NAME, BackupRecord, intents, records
from memoree.clock import from_stored, utc_now
from memoree.erasures import Erasure, recorded
from memoree.objects import ObjectInfo, ObjectMissing, ObjectStore
from memoree.objects.removal import Removal, remove_all
from memoree.replication import layout


@dataclass(frozen=True, slots=True)
class Retention:
    """Kept are the `last` ones, and the newest of each of the last `daily` days and `weekly` weeks that have any."""

    last: int
    daily: int
    weekly: int

    def kept(self, found: Sequence[BackupRecord]) -> set[str]:
        """Ids. `found` is ordered from old to new."""
        newest_first = found[::-1]
        kept = {record.backup_id for record in newest_first[: max(1, self.last)]}
        for count, period in ((self.daily, _day), (self.weekly, _week)):
            of_period: dict[tuple[int, ...], str] = {}
            for record in newest_first:
                of_period.setdefault(period(from_stored(record.created_at)), record.backup_id)
            kept |= set(list(of_period.values())[:count])
        return kept


@dataclass(slots=True)
class Pruned:
    """Ids of backups: `in_use` were to be pruned and are being read; `unfinished` had no record and were old. `removal`
    counts objects."""

    kept: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    removal: Removal = field(default_factory=Removal)


async def prune(store: ObjectStore, tenant: str, retention: Retention, *, dry_run: bool = False) -> Pruned:
    """Remove what the retention does not keep, and what broken-off backups left. A `dry_run` only tells. Objects that
    could not be removed are told, not raised. Raises as `memoree.backup.record.records`."""
    done = Pruned()
    found = await records(store, tenant)
    kept = retention.kept(found) - _overdue(found, await recorded(store, tenant), utc_now())
    for record in found:
        if record.backup_id in kept:
            done.kept.append(record.backup_id)
        elif await _is_in_use(store, record) or not (dry_run or await _remove(store, record, done.removal)):
            done.in_use.append(record.backup_id)
        else:
            done.pruned.append(record.backup_id)
    done.unfinished = await _old_and_unfinished(store, tenant)
    if not dry_run:
        done.removal.include(await _clear_all(store, tenant, done.unfinished))
    return done


async def remove_unfinished(store: ObjectStore, tenant: str) -> Removal:
    """What broken-off backups left, and nothing else: for deployments that make no backups of their own. Raises
    `StoreUnavailable`."""
    return await _clear_all(store, tenant, await _old_and_unfinished(store, tenant))


def end_of_erased(backup: BackupRecord, known: Sequence[Erasure]) -> datetime | None:
    """When a backup is pruned because it holds something that was erased since; `None` if it holds no such thing."""
    since = [from_stored(erasure.at) for erasure in known if erasure.commit_seq > backup.commit_seq]
    return min(since) + timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS) if since else None


def _overdue(found: Sequence[BackupRecord], known: Sequence[Erasure], now: datetime) -> set[str]:
    """Ids; never the newest one's, which is all there is to restore."""
    ends = {each.backup_id: end for each in found[:-1] if (end := end_of_erased(each, known)) is not None}
    return {backup_id for backup_id, end in ends.items() if end <= now}


async def _remove(store: ObjectStore, record: BackupRecord, removal: Removal) -> bool:
    """Whether nobody began to read it meanwhile: a reader leaves its mark before it looks for the record, so either
    the record is found gone by the reader, or the mark is found here and the record put back."""
    key = record.key_of(RECORD_NAME)
    await store.delete(key)
    if await _is_in_use(store, record):
        await store.put(key, record.to_bytes())
        return False
    removal.removed += 1
    removal.include(await _clear(store, record.tenant, record.backup_id))
    return True


async def _is_in_use(store: ObjectStore, record: BackupRecord) -> bool:
    async for info in store.list(record.key_of(READERS_FOLDER)):
        if await _age(store, info) < timedelta(seconds=limits.BACKUP_USE_SECONDS_MAX):
            return True
    return False


async def _old_and_unfinished(store: ObjectStore, tenant: str) -> list[str]:
    old = timedelta(seconds=limits.BACKUP_INTENT_REMOVAL_SECONDS)
    return [each.backup_id for each in await intents(store, tenant) if not each.published and each.age > old]


async def _age(store: ObjectStore, info: ObjectInfo) -> timedelta:
    """By the store's clock. No time at all for one that is gone by now: whoever asks had better look again."""
    try:
        found = await store.get(info.key)
    except ObjectMissing:
        return timedelta(0)
    assert found is not None, "a GET without a condition always has a body"
    return found.date - found.info.last_modified


async def _clear_all(store: ObjectStore, tenant: str, backup_ids: Sequence[str]) -> Removal:
    removal = Removal()
    for backup_id in backup_ids:
        removal.include(await _clear(store, tenant, backup_id))
    return removal


async def _clear(store: ObjectStore, tenant: str, backup_id: str) -> Removal:
    """The intent last: without it nobody would find the rest any more."""
    intent = layout.backup_key(tenant, backup_id, INTENT_NAME)
    found = [info.key async for info in store.list(layout.backup_key(tenant, backup_id, ""))]
    removal = await remove_all(store, [key for key in found if key != intent])
    if not removal.failed:
        removal.include(await remove_all(store, [intent]))
    return removal


def _day(instant: datetime) -> tuple[int, ...]:
    return instant.year, instant.month, instant.day


def _week(instant: datetime) -> tuple[int, ...]:
    return instant.isocalendar()[:2]
