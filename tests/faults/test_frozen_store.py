"""The object store stops answering for five seconds in the middle of a commit."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.proxy import Rule, store_proxy
from faults.site import Site, StoreProcess, until
from faults.watch import watching

FROZEN_SECONDS = 5.0
HEAD = r"/head\.json$"
CLAIM = {"claim_type": "fact", "statement": "written while the store was frozen"}
STALE_SECONDS = 1.5
"""After this long without a look at head, a read would like a new one."""
AGREED_SECONDS = 2.0
SLACK_SECONDS = 2.0
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


@pytest.mark.fault_class(57)
def test_while_the_store_is_frozen_nobody_waits_longer_than_they_agreed_to(
    site: Site, store_process: StoreProcess
) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer():
                written = await clients.write("before")
                store_process.freeze()
                try:
                    began = time.monotonic()
                    known = {"claim_id": written.claim_id}
                    reading = clients.call("claim.get", known)
                    writing = clients.call("claim.assert", CLAIM, key="during", wait_seconds=AGREED_SECONDS)
                    await asyncio.sleep(STALE_SECONDS)
                    read, write = await asyncio.gather(reading, writing)
                    assert read.envelope["ok"], "an older state answers while there is no newer one"
                    assert write.envelope["error"]["code"] == "WRITE_PENDING"
                    assert time.monotonic() - began < STALE_SECONDS + AGREED_SECONDS + SLACK_SECONDS
                finally:
                    store_process.thaw()
                await clients.decided("claim.assert", CLAIM, key="during")

    asyncio.run(run())
