"""Which states a tenant's past still has, and which of them a point in time is."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from memoree.clock import stored
from memoree.database import meta
from memoree.database.connection import open_writer
from memoree.database.schema import create_or_migrate
from memoree.errors import Code, MemoreeError
from memoree.replication import layout
from memoree.replication.head import Head
from memoree.replication.lineage import (
    Found,
    LedgerEntry,
    UpToCommit,
    UpToTime,
    Wanted,
    found_up_to,
    greatest,
    points,
    stretches,
)
from memoree.replication.litestream import NotRestorable
from memoree.replication.ltx import LtxName, format_name

from .memory_store import MemoryStore

TENANT = "t"
HEAD = Head("w", 9, 1, 4, None, None, None, 0, 0, 0, 0, 3, "00", "2026-03-02T20:00:00.000000000Z")
EMPTY_DATABASE = "empty.sqlite3"


@dataclass(frozen=True, slots=True)
class State:
    """Of a prefix at a TXID."""

    commit_seq: int
    batch: int
    minute: int


@dataclass(slots=True)
class Past:
    """A tenant's ledger and prefixes in memory, and what restores them: files with the counters they are to have."""

    directory: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    states: dict[tuple[str, int], State] = field(default_factory=dict)
    restored: list[int] = field(default_factory=list)
    vanishing: int = 0
    """So many restores fail, as if compaction had changed the prefix meanwhile."""

    def __post_init__(self) -> None:
        with closing(open_writer(self.directory / EMPTY_DATABASE, replicated=False)) as db:
            create_or_migrate(db)

    def reign(self, epoch: int, kind: str, parent: tuple[int, int, int], states: list[State], *, base: int) -> str:
        """`parent` is epoch, TXID and batch; the states get the TXIDs from 1 on. Returns the prefix."""
        prefix = layout.epoch_prefix(epoch, f"OWNER{epoch:03}")
        began = minute(states[0].minute)
        entry = LedgerEntry(kind, prefix, *parent, base_commit_seq=base, at=began)
        self.store.place(layout.epoch_ledger_key(TENANT, epoch), entry.to_bytes())
        for txid, state in enumerate(states, start=1):
            self.states[prefix, txid] = state
            self.file(prefix, LtxName(0, txid, txid))
        return prefix

    def file(self, prefix: str, name: LtxName) -> None:
        self.store.advance(60)
        self.store.place(f"{layout.tenant_prefix(TENANT)}{prefix}{format_name(name)}", b"ltx")

    def remove(self, prefix: str, name: LtxName) -> None:
        self.store.remove(f"{layout.tenant_prefix(TENANT)}{prefix}{format_name(name)}")

    async def restore(self, prefix: str, txid: int, output: Path) -> None:
        if self.vanishing:
            self.vanishing -= 1
            raise NotRestorable(f"TXID {txid}")
        self.restored.append(txid)
        name = prefix.removeprefix(layout.tenant_prefix(TENANT))
        state = self.states[name, txid]
        shutil.copyfile(self.directory / EMPTY_DATABASE, output)
        with closing(open_writer(output, replicated=False)) as db:
            counters = meta.read(db)
            counters.epoch, counters.batch, counters.commit_seq = layout.epoch_of(name), state.batch, state.commit_seq
            meta.write(db, counters)
            event = (state.commit_seq, "evt", 1, "claim.assert", "claim", "clm", None, None, "{}", minute(state.minute))
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)

    def child(self, database: Path, prefix: str) -> None:  # type: ignore[override]  # nothing here is replicated
        raise AssertionError

    def found(self, wanted: Wanted, head: Head) -> Found | None:
        self.restored.clear()
        search = found_up_to(self.store, self, TENANT, head, wanted, self.directory)  # type: ignore[arg-type]
        found = asyncio.run(search)
        left = {path.name for path in self.directory.iterdir()} - {EMPTY_DATABASE}
        assert left == ({found.path.name} if found is not None else set()), "what was looked at is left behind"
        if found is not None:
            found.path.unlink()
        return found

    def commit_found(self, wanted: Wanted, head: Head) -> tuple[int, int] | None:
        """The epoch and the commit."""
        found = self.found(wanted, head)
        return (found.point.epoch, found.counters.commit_seq) if found is not None else None


