"""A writer that was frozen comes back after another took its place; their clocks disagree."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site, until
from faults.watch import watching

TEN_MINUTES = 600.0


@pytest.mark.fault_class(47)
@pytest.mark.proves("operations-6")
@pytest.mark.parametrize(
    ("point", "ahead"),
    [("applied:3", -TEN_MINUTES), ("head_put:5", TEN_MINUTES)],
    ids=["before the sync, clock behind", "before the head write, clock ahead"],
)
def test_a_zombie_resumed_after_its_lease_was_taken_over_acknowledges_nothing(
    point: str, ahead: float, site: Site, tmp_path: Path
) -> None:
    """The zombie's clock is ten minutes off one way and its successor's the other: only the store's counts."""

    async def run() -> None:
        async with site.clients() as clients, watching(site, [site.tenant]) as watches:
            with (
                site.writer(freeze_at=point, leased=True, clock_offset_seconds=ahead) as zombie,
                contextlib.ExitStack() as running,
            ):
                async with clients.traffic("zombie"):
                    await zombie.frozen()
                    stuck = Checker(site, tmp_path).head()["epoch"]
                    running.enter_context(site.writer(leased=True, clock_offset_seconds=-ahead))
                    await clients.write("under the successor")
                    assert Checker(site, tmp_path).head()["epoch"] > stuck
                    zombie.thaw()
                    await until(lambda: "given back" in zombie.log(), 20, what="the zombie's defeat")
                    await clients.write("after the thaw")
                await clients.await_entrusted()
                await clients.repeat_all()
        Checker(site, tmp_path).check(clients.acknowledged, watches[site.tenant])

    asyncio.run(run())


def test_a_writer_that_pauses_for_less_than_its_lease_keeps_its_epoch(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    """Its standby gets the commands meanwhile, and gives them back."""
    site = make_site(lease_ttl_seconds=60.0, lease_renew_seconds=20.0)

    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(leased=True) as first:
                await clients.write("before")
                first.freeze()
                with site.writer(leased=True) as standby:
                    await clients.entrust("meanwhile", tenant=site.tenant)
                    await until(lambda: "given back" in standby.log(), 20, what="the refusal of the standby")
                    first.thaw()
                    await clients.await_entrusted()
                assert Checker(site, tmp_path).head()["epoch"] == 1, "the lease of a living writer was ignored"
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())
