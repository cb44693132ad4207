"""Which backups are kept, and that no other is touched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memoree.backup.record import BackupRecord, in_use, records
from memoree.backup.retention import Pruned, Retention, prune
from memoree.clock import stored
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectStoreError
from memoree.objects.filesystem import FilesystemStore

from .workshop import Workshop

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""A Sunday: the last day of its week."""
NEWEST = Retention(last=1, daily=0, weekly=0)


def pruned(workshop: Workshop, policy: Retention, **how: bool) -> Pruned:
    return asyncio.run(prune(workshop.store, workshop.tenant, policy, **how))


def ids(workshop: Workshop) -> list[str]:
    return [made.backup_id for made in asyncio.run(records(workshop.store, workshop.tenant))]


@pytest.fixture
def three(workshop: Workshop) -> list[BackupRecord]:
    made = []
    for _ in range(3):
        workshop.clock.advance(hours=1)
        made.append(workshop.back_up())
    return made


@pytest.mark.proves("operations-24")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (Retention(1, 0, 0), [-1]),
        (Retention(3, 0, 0), [-3, -2, -1]),
        (Retention(1, 2, 0), [-5, -1]),  # the newest of the day before
        (Retention(1, 4, 0), [-9, -7, -5, -1]),  # a day without backups does not count
        (Retention(1, 0, 2), [-7, -1]),  # the last one of the Sunday, the newest of this week
        (Retention(1, 0, 9), [-9, -7, -1]),
        (Retention(2, 2, 2), [-7, -5, -2, -1]),
        (Retention(99, 99, 99), [-9, -8, -7, -6, -5, -4, -3, -2, -1]),
        (Retention(0, 0, 0), [-1]),
    ],
)
def test_the_last_ones_and_the_newest_of_days_and_weeks_are_kept(
    workshop: Workshop, policy: Retention, kept: list[int]
) -> None:
    hours = [-7 * 24 - 1, -2, 0, 24, 26, 72, 73, 74, 75]
    one = workshop.back_up()
    found = [
        replace(one, backup_id=f"bkp_{number}", created_at=stored(START + timedelta(hours=hour)))
        for number, hour in enumerate(hours)
    ]
    assert policy.kept(found) == {found[place].backup_id for place in kept}


@pytest.mark.proves("operations-24")
def test_what_is_not_kept_is_removed_with_all_its_objects_and_the_blobs_stay(filled: Workshop) -> None:
    old = filled.back_up()
    filled.clock.advance(hours=1)
    new = filled.back_up()
    done = pruned(filled, NEWEST)
    assert (done.pruned, done.kept, done.in_use) == ([old.backup_id], [new.backup_id], [])
    assert (done.removal.removed, done.removal.failed) == (4, 0)
    assert all(new.backup_id in key for key in filled.backup_keys())
    assert filled.verify(new.backup_id, full=True).ok
    with pytest.raises(MemoreeError) as refusal:
        filled.verify(old.backup_id)
    assert refusal.value.code is Code.NOT_FOUND


def test_a_dry_run_tells_the_same_and_removes_nothing(workshop: Workshop, three: list[BackupRecord]) -> None:
    keys = workshop.backup_keys()
    told = pruned(workshop, NEWEST, dry_run=True)
    assert told.pruned == [made.backup_id for made in three[:2]]
    assert workshop.backup_keys() == keys
    assert pruned(workshop, NEWEST).pruned == told.pruned


def test_a_backup_that_is_being_read_is_not_pruned(workshop: Workshop, three: list[BackupRecord]) -> None:
    async def reading() -> Pruned:
        async with in_use(workshop.store, three[0]):
            told = await prune(workshop.store, workshop.tenant, NEWEST, dry_run=True)
            assert told.in_use == [three[0].backup_id]
            return await prune(workshop.store, workshop.tenant, NEWEST)

    done = asyncio.run(reading())
    assert (done.in_use, done.pruned) == ([three[0].backup_id], [three[1].backup_id])
    assert workshop.verify(three[0].backup_id).ok
    assert pruned(workshop, NEWEST).pruned == [three[0].backup_id]


