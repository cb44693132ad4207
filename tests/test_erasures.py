"""The record of erasures: what an entry may hold, and what becomes of a damaged one."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from memoree import limits
from memoree.erasures import Erasure, record_missing, recorded
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
