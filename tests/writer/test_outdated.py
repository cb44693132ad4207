"""Which tenants a starting writer migrates, and what it does about those it cannot."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from memoree.database.schema import SCHEMA_VERSION
from memoree.errors import Code, MemoreeError
from memoree.objects import StoreUnavailable
from memoree.objects.filesystem import FilesystemStore
from memoree.replication.head import HeadFile, HeadLost
from memoree.writer import outdated
from memoree.writer.outdated import migrate_outdated, outdated_tenants
from memoree.writer.reign import LeaseHeld


async def with_heads(store: FilesystemStore, versions: dict[str, int]) -> None:
    for tenant, version in versions.items():
        await HeadFile(store, f"tenants/{tenant}/").create(version, "")


async def migrated(store: FilesystemStore, tenant: str) -> None:
    head = HeadFile(store, f"tenants/{tenant}/")
    reading = await head.read()
    assert reading is not None
    await head.swap(reading, replace(reading.head, schema_version=SCHEMA_VERSION))


def test_only_tenants_of_an_older_schema_are_found(tmp_path: Path) -> None:
    async def run() -> None:
        store = FilesystemStore(tmp_path)
        await with_heads(store, {"old": SCHEMA_VERSION - 1, "current": SCHEMA_VERSION, "newer": SCHEMA_VERSION + 1})
        await store.put("tenants/damaged/head.json", b"{")
        await store.put("tenants/headless/blobs/b3/00/x", b"x")
        await store.put("tenants/not a tenant/head.json", b"{}")
        assert [tenant async for tenant in outdated_tenants(store)] == ["old"]

    asyncio.run(run())


@pytest.mark.parametrize(
    "trouble", [LeaseHeld("an older writer", 1.0), HeadLost("a rival was faster"), StoreUnavailable("no answer")]
)
def test_what_is_out_of_reach_is_tried_again(
    tmp_path: Path, trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outdated, "MIGRATION_RETRY_SECONDS", 0.0)
    tries: Counter[str] = Counter()

    async def run() -> None:
        store = FilesystemStore(tmp_path)
        await with_heads(store, {"one": SCHEMA_VERSION - 1, "two": SCHEMA_VERSION - 1})

        async def take_over(tenant: str) -> None:
            tries[tenant] += 1
            if tenant == "one" and tries[tenant] < 3:
                raise trouble
            await migrated(store, tenant)

        await migrate_outdated(store, take_over)
        assert [tenant async for tenant in outdated_tenants(store)] == []

    asyncio.run(asyncio.wait_for(run(), 10))
    assert tries == {"one": 3, "two": 1}


def test_a_damaged_tenant_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every try would be another takeover. The others are migrated all the same."""
    monkeypatch.setattr(outdated, "MIGRATION_RETRY_SECONDS", 0.0)
    tries: Counter[str] = Counter()

    async def run() -> None:
        store = FilesystemStore(tmp_path)
        await with_heads(store, {"damaged": SCHEMA_VERSION - 1, "sound": SCHEMA_VERSION - 1})

        async def take_over(tenant: str) -> None:
            tries[tenant] += 1
            if tenant == "damaged":
                raise MemoreeError(Code.INTEGRITY_ERROR, "nothing can be restored")
            if tries[tenant] == 1:
                raise StoreUnavailable("no answer")
            await migrated(store, tenant)

        await migrate_outdated(store, take_over)

    asyncio.run(asyncio.wait_for(run(), 10))
    assert tries == {"damaged": 1, "sound": 2}
