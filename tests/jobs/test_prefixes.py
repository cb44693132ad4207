"""Prefixes of old epochs go when no point in time that can be asked for needs them, and no other does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from memoree import limits
from memoree.clock import stored
from memoree.errors import MemoreeError
from memoree.jobs.prefixes import Cleaning, clean
from memoree.replication import layout
from memoree.replication.head import Head
from memoree.replication.lineage import LedgerEntry
from operations.bench import ManualClock

from .kiln import LateStore

TENANT = "t"
WINDOW = 3 * 24 * 3600.0


@dataclass
class Reigns:
    """A tenant's reigns, each with its prefix and its entry in the ledger."""

    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.store = LateStore(self.clock)

    def begin(self, epoch: int, parent: int, *, days_ago: float, kind: str = "takeover") -> None:
        prefix = prefix_of(epoch)
        at = stored(self.clock() - timedelta(days=days_ago))
        entry = LedgerEntry(kind, prefix, parent, 5, 5, 5, at)
        self.store.place(layout.epoch_ledger_key(TENANT, epoch), entry.to_bytes())
        for number in (1, 2):
            self.store.place(f"{layout.tenant_prefix(TENANT)}{prefix}0000/{number:016x}-{number:016x}.ltx", b"LTX1")

    def point_head_at(self, epoch: int, *, at: int | None = None) -> None:
        head = Head("w", 1, 0, at or epoch, None, None, prefix_of(epoch), 2, 9, 9, 0, 3, "", "")
        self.store.place(f"{layout.tenant_prefix(TENANT)}head.json", head.to_bytes())

    def clean(self) -> Cleaning:
        return asyncio.run(clean(self.store, TENANT, self.clock(), point_in_time_seconds=WINDOW))

    @property
    def left(self) -> list[int]:
        keys = self.store.keys(f"{layout.tenant_prefix(TENANT)}ltx/")
        return sorted({int(key.split("/")[3][:8]) for key in keys})


def prefix_of(epoch: int) -> str:
    return layout.epoch_prefix(epoch, f"01M8PH26EJXJ6FX1M8{epoch:08}")


@pytest.fixture
def reigns() -> Reigns:
    return Reigns()


def test_prefixes_before_a_reign_that_is_older_than_the_window_go(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30, kind="birth")
    reigns.begin(2, 1, days_ago=20)
    reigns.begin(3, 2, days_ago=10)
    reigns.point_head_at(3)
    cleaning = reigns.clean()
    assert (reigns.left, cleaning.kept_from, cleaning.removal.removed) == ([3], 3, 4)
    assert len(reigns.store.keys("tenants/t/epochs/")) == 3


@pytest.mark.proves("operations-39")
def test_as_long_as_the_window_reaches_into_an_earlier_reign_its_prefix_stays(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30, kind="birth")
    reigns.begin(2, 1, days_ago=20)
    reigns.begin(3, 2, days_ago=2)
    reigns.point_head_at(3)
    assert reigns.clean().kept_from == 2
    assert reigns.left == [2, 3]


@pytest.mark.proves("operations-39")
def test_many_short_reigns_do_not_keep_everything_for_ever(reigns: Reigns) -> None:
    for epoch in range(1, 31):
        reigns.begin(epoch, epoch - 1, days_ago=31 - epoch)
    reigns.point_head_at(30)
    reigns.clean()
    assert reigns.left == [27, 28, 29, 30]


@pytest.mark.proves("operations-39")
def test_the_clocks_of_writers_are_not_believed_to_the_minute(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30)
    reigns.begin(2, 1, days_ago=3 + (limits.CLOCK_SKEW_SECONDS_MAX - 60) / 86400)
    reigns.point_head_at(2)
    assert reigns.clean().kept_from == 1


def test_an_aborted_reign_says_nothing_about_the_window(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30, kind="birth")
    reigns.begin(2, 1, days_ago=10)  # never named by head: nobody continued it
    reigns.begin(3, 1, days_ago=1)
    reigns.point_head_at(3)
    reigns.clean()
    assert reigns.left == [1, 2, 3]


@pytest.mark.proves("operations-39")
def test_a_prefix_with_a_higher_number_is_never_deleted(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30, kind="birth")
    reigns.begin(2, 1, days_ago=20)
    reigns.begin(3, 2, days_ago=15)
    reigns.point_head_at(2, at=3)
    reigns.clean()
    assert reigns.left == [2, 3]


def test_a_lineage_with_a_hole_keeps_everything(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30)
    reigns.begin(3, 2, days_ago=1)
    reigns.point_head_at(3)
    assert reigns.clean().kept_from is None
    assert reigns.left == [1, 3]


def test_a_damaged_ledger_stops_the_run(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30)
    reigns.begin(2, 1, days_ago=20)
    reigns.point_head_at(2)
    body = reigns.store.body(layout.epoch_ledger_key(TENANT, 2))
    reigns.store.place(layout.epoch_ledger_key(TENANT, 2), body.replace(b'"parent_epoch":1', b'"parent_epoch":0'))
    with pytest.raises(MemoreeError, match="damaged"):
        reigns.clean()
    assert reigns.left == [1, 2]


def test_without_a_head_nothing_is_deleted(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30)
    assert reigns.clean().kept_from is None
    assert reigns.left == [1]


@pytest.mark.proves("operations-41")
@pytest.mark.fault_class(49)
def test_a_file_that_cannot_be_deleted_is_told_and_the_rest_goes(reigns: Reigns) -> None:
    reigns.begin(1, 0, days_ago=30)
    reigns.begin(2, 1, days_ago=20)
    reigns.point_head_at(2)
    stubborn = reigns.store.keys("tenants/t/ltx/00000001")[0]
    reigns.store.broken.add(stubborn)
    cleaning = reigns.clean()
    assert cleaning.to_wire()["failures"].keys() == {stubborn}
    assert (cleaning.removal.failed, cleaning.removal.removed, cleaning.prefixes) == (1, 1, [])
    reigns.store.broken.clear()
    assert len(reigns.clean().prefixes) == 1
    assert reigns.left == [2]
