"""A tenant nobody writes to for long: Litestream checkpoints, compacts and forgets, and a fresh reader comes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Clients, Site, until

FAST = {
    "l0_retention_seconds": 1.0,
    "l0_retention_check_seconds": 0.5,
    "level_seconds": (1.0, 2.0, 4.0),
    "snapshot_interval_seconds": 4.0,
}
"""Ten minutes of Litestream's life in some seconds."""
NIGHTLY_IDLE_SECONDS = 600.0


def test_a_fresh_reader_of_a_tenant_that_idled_while_litestream_went_on(site: Site, tmp_path: Path) -> None:
    """The writer still holds its lease. Litestream added TXIDs of its own, and the files head names are gone."""

    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(checkpoint_seconds=1.0, settle_after_idle_seconds=3600.0, **FAST):
                await clients.write_many("before", 5, concurrency=1)
                checker = Checker(site, tmp_path)
                named = checker.head()
                await until(lambda: forgotten(checker, named), 60, what="the end of the raw files")
                await until(
                    lambda: checker.boundaries(named["prefix"])[-1] > named["txid"], 60, what="TXIDs on their own"
                )
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


def forgotten(checker: Checker, head: dict[str, int]) -> bool:
    """Whether the raw file that head names is no more."""
    name = f"/0000/{head['txid']:016x}-{head['txid']:016x}.ltx"
    return not any(key.endswith(name) for key in checker.keys(str(head["prefix"])))


async def read_all(site: Site, clients: Clients) -> None:
    """Every acknowledged claim, by a reader that was never here before."""
    async with site.clients() as fresh:
        for written in clients.acknowledged:
            reply = await fresh.call("claim.get", {"claim_id": written.claim_id}, tenant=written.tenant, strong=True)
            assert reply.status == 200, reply.envelope
            assert reply.envelope["result"]["statement"] == written.statement
