"""The record of erasures: what an entry may hold, and what becomes of a damaged one."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memoree import limits
from memoree.erasures import (
    Erasure,
    Line,
    Retention,
    deployment_receipt,
    directory_receipt,
    record_missing,
    recorded,
)
from memoree.errors import Code, MemoreeError
from memoree.objects.filesystem import FilesystemStore
from memoree.replication import layout
from memoree.sealed import sealed

ERASURE = Erasure(
    erasure_id="ers_01M8PH26EJXJ6FX1M8AXJ6N993",
    at="2026-03-02T10:00:00.000000000Z",
    commit_seq=7,
    entities=("art_01M8PH26EJXJ6FX1M8AXJ6N994", "clm_01M8PH26EJXJ6FX1M8AXJ6N995"),
    blobs=("ab" * 32,),
)
KEY = layout.erasure_key("acme", ERASURE.erasure_id)


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path)


@pytest.mark.proves("operations-12")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("at", 5),
        ("at", "yesterday"),
        ("at", "2026-03-02T10:00:00Z"),
        ("commit_seq", "x"),
        ("commit_seq", "7"),
        ("commit_seq", True),
        ("commit_seq", 0),
        ("erasure_id", "../../other/erasures/ers_1"),
        ("erasure_id", "ers_"),
        ("erasure_id", "ers_1\n"),
        ("erasure_id", "ers_" + "1" * limits.ID_BYTES_MAX),
        ("entities", "art_1"),
        ("entities", {"art_1": 1}),
        ("entities", ["art_1", 5]),
        ("entities", ["src_1"]),
        ("entities", ["art_1/../../head"]),
        ("blobs", ["AB" * 32]),
        ("blobs", ["ab" * 31]),
        ("blobs", ["../" * 21 + "x"]),
        ("blobs", None),
        ("note", "one more"),
    ],
)
def test_an_entry_of_another_shape_is_damaged_though_its_digest_is_right(field: str, value: Any) -> None:
    assert Erasure.from_bytes(ERASURE.to_bytes()) == ERASURE
    with pytest.raises(MemoreeError, match=field) as refused:
        Erasure.from_bytes(sealed({**asdict(ERASURE), field: value}))
    assert refused.value.code is Code.INTEGRITY_ERROR


@pytest.mark.proves("operations-12")
def test_an_entry_that_lacks_a_member_is_damaged() -> None:
    for name in (members := asdict(ERASURE)):
        with pytest.raises(MemoreeError, match=name):
            Erasure.from_bytes(sealed({key: value for key, value in members.items() if key != name}))


@pytest.mark.proves("operations-12")
def test_the_largest_entry_can_be_read_and_a_larger_one_is_never_fetched(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_sync(KEY, ERASURE.to_bytes())
    monkeypatch.setattr(limits, "ERASURE_RECORD_BYTES_MAX", len(ERASURE.to_bytes()))
    assert asyncio.run(recorded(store, "acme")) == [ERASURE]
    monkeypatch.setattr(limits, "ERASURE_RECORD_BYTES_MAX", len(ERASURE.to_bytes()) - 1)
    with pytest.raises(MemoreeError):
        Erasure.from_bytes(ERASURE.to_bytes())
    monkeypatch.setattr(FilesystemStore, "get_sync", lambda *_, **__: pytest.fail("it was fetched"))
    with pytest.raises(MemoreeError, match=KEY):
        asyncio.run(recorded(store, "acme"))


@pytest.mark.proves("operations-12")
def test_every_entry_is_seen_to_damaged_ones_are_written_anew_and_sound_ones_are_kept(store: FilesystemStore) -> None:
    damaged = Erasure("ers_2", ERASURE.at, 8, ("art_2",), ())
    missing = Erasure("ers_3", ERASURE.at, 9, ("art_3",), ())
    store.put_sync(KEY, ERASURE.to_bytes())
    store.put_sync(layout.erasure_key("acme", "ers_2"), damaged.to_bytes()[:-1])
    told = [Erasure(ERASURE.erasure_id, ERASURE.at, 7, ERASURE.entities, ()), damaged, missing]
    asyncio.run(record_missing(store, "acme", told))
    assert asyncio.run(recorded(store, "acme")) == [ERASURE, damaged, missing]


NOW = datetime(2026, 3, 2, 20, 41, tzinfo=UTC)


def until(line: Line) -> timedelta:
    """How long from now."""
    assert isinstance(line, str) and line.startswith("retained_until "), line
    return datetime.fromisoformat(line.removeprefix("retained_until ")) - NOW


def test_a_receipt_of_a_deployment_has_the_latest_instants_there_can_be() -> None:
    retention = Retention(point_in_time=7200, collected_every=3600, backed_up_every=1800, has_second_bucket=True)
    told = deployment_receipt(retention, NOW, blobs=1)
    minute = timedelta(seconds=limits.ERASED_FROM_COPIES_SECONDS)
    history = timedelta(seconds=7200 + limits.CLOCK_SKEW_SECONDS_MAX + 3600)
    backups = timedelta(seconds=limits.ERASED_IN_BACKUPS_SECONDS + 1800)
    assert until(told.stores["database"]) == minute
    assert until(told.stores["replicas"]) == timedelta(seconds=limits.LOCAL_COPY_IDLE_SECONDS_MAX)
    assert until(told.stores["ltx_history"]) == minute + history
    assert until(told.stores["backups"]) == until(told.stores["second_bucket"]) == backups
    assert until(told.stores["blobs"]) == backups + timedelta(seconds=2 * 3600)
    assert datetime.fromisoformat(told.to_wire()["recorded_in_second_bucket_by"]) > NOW + timedelta(seconds=1800)


def test_without_a_second_bucket_and_blobs_a_receipt_says_that_nothing_is_there() -> None:
    told = deployment_receipt(Retention(), NOW, blobs=0)
    assert (told.stores["second_bucket"], told.stores["blobs"]) == ("erased", "erased")
    assert set(told.to_wire()) == {"stores"}


@pytest.mark.parametrize(("rewritten", "restores"), [(True, False), (False, False), (False, True), (True, True)])
def test_a_receipt_of_a_directory_says_who_still_has_it(rewritten: bool, restores: bool) -> None:
    told = directory_receipt(NOW, blobs=0, rewritten=rewritten, restores=restores, writes=False)
    assert (told.stores["database"] == "erased") == (rewritten and not restores)
    assert (told.stores["blobs"] == "erased") == (not restores)
    assert told.stores["ltx_history"] == told.stores["backups"] == "erased"
