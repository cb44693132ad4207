"""The jobs as the schedule runs them: receipts of a tenant at rest are kept, and nothing is made twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from memoree import limits
from memoree.assembly import job_site
from memoree.backup.record import published
from memoree.jobs import backup_site, scheduled
from memoree.jobs.erase import erase_in_deployment
from memoree.objects import ObjectInfo, ObjectStoreError
from memoree.objects.filesystem import FilesystemStore
from memoree.reader.replica import Replica
from memoree.replication.head import Head
from memoree.stack.seaweedfs import SeaweedServer

from .test_backup import Deployment, run

pytestmark = pytest.mark.stack


class Denied(FilesystemStore):
    """A bucket whose credentials were taken away."""

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        raise ObjectStoreError("AccessDenied")
        yield


@pytest.mark.proves("operations-13", "operations-14")
def test_a_tenant_at_rest_is_collected_and_pruned_until_no_receipt_tells_of_it(
    seaweed_server: SeaweedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an erasure after which nothing is written: neither job leaves the tenant out, and the backup that holds
    what was erased goes without another one being made."""

    async def body(deployment: Deployment) -> None:
        site, tenant, settings = deployment.site, deployment.tenant, deployment.site.settings
        kept = replace(site, settings=settings.model_copy(update={"backups_keep_last": 10}), second=None)
        reply = await deployment.call("claim.assert", {"claim_type": "fact", "statement": "It is a secret."})
        done = await scheduled.back_up(kept, tenant)
        assert done.again_seconds is None
        assert (await scheduled.collect(kept, tenant)).again_seconds is None
        (old,) = await published(site.store, tenant)
        await erase_in_deployment(kept, tenant, [reply.envelope["result"]["claim_id"]], "asked for")
        done = await scheduled.back_up(kept, tenant)
        assert done.again_seconds == settings.backup_every_seconds
        assert (await scheduled.collect(kept, tenant)).again_seconds == settings.gc_every_seconds
        (young,) = set(await published(site.store, tenant)) - {old}
        monkeypatch.setattr(limits, "ERASED_IN_BACKUPS_SECONDS", 0.0)
        await scheduled.back_up(kept, tenant)
        assert await published(site.store, tenant) == [young]

    run(seaweed_server, tmp_path, body)


@pytest.mark.fault_class(4)
@pytest.mark.proves("operations-44")
def test_a_tenant_that_takes_longer_to_load_than_a_request_waits_is_backed_up(
    seaweed_server: SeaweedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be too large for every job for ever."""

    async def body(deployment: Deployment) -> None:
        await deployment.claim("Cone 6 was reached.")
        monkeypatch.setattr(limits, "HEAD_WAIT_SECONDS_MAX", 0.5)
        show = Replica._show

        async def slowly(replica: Replica, head: Head) -> None:
            await asyncio.sleep(3 * limits.HEAD_WAIT_SECONDS_MAX)
            await show(replica, head)

        monkeypatch.setattr(Replica, "_show", slowly)
        async with job_site(deployment.site.settings) as site:
            made = await backup_site.back_up(site, deployment.tenant)
        assert made["commit_seq"] == 1

    run(seaweed_server, tmp_path, body)


@pytest.mark.proves("operations-44")
def test_a_backup_that_is_made_is_not_made_again_because_of_what_comes_after_it(
    seaweed_server: SeaweedServer, tmp_path: Path
) -> None:
    """Given a second bucket that refuses everything: that is told, and the backup is there once."""

    async def body(deployment: Deployment) -> None:
        site = replace(deployment.site, second=Denied(tmp_path / "second"))
        await deployment.claim("Cone 6 was reached.")
        made = []
        for statement in (None, None, "Cone 7 was reached."):
            if statement is not None:
                await deployment.claim(statement)
            done = await scheduled.back_up(site, deployment.tenant)
            assert done.problem == "not everything was done of: backup, prune"
            assert "AccessDenied" in str(done.result["backup"]["second"]["failures"])
            made.append(done.result["backup"]["backup_id"])
        assert made[0] == made[1] != made[2]
        assert await published(site.store, deployment.tenant) == [made[2]]

    run(seaweed_server, tmp_path, body)
