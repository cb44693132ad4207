"""A tenant nobody writes to for long: Litestream checkpoints, compacts and forgets, and a fresh reader comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faults.checker import Checker
from faults.site import Clients, Site, until
from memoree.objects.s3 import S3Store

FAST = {
    "l0_retention_seconds": 0.5,
    "l0_retention_check_seconds": 0.5,
    "level_seconds": (1.0, 2.0, 4.0),
    "snapshot_interval_seconds": 2.0,
}
"""Ten minutes of Litestream's life in some seconds."""
CHECKPOINT_SECONDS = 0.5
NIGHTLY_IDLE_SECONDS = 600.0


def test_a_fresh_reader_of_a_tenant_of_which_only_a_later_snapshot_is_left(site: Site, tmp_path: Path) -> None:
    """Litestream's checkpoint added a TXID of its own, and compaction and retention left no other to restore to."""

    async def run() -> None:
        async with site.clients() as clients, S3Store(site.s3) as store:
            checker = Checker(site, tmp_path)
            with site.writer(checkpoint_seconds=CHECKPOINT_SECONDS, settle_after_idle_seconds=3600.0, **FAST):
                await clients.write("before")
                head = checker.head()
                await until(lambda: later_snapshot(checker, head) is not None, 60, what="a snapshot of a later TXID")
            for key in checker.keys(head["prefix"]):
                if key != later_snapshot(checker, head):
                    await store.delete(key)
            assert head["txid"] not in checker.boundaries(head["prefix"])
            await read_all(site, clients)
            with site.writer():
                await clients.write_many("after", 3, concurrency=1)
            await read_all(site, clients)
        checker.check(clients.acknowledged)

    asyncio.run(run())


def test_a_fresh_reader_of_a_tenant_whose_files_were_compacted_while_it_idled(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            checker = Checker(site, tmp_path)
            with site.writer(checkpoint_seconds=CHECKPOINT_SECONDS, settle_after_idle_seconds=3600.0, **FAST):
                await clients.write_many("before", 5, concurrency=1)
                prefix = checker.head()["prefix"]
                await until(lambda: len(raw_files(checker, prefix)) == 1, 60, what="the end of the raw files")
                await read_all(site, clients)
                await clients.write_many("after", 3, concurrency=1)
                await read_all(site, clients)
        checker.check(clients.acknowledged)

    asyncio.run(run())


def test_a_settled_tenant_costs_no_request_and_is_continued_in_its_epoch(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(settle_after_idle_seconds=1.0) as writer:
                checker = Checker(site, tmp_path)
                await clients.write_many("before", 3)
                await until(lambda: checker.head()["released_at"] is not None, 30, what="settling")
                settled = checker.head()
                await read_all(site, clients)
                await asyncio.sleep(2.0)  # twice the interval of the heartbeat
                assert checker.head() == settled, "a settled tenant was touched"
                await clients.write_many("after", 3)
                assert checker.head()["epoch"] == settled["epoch"]
                await read_all(site, clients)
                assert writer.stop() == 0, writer.log()
            assert checker.head()["released_at"] is not None
        checker.check(clients.acknowledged)

    asyncio.run(run())


def test_a_settled_writer_whose_tenant_was_taken_over_begins_a_new_epoch(site: Site, tmp_path: Path) -> None:
    """It may continue an epoch only if head is as it left it; otherwise not even its child may start again."""

    async def run() -> None:
        async with site.clients() as clients:
            checker = Checker(site, tmp_path)
            with site.writer(settle_after_idle_seconds=0.5, leased=True) as first:
                await clients.write_many("before", 3)
                await until(lambda: checker.head()["released_at"] is not None, 30, what="settling")
                old = checker.head()
                files = checker.keys(old["prefix"])
                first.freeze()
                with site.writer(leased=True) as second:
                    await clients.write_many("under another", 3)
                    assert second.stop() == 0, second.log()
                first.thaw()
                await clients.write_many("after", 3)
            assert checker.head()["epoch"] == old["epoch"] + 2
            assert checker.keys(old["prefix"]) == files, "the old epoch was written to"
        checker.check(clients.acknowledged)

    asyncio.run(run())


def test_a_writer_killed_while_settling_is_succeeded(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(crash_at="settling", settle_after_idle_seconds=0.5) as doomed:
                await clients.write_many("before", 3)
                await doomed.crashed()
            await read_all(site, clients)
            with site.writer(leased=True):
                await clients.write_many("after", 3)
            await read_all(site, clients)
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("settle_after_idle_seconds", [60.0, 3600.0], ids=["settled", "held"])
def test_a_fresh_reader_after_ten_idle_minutes_at_the_default_intervals(
    settle_after_idle_seconds: float, site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(settle_after_idle_seconds=settle_after_idle_seconds):
                await clients.write_many("before", 5, concurrency=1)
                idle_until = time.monotonic() + NIGHTLY_IDLE_SECONDS
                await until(lambda: time.monotonic() > idle_until, NIGHTLY_IDLE_SECONDS + 5, what="ten minutes")
                await read_all(site, clients)
                await clients.write_many("after", 3, concurrency=1)
                await read_all(site, clients)
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


def later_snapshot(checker: Checker, head: Mapping[str, Any]) -> str | None:
    """The key of a snapshot that holds more than head names."""
    snapshots = [key for key in checker.keys(head["prefix"]) if "/0009/" in key]
    return next((key for key in snapshots if int(key[-20:-4], 16) > head["txid"]), None)


def raw_files(checker: Checker, prefix: str) -> list[str]:
    """Litestream keeps the newest one whatever the retention."""
    return [key for key in checker.keys(prefix) if "/0000/" in key]


async def read_all(site: Site, clients: Clients) -> None:
    """Every acknowledged claim, by a reader that was never here before."""
    async with site.clients() as fresh:
        for written in clients.acknowledged:
            reply = await fresh.call("claim.get", {"claim_id": written.claim_id}, tenant=written.tenant, strong=True)
            assert reply.status == 200, reply.envelope
            assert reply.envelope["result"]["statement"] == written.statement
