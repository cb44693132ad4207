"""What a tenant's past can be restored to: the reigns that led to what head covers, and the states each still holds
(design §5.3, §8).

The past is followed from head's prefix through the ledger of epochs. A reign belongs to it up to where its successor
went on from; what it, or a zombie of it, replicated after that never happened. Reigns that no reign continued, and that
head does not name, were aborted: nothing leads to them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import apsw

from memoree.clock import stored
from memoree.database import meta
from memoree.database.connection import open_reader, scalar
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStore
from memoree.replication import layout
from memoree.replication.head import Head
from memoree.replication.litestream import NotRestorable
from memoree.replication.ltx import parse_name, restorable_boundaries
from memoree.replication.replicator import Replicator
from memoree.sealed import opened, sealed

SEARCH_TRIES_MAX = 5
"""Of one reign's states: compaction and retention change them while they are searched."""

_NEWEST_INSTANT = "SELECT created_at FROM events ORDER BY commit_seq DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`epochs/<epoch>.json`: where a reign began. `parent_txid` and `parent_batch` say up to where the prefix of the
    reign before belongs to the past; `at` is in stored form."""

    kind: str
    prefix: str
    parent_epoch: int
    parent_txid: int
    parent_batch: int
    base_commit_seq: int
    at: str

    def to_bytes(self) -> bytes:
        return sealed(asdict(self))

    @classmethod
    def from_bytes(cls, body: bytes, key: str) -> LedgerEntry:
        """Members of later programs are ignored, and earlier ones sealed nothing. Raises `INTEGRITY_ERROR`."""
        try:
            document = opened(body, seal_required=False)
            return cls(**{name: document[name] for name in cls.__dataclass_fields__})
        except (KeyError, ValueError) as error:
            raise MemoreeError(Code.INTEGRITY_ERROR, f"{key} is damaged: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Stretch:
    """A reign's part of the past: its states up to `last_batch`, which `last_txid` is known to hold."""

    epoch: int
    entry: LedgerEntry
    last_txid: int
    last_batch: int


@dataclass(frozen=True, slots=True)
class Point:
    """A state that can be restored: everything in an epoch's prefix up to `txid`. `stored_at` is when the store got it,
    by its own clock: soon after the commit, or later when that was compacted since."""

    epoch: int
    txid: int
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class Found:
    """A point that was restored to `path`, its counters, and the instant of its newest commit in stored form, which is
    empty when there is none."""

    point: Point
    path: Path
    counters: Meta
    instant: str


class Wanted(Protocol):
    """Up to where the past is wanted."""

    def reaches(self, entry: LedgerEntry) -> bool:
        """Whether the reign can hold such a state: no, if all of it came later."""

    def allows(self, found: Found) -> bool:
        """Whether a state is not too new."""

    def guess(self, points: list[Point]) -> int:
        """Which of the points, oldest first, to look at first: the better the guess, the fewer are restored."""


@dataclass(frozen=True, slots=True)
class UpToCommit:
    commit_seq: int

    def reaches(self, entry: LedgerEntry) -> bool:
        return entry.base_commit_seq <= self.commit_seq

    def allows(self, found: Found) -> bool:
        return found.counters.commit_seq <= self.commit_seq

    def guess(self, points: list[Point]) -> int:
        return len(points) - 1


@dataclass(frozen=True, slots=True)
class UpToTime:
    """`instant` is in stored form, and is compared with the instants that the commits themselves bear."""

    instant: str

    def reaches(self, entry: LedgerEntry) -> bool:
        return entry.at <= self.instant

    def allows(self, found: Found) -> bool:
        return found.instant <= self.instant

    def guess(self, points: list[Point]) -> int:
        return max(sum(stored(point.stored_at) <= self.instant for point in points) - 1, 0)


async def stretches(store: ObjectStore, tenant: str, head: Head) -> AsyncGenerator[Stretch, None]:
    """The reigns that led to what `head` covers, newest first, as far back as the ledger goes. Raises
    `StoreUnavailable`, and `INTEGRITY_ERROR` for a damaged ledger."""
    epoch = layout.epoch_of(head.prefix) if head.prefix is not None else 0
    last_txid, last_batch = head.txid, head.batch
    while epoch:
        entry = await ledger_entry(store, tenant, epoch)
        if entry is None:
            return
        yield Stretch(epoch, entry, last_txid, last_batch)
        if entry.parent_epoch >= epoch:
            key = layout.epoch_ledger_key(tenant, epoch)
            raise MemoreeError(Code.INTEGRITY_ERROR, f"{key} is damaged: it continues epoch {entry.parent_epoch}")
        epoch, last_txid, last_batch = entry.parent_epoch, entry.parent_txid, entry.parent_batch


