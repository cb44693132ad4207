"""The first moments of a tenant, when nothing is there yet and everything appears at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.proxy import Rule, store_proxy
from faults.site import Site, until
from faults.watch import watching


@pytest.mark.fault_class(44)
def test_two_writers_started_at_once_share_a_queue_and_one_of_them_reigns(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients, watching(site, [site.tenant]) as watches:
            with site.writer(leased=True) as first, site.writer(leased=True) as second:
                await clients.write_many("both", 20, concurrency=10)
                begun = [writer for writer in (first, second) if "begins at commit" in writer.log()]
                assert len(begun) == 1, "the lease of a living writer was taken over"
                begun[0].kill()
                await clients.write_many("one", 5)
        Checker(site, tmp_path).check(clients.acknowledged, watches[site.tenant])

    asyncio.run(run())


def test_a_reader_that_looks_while_a_tenant_is_born_sees_no_damage(site: Site, tmp_path: Path) -> None:
    """It found no head; before it looks whether that is damage, a writer makes the head and all the rest."""

    async def run() -> None:
        async with (
            store_proxy(site.s3.endpoint_url or "") as proxy,
            site.clients(endpoint_url=proxy.url) as slow,
            site.clients() as clients,
        ):
            listing = proxy.add(Rule("GET", "list-type=2", "hold"))
            early = asyncio.create_task(slow.call("claim.get", {"claim_id": "clm_unborn"}, strong=True))
            await until(lambda: listing.is_spent, 20, what="the look for remains")
            with site.writer():
                await clients.write("first")
            listing.release.set()
            reply = await early
            assert reply.envelope["error"]["code"] == "NOT_FOUND", reply.envelope
            slow.acknowledged = clients.acknowledged
            await slow.repeat_all()
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())
