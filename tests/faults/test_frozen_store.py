"""The object store stops answering for five seconds in the middle of a commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.proxy import Rule, store_proxy
from faults.site import Site, StoreProcess, until
from faults.watch import watching

FROZEN_SECONDS = 5.0
HEAD = r"/head\.json$"
LTX = r"/ltx/.*/0000/.*\.ltx"


@pytest.mark.parametrize(
    ("path", "applied"),
    [(LTX, False), (HEAD, False), (HEAD, True)],
    ids=["during the sync", "before the head write", "after the head write, its answer lost"],
)
def test_a_store_that_freezes_during_a_commit_loses_and_repeats_nothing(
    path: str, applied: bool, site: Site, store_process: StoreProcess, tmp_path: Path
) -> None:
    async def run() -> None:
        async with (
            store_proxy(site.s3.endpoint_url or "") as proxy,
            site.clients() as clients,
            watching(site, [site.tenant]) as watches,
        ):
            with site.writer(endpoint_url=proxy.url):
                await clients.write("before")
                if applied:
                    rule = proxy.add(Rule("PUT", path, "lose_answer", after=store_process.freeze))
                else:
                    rule = proxy.add(Rule("PUT", path, before=store_process.freeze))
                during = asyncio.create_task(clients.write_many("during", 4))
                await until(lambda: rule.is_spent, 20, what="the freeze")
                await asyncio.sleep(FROZEN_SECONDS)
                assert not during.done(), "acknowledged without a store"
                store_process.thaw()
                await during
                await clients.write_cited("after")
                await clients.repeat_all()
        Checker(site, tmp_path).check(clients.acknowledged, watches[site.tenant])

    asyncio.run(run())
