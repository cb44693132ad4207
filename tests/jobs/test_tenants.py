"""Whole tenants of a deployment: founded, looked at, bounded, and deleted so that nothing brings them back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from faults.site import Clients, Site, until
from memoree.assembly import job_site
from memoree.errors import Code, MemoreeError
from memoree.jobs import backup_site, tenant_administration
from memoree.jobs.replicated import JobSite
from memoree.jobs.tenant_administration import ReplicatedTenants
from memoree.replication import layout, tombstone

pytestmark = pytest.mark.stack

CLAIM = {"claim_type": "fact", "statement": "one more"}


@asynccontextmanager
async def opened(site: Site) -> AsyncIterator[tuple[Clients, JobSite, ReplicatedTenants]]:
    async with site.clients() as clients, job_site(site.settings) as jobs:
        yield clients, jobs, jobs.administration


async def refused(work: Any) -> MemoreeError | None:
    """What the work was refused with; `None` when it was not."""
    try:
        await work
    except MemoreeError as error:
        return error
    return None


async def deleted(tenants: ReplicatedTenants, tenant: str) -> dict[str, Any]:
    announced = await tenants.announce_deletion(tenant)
    return await tenants.delete(tenant, announced["confirmation"])


async def keys(jobs: JobSite, tenant: str) -> list[str]:
    return [info.key async for info in jobs.store.list(layout.tenant_prefix(tenant))]


@pytest.mark.proves("operations-84")
def test_a_tenant_is_created_bounded_and_shown(site: Site) -> None:

    async def scenario() -> None:
        with site.writer():
            async with opened(site) as (clients, jobs, tenants):
                absent = await refused(tenants.show(site.tenant))
                first = await tenants.create(site.tenant, {"rows_max": 2})
                again = await tenants.create(site.tenant, {})
                assert absent is not None and absent.code is Code.NOT_FOUND
                assert (first["created"], again["created"]) == (True, False)
                assert site.tenant in await tenants.names(after="", limit=1000)
                assert (again["rows"], again["bytes"], again["last_backup"]) == (0, 0, None)
                await clients.write_cited("fits")
                reply = await clients.call("claim.assert", CLAIM, key="full")
                error = reply.envelope.get("error") or {}
                assert (reply.status, error.get("code")) == (413, "CONTENT_TOO_LARGE")
                assert error.get("details") == {"limit": "rows", "used": 2, "quota": 2}
                made = await backup_site.back_up(jobs, site.tenant)
                changed = await tenants.set_quota(site.tenant, {"rows_max": None, "rate_per_second": 7})
                assert changed["quota"] == {
                    "rows_max": None, "bytes_max": None, "rate_per_second": 7.0, "rate_burst": None
                }  # fmt: skip
                assert (await clients.call("claim.assert", CLAIM, key="full")).status == 200
                shown = await tenants.show(site.tenant)
                assert (shown["rows"], shown["quota"]) == (3, changed["quota"])
                assert shown["bytes"] > 16_384
                assert shown["last_backup"]["backup_id"] == made["backup_id"]
                granted = clients.service.granted(site.tenant)
                assert granted is not None and granted.rate_per_second == 7.0

    asyncio.run(scenario())


@pytest.mark.proves("operations-84")
def test_the_quota_of_the_deployment_reaches_its_writer(site: Site) -> None:

    async def scenario() -> None:
        with site.writer(quota_rows=1):
            async with opened(site) as (clients, _, tenants):
                await clients.write("fits")
                assert (await clients.call("claim.assert", CLAIM, key="full")).status == 413
                await tenants.set_quota(site.tenant, {"rows_max": 2})
                assert (await clients.call("claim.assert", CLAIM, key="full")).status == 200

    asyncio.run(scenario())


@pytest.mark.proves("operations-85")
def test_a_deletion_needs_the_tenants_own_fresh_confirmation_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"{site.tenant}-other"

    async def scenario() -> None:
        with site.writer():
            async with opened(site) as (clients, jobs, tenants):
                await clients.write("kept")
                await clients.write("kept", tenant=other)
                void = (await tenants.announce_deletion(site.tenant))["confirmation"]
                announced = await tenants.announce_deletion(site.tenant)
                foreign = (await tenants.announce_deletion(other))["confirmation"]
                assert (announced["rows"], announced["commit_seq"]) == (1, 1)
                for wrong in (void, foreign, "", "\ud800"):
                    error = await refused(tenants.delete(site.tenant, wrong))
                    assert error is not None and error.code is Code.REVISION_CONFLICT
                with monkeypatch.context() as clock:
                    clock.setattr(tenant_administration, "CONFIRMATION_SECONDS_MAX", -1.0)
                    late = await refused(tenants.delete(site.tenant, announced["confirmation"]))
                assert late is not None and late.code is Code.REVISION_CONFLICT
                assert layout.tenant_prefix(site.tenant) + "head.json" in await keys(jobs, site.tenant)

                async def fails(*_: object) -> dict[str, Any]:
                    return {"complete": False}

                with monkeypatch.context() as broken:
                    broken.setattr(tenant_administration, "delete_tenant", fails)
                    await tenants.delete(site.tenant, announced["confirmation"])
                used = await refused(tenants.delete(site.tenant, announced["confirmation"]))
                assert used is not None and used.code is Code.REVISION_CONFLICT
                assert (await deleted(tenants, site.tenant))["complete"] is True
                assert await keys(jobs, site.tenant) == []
                assert await keys(jobs, other) != []
                gone = await refused(tenants.announce_deletion(site.tenant))
                assert gone is not None and gone.code is Code.NOT_FOUND

    asyncio.run(scenario())


@pytest.mark.proves("operations-86")
def test_no_command_under_way_brings_a_deleted_tenant_back(site: Site) -> None:
    """Large ones among them, whose texts the writer would put back where they are missing."""

    async def scenario() -> None:
        async with opened(site) as (clients, jobs, tenants):
            with site.writer() as writer:
                await clients.write("gone")
                writer.stop()
            await clients.entrust("late", tenant=site.tenant)
            for number, size in enumerate((20_000, 300_000)):
                content = {"type": "text", "data": f"{number} ".ljust(size, "x")}
                payload = {"kind": "note", "title": "late", "content": content}
                reply = await clients.call("artifact.put", payload, key=f"late {number}", wait_seconds=0)
                assert reply.status == 202, reply.envelope
            assert (await deleted(tenants, site.tenant))["complete"] is True
            with site.writer() as writer:
                await clients.write("kept", tenant=f"{site.tenant}-other")
                await until(lambda: "messages are dropped" in writer.log(), 20, what="the drop")
                assert await keys(jobs, site.tenant) == []
                reply = await clients.call("claim.assert", CLAIM, key="later")
                error = reply.envelope.get("error") or {}
                assert (reply.status, error.get("code")) == (403, "FORBIDDEN")
                assert error.get("details") == {"reason": "tenant_deleted"}
            assert await keys(jobs, site.tenant) == []

    asyncio.run(scenario())


@pytest.mark.proves("operations-86")
def test_whoever_waits_for_a_write_learns_that_the_tenant_was_deleted(site: Site) -> None:

    async def scenario() -> None:
        async with opened(site) as (clients, _, tenants):
            with site.writer() as writer:
                await clients.write("gone")
                writer.stop()
            waiting = asyncio.create_task(clients.call("claim.assert", CLAIM, key="late", wait_seconds=6))
            await asyncio.sleep(0.2)
            await deleted(tenants, site.tenant)
            reply = await waiting
            assert (reply.envelope.get("error") or {}).get("code") == "FORBIDDEN"

    asyncio.run(scenario())


@pytest.mark.proves("operations-87")
def test_a_deleted_tenant_is_founded_anew_by_create_alone_and_empty(site: Site) -> None:

    async def scenario() -> None:
        async with opened(site) as (clients, jobs, tenants):
            with site.writer() as writer:
                await clients.write("gone")
                await tenants.set_quota(site.tenant, {"rows_max": 5})
                writer.stop()
            await clients.entrust("late", tenant=site.tenant)
            await deleted(tenants, site.tenant)
            with site.writer():
                made = await tenants.create(site.tenant, {"bytes_max": 100})
                assert (made["created"], made["history"], made["rows"]) == (True, 1, 0)
                assert made["quota"]["rows_max"] is None
                written = await clients.write("new")
                assert written.commit_seq == made["commit_seq"] + 1
                shown = await clients.call("claim.get", {"claim_id": written.claim_id}, strong=True)
                assert shown.envelope["ok"], shown.envelope
                attempt_id = clients.entrusted[0][1]
                decided = await clients.service.operation_status(site.tenant, attempt_id)
                assert decided.state == "expired"
                assert (await tenants.show(site.tenant))["rows"] == 1
                assert (await deleted(tenants, site.tenant))["complete"] is True
                buried = await tombstone.find(jobs.store, site.tenant)
                assert buried is not None and buried.history == 1

    asyncio.run(scenario())


@pytest.mark.proves("operations-87")
def test_an_api_that_never_saw_the_tenant_knows_that_it_was_deleted(site: Site) -> None:

    async def scenario() -> None:
        async with opened(site) as (clients, _, tenants):
            with site.writer() as writer:
                await clients.write("gone")
                writer.stop()
            await deleted(tenants, site.tenant)
            async with site.clients() as newcomers:
                reply = await newcomers.call("claim.assert", CLAIM, key="later")
                assert (reply.envelope.get("error") or {}).get("code") == "FORBIDDEN"
                search = await newcomers.call("search", {"query": "statement"}, strong=True)
                assert search.envelope["result"]["hits"] == []
                checks = {check.name: check.ok for check in await newcomers.service.readiness()}
                assert checks.get("store", True) and all(ok for name, ok in checks.items() if name != "queue"), checks

    asyncio.run(scenario())


@pytest.mark.proves("operations-87")
def test_a_second_deletion_at_once_never_takes_a_tombstone_back(site: Site) -> None:

    async def scenario() -> None:
        async with job_site(site.settings) as jobs:
            await asyncio.gather(*(tombstone.bury(jobs.store, site.tenant, history) for history in (3, 1, 2, 0)))
            await tombstone.bury(jobs.store, site.tenant, 1)
            buried = await tombstone.find(jobs.store, site.tenant)
            assert buried is not None and buried.history == 3

    asyncio.run(scenario())
