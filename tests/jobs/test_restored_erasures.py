"""Erasures before and after restores, in a deployment: what was never erased can be restored, and what was is on
record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faults.site import Site
from memoree import erasures
from memoree.jobs import backup_check, erase, gc, verify
from memoree.jobs.backup import create
from memoree.objects.blobs import blob_prefix

from .test_restore import Stage, stage

pytestmark = pytest.mark.stack

TEXT = "cone 6 reached at 21:40\n" * 1000


async def put(on: Stage, key: str) -> str:
    payload = {"kind": "note", "title": key, "content": {"type": "text", "data": TEXT}}
    result: dict[str, Any] = (await on.clients.decided("artifact.put", payload, key=key))["result"]
    return str(result["artifact_id"])


@pytest.mark.proves("operations-12", "operations-13", "operations-15", "operations-36")
@pytest.mark.parametrize("erased_first", [True, False])
def test_one_of_two_with_the_same_content_is_erased_and_the_other_is_restored(site: Site, erased_first: bool) -> None:
    """Of two backups the younger has both. Given the older one restored and the one in it erased, in either order, when
    garbage is collected, then the younger is whole and the other comes back with it; and the tenant verifies."""

    async def run() -> None:
        async with stage(site) as on:
            jobs, tenant = on.jobs, on.tenant

            async def erased() -> Any:
                return (await erase.erase_in_deployment(jobs, tenant, [one], "asked for"))["stores"]["blobs"]

            with site.writer():
                one = await put(on, "one")
                older = await create(jobs.tenancy(tenant), jobs.scratch.path)
                other = await put(on, "other")
                younger = await create(jobs.tenancy(tenant), jobs.scratch.path)
                if erased_first:
                    assert await erased() == "erased"
                    assert (await on.restored(older)).erased_again == 1
                else:
                    await on.restored(older)
                    assert (await erased()).startswith("retained_until")
                assert (await gc.collect(jobs.tenancy(tenant))).deletes.removed == 0
                assert len([info async for info in jobs.store.list(blob_prefix(tenant))]) == 1
                for backup_id in (older.backup_id, younger.backup_id):
                    checked = await backup_check.verify(jobs.store, tenant, backup_id, jobs.scratch.path, full=True)
                    assert checked.faults == []

                verdict = await verify.verify(jobs.store, jobs.writer.replicator, tenant, jobs.scratch.path)
                assert [str(issue) for issue in verdict.issues] == []
                assert [entry.entities for entry in await erasures.recorded(jobs.store, tenant)][-1] == (one,)

                new = (await on.restored(younger, f"{tenant}-new")).tenant
                got = await on.ask("artifact.get", {"artifact_id": other}, new)
                assert got["ok"], got
                assert await on.verified(new) == []
                verdict = await verify.verify(jobs.store, jobs.writer.replicator, new, jobs.scratch.path)
                assert [str(issue) for issue in verdict.issues] == []

    asyncio.run(run())