def minute(number: int) -> str:
    return f"2026-03-02T20:{number:02}:00.000000000Z"


def many(count: int) -> list[State]:
    return [State(number, number, number) for number in range(count)]


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def test_stretches_are_followed_back_and_lead_to_no_aborted_reign(past: Past) -> None:
    past.reign(1, "birth", (0, 0, 0), many(5), base=0)
    past.reign(2, "takeover", (1, 3, 2), many(2), base=2)
    past.reign(3, "takeover", (1, 4, 3), many(2), base=3)
    prefix = past.reign(4, "restore", (3, 2, 9), many(3), base=10)

    async def run() -> list[tuple[int, str, int, int]]:
        head = replace(HEAD, prefix=prefix, txid=2, batch=11)
        found = [each async for each in stretches(past.store, TENANT, head)]
        return [(each.epoch, each.entry.kind, each.last_txid, each.last_batch) for each in found]

    assert asyncio.run(run()) == [(4, "restore", 2, 11), (3, "takeover", 2, 9), (1, "birth", 4, 3)]


@pytest.mark.proves("operations-32")
def test_what_came_after_a_takeover_is_no_part_of_the_past(past: Past) -> None:
    """Commits 3 and 4 of the first reign were a zombie's: its successor went on from commit 2, and made others."""
    past.reign(1, "birth", (0, 0, 0), [State(0, 0, 0), State(1, 1, 1), State(2, 2, 2), State(3, 3, 9)], base=0)
    prefix = past.reign(2, "takeover", (1, 3, 2), [State(2, 2, 3), State(3, 3, 4), State(5, 4, 6)], base=2)
    head = replace(HEAD, prefix=prefix, txid=3, batch=4)

    assert past.commit_found(UpToCommit(3), head) == (2, 3)
    assert past.commit_found(UpToCommit(4), head) == (2, 3)
    assert past.commit_found(UpToCommit(1), head) == (1, 1)
    assert past.commit_found(UpToTime(minute(2)), head) == (1, 2)
    past.remove(prefix, LtxName(0, 1, 1))
    assert past.commit_found(UpToCommit(3), head) == (1, 2), "the zombie's commit 3 was taken for the tenant's"


@pytest.mark.proves("operations-32")
def test_a_commit_that_head_does_not_cover_is_no_part_of_the_past(past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), many(5), base=0)
    head = replace(HEAD, prefix=prefix, txid=3, batch=2)
    assert past.commit_found(UpToCommit(9), head) == (1, 2)

    # Compaction has swallowed the end of the past: what ends later may hold no more, or an uncovered commit.
    for txid in (2, 3, 4):
        past.remove(prefix, LtxName(0, txid, txid))
    past.file(prefix, LtxName(1, 2, 4))
    assert past.commit_found(UpToCommit(9), head) == (1, 0)
    past.states[prefix, 4] = State(2, 2, 2)
    assert past.commit_found(UpToCommit(9), head) == (1, 2)


@pytest.mark.proves("operations-32")
def test_a_restore_can_be_undone_by_going_back_before_it(past: Past) -> None:
    """Head covered batch 3 when commit 4 was uploaded and the restore came."""
    past.reign(1, "birth", (0, 0, 0), many(5), base=0)
    prefix = past.reign(2, "restore", (1, 4, 3), [State(4, 5, 9), State(5, 6, 10)], base=4)
    head = replace(HEAD, prefix=prefix, txid=2, batch=6)

    assert past.commit_found(UpToCommit(3), head) == (1, 3)
    assert past.commit_found(UpToTime(minute(8)), head) == (1, 3)
    assert past.commit_found(UpToCommit(4), head) == (2, 4)


