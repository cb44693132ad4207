"""head.json under every fault a store can show: a swap returns only what is certain."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.errors import Code, MemoreeError
from memoree.ids import new_ulid
from memoree.replication import head as head_module
from memoree.replication.head import STALE_READS_MAX, Head, HeadFile, HeadLost, HeadReading

from .memory_store import Fault, MemoryStore

TENANT = "tenants/t/"
KEY = f"{TENANT}head.json"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "RETRY_SECONDS_MIN", 0.0)


def born(store: MemoryStore) -> HeadReading:
    return asyncio.run(HeadFile(store, TENANT).create(1, "00"))


def swap(store: MemoryStore, current: HeadReading, **changes: object) -> HeadReading:
    return asyncio.run(HeadFile(store, TENANT).swap(current, replace(current.head, **changes)))  # type: ignore[arg-type]


def rival_moves(store: MemoryStore) -> None:
    """Another writer, at once and without a fault."""
    present = Head.from_bytes(store.body(KEY))
    moved = replace(present, write_id=new_ulid(), revision=present.revision + 1, owner="rival")
    store.place(KEY, moved.to_bytes())


def bodies_of(store: MemoryStore, batch: int) -> list[Head]:
    found = [Head.from_bytes(body) for body in store.versions[KEY]]
    return [head for head in found if head.batch == batch]


# --- moving head ------------------------------------------------------------------------------------------------


WRITE_FAULTS = [Fault.BEFORE, Fault.AFTER, Fault.LATE, Fault.CONFLICT, Fault.REFUSED]


@pytest.mark.parametrize("fault", WRITE_FAULTS)
def test_a_swap_whose_answer_is_lost_is_carried_through_exactly_once(fault: Fault) -> None:
    store = MemoryStore()
    current = born(store)
    store.writes.extend([fault, fault])

    moved = swap(store, current, batch=7)

    assert moved.head.to_bytes() == store.body(KEY)
    assert moved.head.revision == current.head.revision + 1
    assert len(bodies_of(store, 7)) == 1
    assert swap(store, moved, batch=8).head.batch == 8, "the ETag it returned is the current one"


@pytest.mark.parametrize("fault", [Fault.NONE, *WRITE_FAULTS])
def test_a_rival_that_was_faster_ends_the_reign(fault: Fault) -> None:
    store = MemoryStore()
    current = born(store)
    rival_moves(store)
    store.writes.append(fault)

    with pytest.raises(HeadLost, match="rival"):
        swap(store, current, batch=7)
    assert bodies_of(store, 7) == []


def test_while_head_cannot_be_read_nothing_is_decided() -> None:
    store = MemoryStore()
    current = born(store)
    store.writes.append(Fault.AFTER)
    store.reads.extend([Fault.BEFORE, Fault.REFUSED, Fault.BEFORE])

    assert swap(store, current, batch=7).head.batch == 7
    assert len(bodies_of(store, 7)) == 1


def test_an_answer_older_than_what_was_confirmed_is_no_rival() -> None:
    store = MemoryStore()
    second = swap(store, born(store), batch=1)
    store.writes.append(Fault.BEFORE)
    store.reads.extend([Fault.STALE, Fault.STALE])

    assert swap(store, second, batch=2).head.batch == 2


def test_a_head_that_was_set_back_by_hand_ends_the_reign() -> None:
    store = MemoryStore()
    first = born(store)
    second = swap(store, swap(store, first, batch=1), batch=2)
    store.place(KEY, first.head.to_bytes())

    with pytest.raises(HeadLost):
        swap(store, second, batch=3)
    assert len([request for request in store.requests if request.startswith("GET")]) == STALE_READS_MAX + 1


def test_a_head_that_is_gone_ends_the_reign() -> None:
    store = MemoryStore()
    current = born(store)
    store.remove(KEY)

    with pytest.raises(HeadLost, match="gone"):
        swap(store, current, batch=1)


@given(
    writes=st.lists(st.sampled_from(list(Fault)), max_size=6),
    reads=st.lists(st.sampled_from(list(Fault)), max_size=6),
    rival_at=st.none() | st.integers(0, 8),
)
def test_under_any_faults_a_swap_tells_the_truth(writes: list[Fault], reads: list[Fault], rival_at: int | None) -> None:
    store = MemoryStore()
    current = swap(store, born(store), batch=1)
    store.writes.extend(writes)
    store.reads.extend(reads)
    begun = len(store.requests)

    def interfere(_: str) -> None:
        if rival_at is not None and len(store.requests) - begun == rival_at + 1:
            rival_moves(store)

    store.before_request = interfere
    try:
        moved = swap(store, current, batch=2)
    except HeadLost:
        assert Head.from_bytes(store.body(KEY)).owner == "rival", "it was told lost, and nobody else had moved head"
        assert len(bodies_of(store, 2)) <= 2
    else:
        ours = [head for head in bodies_of(store, 2) if head.write_id == moved.head.write_id]
        assert [head.revision for head in ours] == [current.head.revision + 1], "won twice, or never"


def test_a_cancelled_swap_has_not_moved_head_twice() -> None:
    store = MemoryStore()
    current = born(store)

    async def run() -> None:
        store.writes.append(Fault.AFTER)
        store.reads.extend([Fault.BEFORE] * 1000)
        looked = asyncio.Event()
        store.before_request = lambda request: looked.set() if request.startswith("GET") else None
        task = asyncio.create_task(HeadFile(store, TENANT).swap(current, replace(current.head, batch=7)))
        await looked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())

    assert len(bodies_of(store, 7)) == 1


# --- birth ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.NONE, *WRITE_FAULTS])
def test_birth_is_certain_whatever_became_of_the_answer(fault: Fault) -> None:
    store = MemoryStore(writes=[fault, fault])

    created = born(store)

    assert created.head.to_bytes() == store.body(KEY)
    assert (created.head.epoch, created.head.prefix, created.head.batch) == (0, None, 0)
    assert swap(store, created, owner="me").head.owner == "me"


def test_two_births_are_one() -> None:
    store = MemoryStore()

    assert born(store).head == born(store).head


@pytest.mark.parametrize("key", ["ltx/00000001-ABCDEFGH/0000/1.ltx", "epochs/00000001.json", "backups/x/intent.json"])
def test_a_missing_head_over_history_is_damage_and_no_birth(key: str) -> None:
    store = MemoryStore()
    store.place(TENANT + key, b"")

    with pytest.raises(MemoreeError, match="head missing") as refused:
        born(store)
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert store.keys(KEY) == []


def test_a_neighbour_whose_name_begins_alike_is_no_history() -> None:
    store = MemoryStore()
    store.place("tenants/t1/ltx/00000001-ABCDEFGH/0000/1.ltx", b"")

    assert born(store).head.batch == 0


# --- reading ----------------------------------------------------------------------------------------------------


def test_an_unchanged_head_costs_no_body() -> None:
    store = MemoryStore()
    head_file = HeadFile(store, TENANT)
    current = born(store)

    assert asyncio.run(head_file.read_if_changed(current.etag)) is None
    moved = swap(store, current, batch=1)
    changed = asyncio.run(head_file.read_if_changed(current.etag))
    assert changed is not None and changed.head == moved.head


@pytest.mark.fault_class(43)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"format": 1}', b'{"format": "x"}', b"\xff\x00garbage"]
)
def test_a_damaged_head_is_said_to_be_damaged(body: bytes) -> None:
    with pytest.raises(MemoreeError) as refused:
        Head.from_bytes(body)
    assert refused.value.code is Code.INTEGRITY_ERROR


def test_garbage_after_a_sound_head_is_damage() -> None:
    store = MemoryStore()
    store.place(KEY, born(store).head.to_bytes() + b"\x00\xff")

    with pytest.raises(MemoreeError, match="damaged"):
        asyncio.run(HeadFile(store, TENANT).read())


@pytest.mark.fault_class(51)
def test_a_head_of_a_later_format_is_refused_and_left_alone() -> None:
    store = MemoryStore()
    later = orjson.dumps(orjson.loads(born(store).head.to_bytes()) | {"format": 2, "more": True})
    store.place(KEY, later)

    with pytest.raises(MemoreeError) as refused:
        asyncio.run(HeadFile(store, TENANT).read())
    assert refused.value.code is Code.CONFIG_ERROR
    assert store.body(KEY) == later


# --- the lease --------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(47)
@pytest.mark.proves("operations-6")
def test_a_lease_is_judged_by_the_clock_of_the_store_alone() -> None:
    store = MemoryStore()
    swap(store, born(store), owner="me")
    store.advance(10)

    reading = asyncio.run(HeadFile(store, TENANT).read())

    assert reading is not None and reading.age == timedelta(seconds=10)
    assert reading.lease_seconds_left(15) == 6, "one second more, since the store's dates count whole ones"
    assert reading.lease_seconds_left(8) == 0


def test_a_renewal_begins_the_lease_anew() -> None:
    store = MemoryStore()
    held = swap(store, born(store), owner="me")
    store.advance(14)
    swap(store, held)

    reading = asyncio.run(HeadFile(store, TENANT).read())

    assert reading is not None and reading.lease_seconds_left(15) == 16


@pytest.mark.parametrize("changes", [{"owner": None}, {"owner": "me", "released_at": "2026-03-02T20:41:07.000000000Z"}])
def test_nobody_waits_for_a_lease_that_was_never_taken_or_was_released(changes: dict[str, str | None]) -> None:
    store = MemoryStore()

    assert swap(store, born(store), **changes).lease_seconds_left(15) == 0
