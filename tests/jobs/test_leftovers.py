"""What commands, uploads, backups and checks left goes when its time is over, and not before."""

from __future__ import annotations

import asyncio

import pytest

from memoree import clock, limits
from memoree.backup.record import INTENT_NAME, MANIFEST_NAME, RECORD_NAME, new_backup_id
from memoree.ids import new_attempt_id, new_upload_id
from memoree.jobs.leftovers import Sweep, sweep_site, sweep_tenant
from memoree.objects.selftest import KEY_PREFIX
from memoree.reader.service import CANARY_PREFIX
from memoree.replication import layout
from operations.bench import ManualClock

from .kiln import TENANT, LateStore

KEEP = f"{layout.tenant_prefix(TENANT)}head.json"


@pytest.fixture
def store() -> LateStore:
    store = LateStore(ManualClock())
    store.place(KEEP, b"head")
    return store


def sweep(store: LateStore) -> tuple[Sweep, Sweep]:
    """As the job does, over the tenant and over what belongs to none."""

    async def run() -> tuple[Sweep, Sweep]:
        return await sweep_tenant(store, TENANT, lambda: store.now), await sweep_site(store, lambda: store.now)

    return asyncio.run(run())


LEFT = {
    "commands": layout.parked_command_key(TENANT, new_attempt_id()),
    "tries": layout.try_key(TENANT, new_attempt_id(), 1),
    "tries of uploads": layout.verification_try_key(TENANT, new_attempt_id(), 2),
    "answers": layout.answer_key(TENANT, "answer"),
    "canaries": f"{CANARY_PREFIX}01M8PH26EJXJ6FX1M8AXJ6N993",
    "canaries of a self test": f"{KEY_PREFIX}/0123/0",
}


@pytest.mark.proves("operations-40")
@pytest.mark.parametrize("key", LEFT.values(), ids=LEFT.keys())
def test_what_was_left_goes_after_its_lifetime(store: LateStore, key: str) -> None:
    store.place(key, b"left")
    store.clock.advance(seconds=limits.LEFTOVERS_SECONDS_MIN - 1)
    sweep(store)
    assert store.keys() == sorted([KEEP, key])
    store.clock.advance(seconds=2)
    of_tenant, of_site = sweep(store)
    assert store.keys() == [KEEP]
    assert sum({**of_tenant.removed, **of_site.removed}.values()) == 1


def test_no_command_that_could_still_be_applied_loses_what_was_parked_for_it() -> None:
    assert limits.LEFTOVERS_SECONDS_MIN >= limits.COMMAND_AGE_SECONDS_MAX + limits.CLOCK_SKEW_SECONDS_MAX


def test_uploads_that_nobody_can_name_any_more_go(store: LateStore) -> None:
    upload_id = new_upload_id(clock.milliseconds(store.now))
    for key in (layout.upload_declaration_key, layout.upload_content_key):
        store.place(key(TENANT, upload_id), b"part")
    store.clock.advance(seconds=limits.UPLOAD_REMOVAL_SECONDS - 1)
    sweep(store)
    assert len(store.keys()) == 3
    store.clock.advance(seconds=2)
    assert sweep(store)[0].removed["uploads"] == 2
    assert store.keys() == [KEEP]


@pytest.mark.proves("operations-18")
def test_a_broken_off_backup_goes_after_a_day_and_never_a_younger_one(store: LateStore) -> None:
    backup_id = new_backup_id()
    broken = [layout.backup_key(TENANT, backup_id, name) for name in (INTENT_NAME, MANIFEST_NAME)]
    for key in broken:
        store.place(key, b"{}")
    store.clock.advance(seconds=limits.BACKUP_INTENT_REMOVAL_SECONDS)
    young = layout.backup_key(TENANT, new_backup_id(), INTENT_NAME)
    store.place(young, b"{}")
    sweep(store)
    assert set(broken) <= set(store.keys())
    store.clock.advance(seconds=1)
    sweep(store)
    assert store.keys() == sorted([KEEP, young])


def test_a_published_backup_is_no_leftover(store: LateStore) -> None:
    backup_id = new_backup_id()
    for name in (INTENT_NAME, MANIFEST_NAME, RECORD_NAME):
        store.place(layout.backup_key(TENANT, backup_id, name), b"{}")
    store.clock.advance(days=400)
    sweep(store)
    assert len(store.keys()) == 4


@pytest.mark.proves("operations-41")
@pytest.mark.fault_class(49)
def test_what_could_not_be_removed_is_told_one_by_one(store: LateStore) -> None:
    keys = [layout.parked_command_key(TENANT, new_attempt_id()) for _ in range(3)]
    for key in keys:
        store.place(key, b"left")
    store.broken = set(keys[:2])
    store.clock.advance(days=2)
    told = sweep(store)[0].to_wire()
    assert (told["deleted_commands"], told["failed_deletes"]) == (1, 2)
    assert told["failures"].keys() == store.broken
    assert all("AccessDenied" in reason for reason in told["failures"].values())
