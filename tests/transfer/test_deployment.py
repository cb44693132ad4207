"""A tenant of a real deployment moves to another name, and from a deployment to a laptop."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site
from memoree.assembly import embedded_service, job_site
from memoree.erasures import recorded
from memoree.errors import Code, MemoreeError
from memoree.jobs.backup_site import back_up
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.erase import erase_in_deployment
from memoree.jobs.replicated import JobSite
from memoree.objects.audit import BlobAudit
from memoree.transfer import into_deployment
from memoree.transfer.exporting import export_tenant
from memoree.transfer.importing import check
from memoree.transfer.into_deployment import import_tenant
from memoree.transfer.into_directory import import_directory

pytestmark = pytest.mark.stack


async def exported(jobs: JobSite, tenant: str) -> bytes:
    file = io.BytesIO()
    await export_tenant(jobs.tenancy(tenant), file)
    return file.getvalue()


@pytest.mark.proves("operations-72")
def test_a_tenant_moves_to_another_name_and_to_a_laptop_byte_by_byte(site: Site, tmp_path: Path) -> None:
    moved = f"{site.tenant}-moved"

    async def run() -> bytes:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            with site.writer():
                await clients.write_cited("cited")
                await clients.write_disputed("disputed")
                archive = await exported(jobs, site.tenant)
                imported = await import_tenant(jobs, moved, io.BytesIO(archive))
                assert await exported(jobs, moved) == archive
                written = await clients.write("after", tenant=moved)
                assert written.commit_seq == imported.commit_seq + 1
                await clients.write("meanwhile")
            Checker(site, tmp_path).check(clients.acknowledged)
            reply = await clients.call("verify", {}, tenant=moved, strong=True)
            assert reply.envelope["result"]["ok"], reply.envelope
            return archive

    archive = asyncio.run(run())
    import_directory(io.BytesIO(archive), tmp_path / "laptop")
    laptop = embedded_service(tmp_path / "laptop")
    file = io.BytesIO()
    asyncio.run(export_tenant(EmbeddedTenancy(laptop), file))
    laptop.close_sync()
    assert file.getvalue() == archive


@pytest.mark.proves("operations-73")
def test_an_import_over_commits_is_refused_and_changes_nothing(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            with site.writer():
                await clients.write_many("kept", 3)
                archive = await exported(jobs, site.tenant)
                with pytest.raises(MemoreeError) as caught:
                    await import_tenant(jobs, site.tenant, io.BytesIO(archive))
                assert caught.value.code is Code.INVALID_REQUEST
                await clients.write("after")
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


@pytest.mark.proves("operations-73")
@pytest.mark.parametrize("damage", ["cut short", "another text"])
def test_an_import_that_fails_leaves_no_object_behind(site: Site, damage: str) -> None:
    failed = f"{site.tenant}-failed"

    async def run() -> None:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            with site.writer():
                await clients.write_cited("cited")
                archive = await exported(jobs, site.tenant)
            changed = archive.replace(b"statement cited of", b"statement cited oF")
            broken = archive[:-4096] if damage == "cut short" else changed
            assert broken != archive
            with pytest.raises(MemoreeError):
                await import_tenant(jobs, failed, io.BytesIO(broken))
            assert [info.key async for info in jobs.store.list(f"tenants/{failed}/")] == []

    asyncio.run(run())


@pytest.mark.proves("operations-73")
def test_an_import_into_a_tenant_that_is_born_meanwhile_leaves_it_as_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an export that carries erasures: were they on record of a tenant that knows nothing of them, every backup
    of it would be taken for one that an erasure overtook."""
    born = f"{site.tenant}-born"

    async def run() -> None:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            with site.writer(leased=True):
                secret = await clients.write("secret")
                await erase_in_deployment(jobs, site.tenant, [secret.claim_id], "it was one")
                archive = await exported(jobs, site.tenant)

                def born_first(database: Path, audit: BlobAudit) -> None:
                    asyncio.run_coroutine_threadsafe(clients.write("first", tenant=born), loop).result()
                    check(database, audit)

                loop = asyncio.get_running_loop()
                monkeypatch.setattr(into_deployment, "check", born_first)
                with pytest.raises(MemoreeError) as caught:
                    await import_tenant(jobs, born, io.BytesIO(archive))
                assert caught.value.code is Code.TRANSPORT_ERROR
                assert await recorded(jobs.store, born) == []
                assert (await back_up(jobs, born))["commit_seq"] == 1

    asyncio.run(run())