@pytest.mark.proves("operations-31")
def test_a_point_is_the_greatest_that_is_not_later_and_few_are_looked_at(past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), [State(2 * each, each, each) for each in range(60)], base=0)
    head = replace(HEAD, prefix=prefix, txid=60, batch=59)

    for commit in (0, 1, 57, 58, 117, 118, 500):
        assert past.commit_found(UpToCommit(commit), head) == (1, min(commit - commit % 2, 118))
        assert len(past.restored) <= 12
    for number in (0, 7, 58):
        found = past.found(UpToTime(minute(number)[:19] + ".5Z"), head)
        assert found is not None and found.instant == minute(number)


@pytest.mark.proves("operations-31")
def test_a_good_guess_costs_two_looks() -> None:
    for count, last in ((1000, 700), (1000, 0), (1000, 999), (1, 0)):
        looks: list[int] = []

        async def allows(index: int) -> bool:
            looks.append(index)  # noqa: B023
            return index <= last  # noqa: B023

        assert asyncio.run(greatest(count, last, allows)) == last
        assert len(looks) == len(set(looks)) <= 2
        looks.clear()
        assert asyncio.run(greatest(count, count - 1, allows)) == last
        assert len(looks) <= 22


def test_nothing_is_found_where_nothing_is_that_old(past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), many(3), base=0)
    past.remove(prefix, LtxName(0, 1, 1))
    past.file(prefix, LtxName(9, 1, 3))
    head = replace(HEAD, prefix=prefix, txid=3, batch=2)

    assert past.commit_found(UpToCommit(1), head) is None
    assert past.commit_found(UpToCommit(2), head) == (1, 2)
    assert asyncio.run(greatest(0, 0, _never)) is None


async def _never(index: int) -> bool:
    raise AssertionError(index)


def test_a_prefix_that_changes_while_it_is_searched_is_listed_again(past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), many(9), base=0)
    head = replace(HEAD, prefix=prefix, txid=9, batch=8)
    past.vanishing = 2
    assert past.commit_found(UpToCommit(4), head) == (1, 4)
    past.vanishing = 100
    with pytest.raises(NotRestorable):
        past.found(UpToCommit(4), head)


def test_points_are_as_old_as_the_first_file_that_ends_there(past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), many(2), base=0)
    before = past.store.now
    past.file(prefix, LtxName(1, 1, 2))

    async def run() -> list[str]:
        head = replace(HEAD, prefix=prefix, txid=2, batch=1)
        [stretch] = [each async for each in stretches(past.store, TENANT, head)]
        return [stored(point.stored_at) for point in await points(past.store, TENANT, stretch)]

    assert asyncio.run(run()) == [stored(before - timedelta(minutes=1)), stored(before)]


@pytest.mark.parametrize("body", [b"{", b"{}", b"[]"])
def test_a_damaged_ledger_is_told_by_its_name(body: bytes, past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), many(1), base=0)
    past.store.place(layout.epoch_ledger_key(TENANT, 1), body)
    with pytest.raises(MemoreeError, match=r"epochs/00000001\.json is damaged") as caught:
        past.found(UpToCommit(1), replace(HEAD, prefix=prefix))
    assert caught.value.code is Code.INTEGRITY_ERROR


def test_a_ledger_that_leads_in_circles_is_damaged(past: Past) -> None:
    prefix = past.reign(2, "takeover", (2, 1, 0), [State(5, 5, 5)], base=5)
    with pytest.raises(MemoreeError, match="it continues epoch 2"):
        past.found(UpToCommit(1), replace(HEAD, prefix=prefix))


def test_a_prefix_of_another_epoch_is_damage(past: Past) -> None:
    prefix = past.reign(1, "birth", (0, 0, 0), many(1), base=0)
    other = past.reign(2, "takeover", (1, 1, 0), many(1), base=0)
    entry = LedgerEntry("takeover", prefix, 1, 1, 0, 0, minute(0))
    past.store.place(layout.epoch_ledger_key(TENANT, 2), entry.to_bytes())
    search = UpToCommit(1)
    with pytest.raises(MemoreeError, match="holds epoch 1"):
        past.found(search, replace(HEAD, prefix=other, txid=1))
