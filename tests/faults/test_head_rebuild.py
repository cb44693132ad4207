"""A lost head is refused by everybody, and made again by an operator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site
from memoree.assembly import replicator
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing
from memoree.objects.s3 import S3Store
from memoree.replication.rebuild import rebuild_head


async def _rebuild(site: Site, store: S3Store) -> None:
    await rebuild_head(store, replicator(site.settings), site.tenant)


def test_a_deleted_head_is_rebuilt_and_the_tenant_goes_on(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with S3Store(site.s3) as store:
            async with site.clients() as clients:
                with site.writer(leased=False) as writer:
                    await clients.write_many("before", 6)
                    writer.stop()
                acknowledged = clients.acknowledged
            await store.delete(f"tenants/{site.tenant}/head.json")
            async with site.clients() as clients:
                reply = await clients.call("doctor", {}, strong=True)
                assert reply.envelope["error"]["code"] == Code.INTEGRITY_ERROR
                await _rebuild(site, store)
                with site.writer():
                    await clients.write_many("after", 4)
                Checker(site, tmp_path).check(acknowledged + clients.acknowledged)

    asyncio.run(run())


def test_a_head_that_is_there_is_never_rebuilt(site: Site) -> None:
    async def run() -> None:
        async with S3Store(site.s3) as store:
            async with site.clients() as clients:
                with site.writer(leased=False):
                    await clients.write("only")
            with pytest.raises(MemoreeError, match="exists") as refused:
                await _rebuild(site, store)
            assert refused.value.code is Code.CONFIG_ERROR

    asyncio.run(run())


def test_a_tenant_without_history_cannot_be_rebuilt(site: Site) -> None:
    async def run() -> None:
        async with S3Store(site.s3) as store:
            with pytest.raises(MemoreeError) as refused:
                await _rebuild(site, store)
            assert refused.value.code is Code.INTEGRITY_ERROR
            with pytest.raises(ObjectMissing):
                await store.head(f"tenants/{site.tenant}/head.json")

    asyncio.run(run())