def test_a_reader_that_was_killed_holds_its_backup_for_a_day(workshop: Workshop, three: list[BackupRecord]) -> None:
    mark = three[0].key_of("readers/killed")
    asyncio.run(workshop.store.put(mark, b"{}"))
    workshop.age(mark, hours=23)
    assert pruned(workshop, NEWEST).in_use == [three[0].backup_id]
    workshop.age(mark, hours=2)
    assert pruned(workshop, NEWEST).pruned == [three[0].backup_id]


class WithAReader(FilesystemStore):
    """Somebody begins to read a backup exactly when its record goes."""

    first: BackupRecord

    async def delete(self, key: str) -> None:
        if key == self.first.key_of("backup.json"):
            await self.put(self.first.key_of("readers/just-now"), b"{}")
        await super().delete(key)


def test_a_backup_that_somebody_begins_to_read_meanwhile_is_put_back(
    workshop: Workshop, three: list[BackupRecord]
) -> None:
    store = WithAReader(workshop.store.root)
    store.first = three[0]
    done = asyncio.run(prune(store, workshop.tenant, NEWEST))
    assert (done.in_use, done.pruned) == ([three[0].backup_id], [three[1].backup_id])
    assert workshop.verify(three[0].backup_id).ok


def test_whoever_comes_after_the_record_went_finds_nothing(workshop: Workshop, three: list[BackupRecord]) -> None:
    asyncio.run(workshop.store.delete(three[0].key_of("backup.json")))

    async def read() -> None:
        async with in_use(workshop.store, three[0]):
            raise AssertionError("it is gone")

    with pytest.raises(MemoreeError) as refusal:
        asyncio.run(read())
    assert refusal.value.code is Code.NOT_FOUND
    assert not any("readers/" in key for key in workshop.backup_keys())


@pytest.mark.proves("operations-18")
@pytest.mark.parametrize(("hours", "removed"), [(23.9, False), (24.1, True)])
def test_what_a_broken_off_backup_left_goes_after_a_day(filled: Workshop, hours: float, removed: bool) -> None:
    kept, broken = filled.back_up(), filled.back_up()
    filled.path(broken.key_of("backup.json")).unlink()
    filled.age(broken.key_of("intent.json"), hours=hours)
    filled.age(kept.key_of("intent.json"), hours=hours)
    done = pruned(filled, NEWEST)
    assert done.unfinished == ([broken.backup_id] if removed else [])
    assert any(broken.backup_id in key for key in filled.backup_keys()) is not removed
    assert filled.verify(kept.backup_id).ok


class Refusing(FilesystemStore):
    async def delete(self, key: str) -> None:
        if key.endswith("checkpoint.db.zst"):
            raise ObjectStoreError("AccessDenied: not today")
        await super().delete(key)


@pytest.mark.proves("fault-49")
def test_an_object_that_cannot_be_removed_is_told_and_found_again(
    workshop: Workshop, three: list[BackupRecord]
) -> None:
    done = asyncio.run(prune(Refusing(workshop.store.root), workshop.tenant, NEWEST))
    keys = {made.key_of("checkpoint.db.zst") for made in three[:2]}
    assert (set(done.removal.failures), done.removal.failed, done.removal.removed) == (keys, 2, 4)
    assert all("AccessDenied" in reason for reason in done.removal.failures.values())
    left = {made.key_of("intent.json") for made in three[:2]}
    assert left <= set(workshop.backup_keys()), "without the intent nobody would find the rest"
    for key in left:
        workshop.age(key, hours=25)
    assert pruned(workshop, NEWEST).unfinished == [made.backup_id for made in three[:2]]
    assert all(three[2].backup_id in key for key in workshop.backup_keys())