async def ledger_entry(store: ObjectStore, tenant: str, epoch: int) -> LedgerEntry | None:
    """Raises `StoreUnavailable`, and `INTEGRITY_ERROR` for a damaged entry."""
    key = layout.epoch_ledger_key(tenant, epoch)
    try:
        found = await store.get(key)
    except ObjectMissing:
        return None
    assert found is not None, "a GET without a condition always has a body"
    return LedgerEntry.from_bytes(found.body, key)


async def points(store: ObjectStore, tenant: str, stretch: Stretch) -> list[Point]:
    """What can be restored of a stretch, oldest first; nothing of one whose prefix was removed. Raises
    `StoreUnavailable`.

    Where the last TXID of the past can no longer be told apart from those after it, the last point is the first one
    that holds it: most often they are Litestream's own, and `found_up_to` looks whether they are.
    """
    stored_at: dict[int, datetime] = {}
    names = []
    async for info in store.list(layout.tenant_prefix(tenant) + stretch.entry.prefix):
        if (name := parse_name(info.key)) is not None:
            names.append(name)
            known = stored_at.get(name.max_txid, info.last_modified)
            stored_at[name.max_txid] = min(known, info.last_modified)
    boundaries = restorable_boundaries(names)
    within = sum(txid <= stretch.last_txid for txid in boundaries)
    if within == 0 or boundaries[within - 1] < stretch.last_txid:
        within += 1
    return [Point(stretch.epoch, txid, stored_at[txid]) for txid in boundaries[:within]]


async def found_up_to(
    store: ObjectStore, replicator: Replicator, tenant: str, head: Head, wanted: Wanted, directory: Path
) -> Found | None:
    """The newest state of the tenant's past that is allowed, restored into `directory`; `None` when there is none.

    Costs some restores for every reign that is looked into, at most the binary logarithm of its points. Raises
    `StoreUnavailable`, `LitestreamError`, and `INTEGRITY_ERROR` for a damaged ledger.
    """
    async for stretch in stretches(store, tenant, head):
        if not wanted.reaches(stretch.entry):
            continue
        found = await _found_in(store, replicator, tenant, stretch, wanted, directory)
        if found is not None:
            return found
    return None


async def _found_in(
    store: ObjectStore, replicator: Replicator, tenant: str, stretch: Stretch, wanted: Wanted, directory: Path
) -> Found | None:
    for tries_left in reversed(range(SEARCH_TRIES_MAX)):
        present = await points(store, tenant, stretch)
        search = _Search(replicator, layout.tenant_prefix(tenant) + stretch.entry.prefix, stretch, wanted, directory)
        try:
            await greatest(len(present), wanted.guess(present), lambda index: search.allows(present[index]))  # noqa: B023
        except NotRestorable:
            search.forget()
            if not tries_left:
                raise
        else:
            return search.found
    raise AssertionError("the last try returns or raises")


async def greatest(count: int, guess: int, allows: Callable[[int], Awaitable[bool]]) -> int | None:
    """The greatest index below `count` that is allowed, when all those before it are too; `None` when none is.

    Near the guess it takes two looks, elsewhere as many as bisection: strides double until they overshoot.
    """
    low, high = -1, count
    look, stride = guess, 1
    while high - low > 1:
        if allowed := await allows(look):
            low = look
        else:
            high = look
        middle = (low + high) // 2
        look = min(low + stride, middle) if allowed else max(high - stride, middle)
        stride *= 2
    return low if low >= 0 else None


@dataclass(slots=True)
class _Search:
    """Restores points of a stretch one at a time and keeps the newest that was allowed."""

    replicator: Replicator
    prefix: str
    stretch: Stretch
    wanted: Wanted
    directory: Path
    found: Found | None = None

    async def allows(self, point: Point) -> bool:
        path = self.directory / f"point-{point.epoch}-{point.txid}.sqlite3"
        path.unlink(missing_ok=True)
        await self.replicator.restore(self.prefix, point.txid, path)
        looked_at = _looked_at(point, path)
        if looked_at.counters.epoch != self.stretch.epoch:
            raise MemoreeError(
                Code.INTEGRITY_ERROR,
                f"{self.prefix} holds epoch {looked_at.counters.epoch} at TXID {point.txid}, not {self.stretch.epoch}",
            )
        allowed = looked_at.counters.batch <= self.stretch.last_batch and self.wanted.allows(looked_at)
        if allowed:
            self.forget()
            self.found = looked_at
        else:
            path.unlink()
        return allowed

    def forget(self) -> None:
        if self.found is not None:
            self.found.path.unlink()
            self.found = None


def _looked_at(point: Point, path: Path) -> Found:
    db: apsw.Connection = open_reader(path, immutable=True)
    try:
        return Found(point, path, meta.read(db), scalar(db, _NEWEST_INSTANT) or "")
    finally:
        db.close()
