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

FAST = {
    "l0_retention_seconds": 0.5,
    "l0_retention_check_seconds": 0.5,
    "level_seconds": (3.0, 6.0, 12.0),
    "snapshot_interval_seconds": 6.0,
}
"""Ten minutes of Litestream's life in some seconds."""
CHECKPOINT_SECONDS = 0.5
TRIES_MAX = 8
NIGHTLY_IDLE_SECONDS = 600.0


def test_a_fresh_reader_of_a_tenant_that_idled_while_litestream_went_on(site: Site, tmp_path: Path) -> None:
    """The writer still holds its lease. Litestream added TXIDs of its own, and the files head names are gone."""

    async def run() -> None:
        async with site.clients() as clients:
            checker = Checker(site, tmp_path)
            with site.writer(checkpoint_seconds=CHECKPOINT_SECONDS, settle_after_idle_seconds=3600.0, **FAST):
                for number in range(TRIES_MAX):
                    await clients.write(f"before-{number}")
                    head = checker.head()
                    await until(lambda head=head: is_forgotten(checker, head), 60, what="the end of the raw file")
                    if head["txid"] not in checker.boundaries(head["prefix"]):
                        break
                else:
                    pytest.fail("Litestream never added a TXID between a commit and its compaction")
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


def is_forgotten(checker: Checker, head: Mapping[str, Any]) -> bool:
    """Whether the raw file that head names is no more."""
    name = f"/0000/{head['txid']:016x}-{head['txid']:016x}.ltx"
    return not any(key.endswith(name) for key in checker.keys(head["prefix"]))


async def read_all(site: Site, clients: Clients) -> None:
    """Every acknowledged claim, by a reader that was never here before."""
    async with site.clients() as fresh:
        for written in clients.acknowledged:
            reply = await fresh.call("claim.get", {"claim_id": written.claim_id}, tenant=written.tenant, strong=True)
            assert reply.status == 200, reply.envelope
            assert reply.envelope["result"]["statement"] == written.statement
