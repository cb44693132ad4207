"""The writer is killed at every step of the write path and of a takeover."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site

WRITE_PATH = ["received", "staged", "applied", "synced", "head_put", "head_moved", "acked"]
TAKEOVER = ["takeover_claimed", "takeover_restored", "takeover_ledger", "takeover_synced", "takeover_done"]


@pytest.mark.fault_class(44)
@pytest.mark.parametrize("point", WRITE_PATH)
def test_a_writer_killed_on_the_write_path_loses_and_repeats_nothing(point: str, site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(leased=False) as first:
                await clients.write_many("before", 5)
                first.stop()
            with site.writer(crash_at=f"{point}:3" if point != "head_put" else f"{point}:4", leased=False) as doomed:
                burst = asyncio.create_task(clients.write_many("during", 20, concurrency=4))
                await doomed.crashed()
                with site.writer(leased=False):
                    await burst
                    await clients.write_many("after", 5)
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


@pytest.mark.parametrize("point", TAKEOVER)
def test_a_writer_killed_during_takeover_leaves_a_tenant_the_next_one_can_take(
    point: str, site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(leased=False):
                await clients.write_many("before", 5)
            with site.writer(crash_at=point, leased=False) as doomed:
                burst = asyncio.create_task(clients.write_many("during", 8, concurrency=4))
                await doomed.crashed()
                with site.writer(leased=False):
                    await burst
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())
