"""Restores of tenants of a real deployment, whose writers go on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import apsw
import pytest

from faults.checker import Checker
from faults.site import Clients, Site
from faults.watch import watching
from memoree import erasures
from memoree.assembly import job_site
from memoree.backup.drill import rehearse
from memoree.backup.record import CHECKPOINT_NAME, INTENT_NAME, BackupRecord, intents, records
from memoree.backup.second import copy_missing
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.jobs.backup import create
from memoree.jobs.replicated import JobSite
from memoree.jobs.restore import Options, Restored, restore_backup
from memoree.objects.blobs import blob_prefix
from memoree.objects.copying import Place
from memoree.objects.s3 import S3Store
from memoree.replication import layout
from memoree.stack.seaweedfs import SeaweedServer

from .kiln import elsewhere

pytestmark = pytest.mark.stack

REPLACE = Options(replace=True)


@dataclass(frozen=True, slots=True)
class Stage:
    """A tenant with a writer, clients and jobs."""

    site: Site
    clients: Clients
    jobs: JobSite

    @property
    def tenant(self) -> str:
        return self.site.tenant

    async def backed_up(self) -> BackupRecord:
        return await create(self.jobs.tenancy(self.tenant), self.jobs.scratch.new_subdirectory("backup"))

    async def restored(self, record: BackupRecord, target: str | None = None, how: Options = REPLACE) -> Restored:
        return await restore_backup(self.jobs, Place(self.jobs.store, self.tenant), record, target or self.tenant, how)

    async def ask(self, operation: str, payload: dict[str, Any], tenant: str | None = None) -> dict[str, Any]:
        reply = await self.clients.call(operation, payload, tenant=tenant, strong=True)
        return dict(reply.envelope)

    async def statement(self, claim_id: str, tenant: str | None = None) -> str | None:
        """What a claim says; `None` when there is none."""
        envelope = await self.ask("claim.get", {"claim_id": claim_id}, tenant)
        if envelope["ok"]:
            return str(envelope["result"]["statement"])
        assert envelope["error"]["code"] == Code.NOT_FOUND, envelope
        return None

    async def hits(self, question: str, tenant: str) -> list[tuple[str, str]]:
        envelope = await self.ask("search", {"query": question, "limit": 10}, tenant)
        return [(hit["entity_id"], hit["revision_id"]) for hit in envelope["result"]["hits"]]

    async def verified(self, tenant: str | None = None) -> list[str]:
        envelope = await self.ask("verify", {}, tenant)
        return list(envelope["result"]["issues"])


@asynccontextmanager
async def stage(site: Site) -> AsyncIterator[Stage]:
    async with site.clients() as clients, job_site(site.settings) as jobs:
        yield Stage(site, clients, jobs)


@pytest.mark.proves("operations-26")
@pytest.mark.proves("operations-27")
def test_a_restore_over_a_living_tenant_needs_leave_and_undoes_what_came_later(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(site) as on:
            with site.writer():
                kept = await on.clients.write_cited("kept")
                record = await on.backed_up()
                undone = await on.clients.write("undone")
                before = Checker(site, tmp_path).head()
                with pytest.raises(MemoreeError, match="--replace") as refused:
                    await on.restored(record, how=Options())
                assert refused.value.code is Code.CONFIG_ERROR
                assert Checker(site, tmp_path).head()["epoch"] == before["epoch"], "the refusal cost a reign"

                restored = await on.restored(record)
                after = Checker(site, tmp_path).head()
                assert (restored.history, after["history"]) == (1, 1)
                assert restored.commit_seq == after["commit_seq"] == before["commit_seq"] + 1
                assert after["batch"] > before["batch"] and after["hlc"] > before["hlc"]
                assert await on.statement(kept.claim_id) == kept.statement
                assert await on.statement(undone.claim_id) is None
                following = await on.clients.write("following")
                assert following.commit_seq == restored.commit_seq + 1
                assert await on.verified() == []
            Checker(site, tmp_path).check([kept, following])

    asyncio.run(run())


@pytest.mark.fault_class(14)
@pytest.mark.proves("operations-28")
def test_nothing_of_the_replaced_history_is_served_or_applied(site: Site, tmp_path: Path) -> None:
    """With no writer about, and by a reader that has not looked at head since: whatever is answered comes from replicas
    and records of before, or from the restore."""

    async def run() -> None:
        async with stage(site) as on, site.clients(staleness_seconds_max=3600.0) as others:
            with site.writer() as writer:
                await on.clients.write("kept")
                record = await on.backed_up()
                undone = await others.write("undone")
                assert await on.statement(undone.claim_id) == undone.statement
                writer.stop()
            await on.clients.entrust("queued", tenant=on.tenant)
            restored = await on.restored(record)

            for clients in (others, on.clients):
                payload = {"claim_type": "fact", "statement": undone.statement}
                repeated = await clients.call("claim.assert", payload, key=undone.key, wait_seconds=0)
                assert repeated.status == HTTPStatus.ACCEPTED, "a replay of what was undone"
                claim = await clients.call("claim.get", {"claim_id": undone.claim_id}, strong=True)
                assert claim.envelope["error"]["code"] == Code.NOT_FOUND, claim.envelope
                token = {"query": "statement undone", "min_commit_seq": undone.commit_seq}
                found = await clients.call("search", token)
                assert found.snapshot_commit_seq == restored.commit_seq, found
                assert undone.claim_id not in str(found.envelope)
            with site.writer():
                again = await on.clients.write(undone.key)
                assert again.commit_seq > restored.commit_seq
                [(tenant, queued)] = on.clients.entrusted
                status = await on.clients.service.operation_status(tenant, queued)
                assert (status.state, status.error and status.error["details"]) == ("expired", {"reason": "expired"})
                assert await on.verified() == []

    asyncio.run(run())


@pytest.mark.proves("operations-28")
@pytest.mark.proves("operations-29")
def test_a_restore_under_load_loses_nothing_that_is_acknowledged_after_it(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(site) as on, watching(site, [site.tenant]) as watches:
            with site.writer():
                await on.clients.write_cited("first")
                record = await on.backed_up()
                async with on.clients.traffic("load"):
                    await on.clients.write("under way")
                    restored = await on.restored(record)
                    after = await on.clients.write("after the restore")
                assert after.commit_seq > restored.commit_seq
                assert await on.verified() == []
                lasting = [
                    written
                    for written in on.clients.acknowledged
                    if not record.commit_seq < written.commit_seq < restored.commit_seq
                ]
                lost = [written for written in on.clients.acknowledged if written not in lasting]
                assert lost, "nothing was undone"
                for written in lost[-3:]:
                    assert await on.statement(written.claim_id) is None
            Checker(site, tmp_path).check(lasting, watches[site.tenant])

    asyncio.run(run())


@pytest.mark.proves("operations-30")
def test_a_restore_that_lacks_a_blob_is_refused_with_its_name(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(site) as on:
            with site.writer():
                written = await on.clients.write_cited("cited")
                record = await on.backed_up()
                [blob] = [info async for info in on.jobs.store.list(blob_prefix(on.tenant))]
                await on.jobs.store.delete(blob.key)
                digest = blob.key.rpartition("/")[2]
                before = Checker(site, tmp_path).head()

                for target in (on.tenant, f"{on.tenant}-new"):
                    with pytest.raises(MemoreeError) as refused:
                        await on.restored(record, target)
                    assert refused.value.code is Code.INTEGRITY_ERROR
                    assert refused.value.details == {"missing": [digest], "missing_count": 1}
                assert Checker(site, tmp_path).head()["epoch"] == before["epoch"]
                assert not [info async for info in on.jobs.store.list(f"tenants/{on.tenant}-new/")]

                restored = await on.restored(record, how=Options(replace=True, allow_missing_blobs=True))
                assert (restored.blobs_missing, restored.missing_blobs) == (1, [digest])
                assert await on.statement(written.claim_id) == written.statement
                assert [line for line in await on.verified() if digest not in line] == []

                key = record.key_of(CHECKPOINT_NAME)
                await on.jobs.store.put(key, bytes(record.checkpoint.stored_size))
                with pytest.raises(MemoreeError) as refused:
                    await on.restored(record)
                assert (refused.value.code, refused.value.details) == (Code.INTEGRITY_ERROR, {"key": key})

    asyncio.run(run())


@pytest.mark.proves("operations-23")
def test_a_backup_in_another_bucket_becomes_a_new_tenant_with_its_blobs(
    site: Site, seaweed_server: SeaweedServer
) -> None:
    """The second bucket is all that is left; its erasures come with it."""

    async def run() -> None:
        elsewhere = replace(seaweed_server.admin_settings, bucket=f"second-{uuid.uuid4().hex[:8]}")
        async with stage(site) as on, S3Store(elsewhere) as second:
            await second.ensure_bucket()
            with site.writer():
                written = await on.clients.write_cited("cited")
                record = await on.backed_up()
                copied = await copy_missing(on.jobs.store, second, on.tenant, on.jobs.scratch.path, lambda _: None)
                assert copied.backups == [record.backup_id]
            for key in [info.key async for info in on.jobs.store.list(layout.tenant_prefix(on.tenant))]:
                await on.jobs.store.delete(key)

            [left] = await records(second, on.tenant)
            restored = await restore_backup(on.jobs, Place(second, on.tenant), left, f"{on.tenant}-new")
            assert (restored.history, restored.blobs_copied) == (0, 1)
            new = restored.tenant
            assert await on.statement(written.claim_id, new) == written.statement
            assert await on.verified(new) == []

    asyncio.run(run())


@pytest.mark.fault_class(64)
@pytest.mark.proves("operations-15")
def test_a_restored_tenant_finds_what_its_source_found_and_nothing_that_was_erased(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(site) as on:
            with site.writer():
                secret = await on.clients.write("Xanthippe")
                await on.clients.write_disputed("disputed")
                await on.clients.write_cited("cited")
                record = await on.backed_up()
                copy = (await on.restored(record, f"{on.tenant}-copy")).tenant
                for question in ("statement disputed", "xantippe", "cited"):
                    source, restored = [await on.hits(question, each) for each in (on.tenant, copy)]
                    assert source == restored != []
                with closing(restored_database(site, tmp_path, copy)) as db:
                    assert rehearse(db, record.drill.at).plans == record.drill.plans

                tenancy = on.jobs.tenancy(on.tenant)
                order = {"entities": [secret.claim_id], "reason": "asked for"}
                erased = await tenancy.submit("store.erase", order, key="the order")
                entry = Erasure(erased["erasure_id"], record.created_at, erased["commit_seq"], (secret.claim_id,), ())
                await erasures.record(on.jobs.store, on.tenant, entry)
                for target in (on.tenant, f"{on.tenant}-after"):
                    await on.restored(record, target)
                    found = await on.ask("search", {"query": "Xanthippe"}, target)
                    assert secret.claim_id not in str(found["result"]["hits"])
                    assert await on.verified(target) == []

    asyncio.run(run())


def restored_database(site: Site, scratch: Path, tenant: str) -> apsw.Connection:
    """The newest state of a tenant, straight from the store."""
    checker = Checker(site, scratch, tenant)
    return checker.restored(checker.head())


@pytest.mark.proves("operations-30")
def test_a_restore_whose_intent_is_gone_restores_nothing(site: Site, tmp_path: Path) -> None:
    """Given a restore that stood still for a day when it had seen its blobs: its intent was removed by age, and what it
    had seen was collected."""

    async def run() -> None:
        async with stage(site) as on:
            with site.writer():
                kept = await on.clients.write_cited("kept")
                record = await on.backed_up()
                before = Checker(site, tmp_path).head()

                def a_day_later(step: str) -> None:
                    if step.startswith("beginning a new epoch"):
                        elsewhere(lambda: asyncio.run(remove_intents(site)))

                with pytest.raises(MemoreeError, match="was removed") as refused:
                    await on.restored(record, how=replace(REPLACE, progress=a_day_later))
                assert refused.value.code is Code.TRANSPORT_ERROR
                await on.clients.write("following")
            assert Checker(site, tmp_path).head()["history"] == before["history"]
            assert await on.statement(kept.claim_id) == kept.statement

    asyncio.run(run())


async def remove_intents(site: Site) -> None:
    """Of what is not published."""
    async with job_site(site.settings) as jobs:
        for intent in await intents(jobs.store, site.tenant):
            if not intent.published:
                await jobs.store.delete(layout.backup_key(site.tenant, intent.backup_id, INTENT_NAME))
