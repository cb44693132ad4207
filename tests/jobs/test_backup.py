"""Backups of a deployment: a real SeaweedFS with two buckets, a real writer with its Litestream, the commands."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from memoree.assembly import job_site, writer_worker
from memoree.backup.record import CHECKPOINT_NAME, records
from memoree.clock import Clock
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError
from memoree.jobs.backup import create
from memoree.jobs.backup_site import back_up, check, list_all, prune_all
from memoree.jobs.replicated import JobSite
from memoree.objects import ObjectStore
from memoree.objects.blobs import blob_prefix
from memoree.objects.s3 import S3Store
from memoree.replication import layout
from memoree.service import Reply
from memoree.settings import StackSettings
from memoree.stack.seaweedfs import SeaweedServer
from reader.recorded import request

pytestmark = pytest.mark.stack

LONG_TEXT = "cone 6 reached at 21:40\n" * 1000
DECIDED_SECONDS_MAX = 30.0

R = TypeVar("R")


@dataclass(frozen=True)
class Deployment:
    site: JobSite
    tenant: str
    environment: dict[str, str]

    async def call(self, op: str, input: dict[str, Any]) -> Reply:
        return await self.site.service.call(self.tenant, request(op, input))

    async def note(self, text: str) -> None:
        content = {"type": "text", "data": text}
        reply = await self.call("artifact.put", {"kind": "note", "title": "Kiln", "content": content})
        assert reply.envelope["ok"], reply.envelope

    async def claim(self, statement: str) -> int:
        """Its commit number."""
        reply = await self.call("claim.assert", {"claim_type": "fact", "statement": statement})
        assert reply.envelope["ok"], reply.envelope
        return int(reply.envelope["commit_seq"])

    async def command(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """The envelope that `memoree backup …` prints."""
        run = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "memoree.cli.main", "backup", *arguments, "--tenant", self.tenant],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (run.returncode, run.stderr) == (status, ""), run
        answer: dict[str, Any] = json.loads(run.stdout)
        return answer


@asynccontextmanager
async def deployed(server: SeaweedServer, directory: Path) -> AsyncIterator[Deployment]:
    first, second = server.settings, replace(server.admin_settings, bucket=f"second-{uuid.uuid4().hex[:12]}")
    values = {
        "bucket": first.bucket,
        "endpoint_url": first.endpoint_url,
        "access_key_id": first.access_key_id,
        "secret_access_key": first.secret_access_key,
        "queue_url": f"sqlite://{directory / 'queue.sqlite3'}",
        "runtime_dir": str(directory / "runtime"),
        "backup_bucket": second.bucket,
        "backup_endpoint_url": second.endpoint_url,
        "backup_access_key_id": second.access_key_id,
        "backup_secret_access_key": second.secret_access_key,
        "backups_keep_last": "1",
        "backups_keep_daily": "0",
        "backups_keep_weekly": "0",
    }
    settings = StackSettings(**values)  # type: ignore[arg-type]
    async with AsyncExitStack() as stack:
        await (await stack.enter_async_context(S3Store(second))).ensure_bucket()
        site = await stack.enter_async_context(job_site(settings))
        worker = await stack.enter_async_context(writer_worker(settings, supervised=True))
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        try:
            environment = {f"MEMOREE_{name.upper()}": str(value) for name, value in values.items()}
            yield Deployment(site, f"t-{uuid.uuid4().hex[:12]}", environment)
        finally:
            stop.set()
            await running


def run(server: SeaweedServer, directory: Path, body: Callable[[Deployment], Awaitable[None]]) -> None:
    async def main() -> None:
        async with deployed(server, directory) as deployment:
            await body(deployment)

    asyncio.run(main())


@dataclass(frozen=True)
class Held:
    """A tenant whose snapshot is held until `go_on`, when everything has been copied."""

    deployment: Deployment
    copied: threading.Event
    go_on: threading.Event

    @property
    def tenant(self) -> str:
        return self.deployment.tenant

    @property
    def store(self) -> ObjectStore:
        return self.deployment.site.store

    @property
    def clock(self) -> Clock:
        return self.deployment.site.writer.clock

    async def snapshot(self, work: Callable[[apsw.Connection], R]) -> tuple[R, Meta]:
        def held(db: apsw.Connection) -> R:
            found = work(db)
            self.copied.set()
            assert self.go_on.wait(DECIDED_SECONDS_MAX)
            return found

        return await self.deployment.site.service.snapshot(self.tenant, held)


@pytest.mark.proves("operations-20")
def test_writes_are_acknowledged_while_a_backup_holds_its_snapshot(
    seaweed_server: SeaweedServer, tmp_path: Path
) -> None:
    async def body(deployment: Deployment) -> None:
        before = await deployment.claim("Cone 6 was reached.")
        held = Held(deployment, threading.Event(), threading.Event())
        making = asyncio.create_task(create(held, deployment.site.scratch.path))
        assert await asyncio.to_thread(held.copied.wait, DECIDED_SECONDS_MAX)
        after = [await deployment.claim(f"Cone {cone} was reached.") for cone in range(7, 12)]
        assert not making.done()
        held.go_on.set()
        made = await making
        assert (made.commit_seq, after) == (before, list(range(before + 1, before + 6)))
        assert (await back_up(deployment.site, deployment.tenant))["commit_seq"] == after[-1]

    run(seaweed_server, tmp_path, body)


@pytest.mark.proves("operations-23")
def test_a_tenant_is_backed_up_into_both_buckets_and_old_backups_are_pruned(
    seaweed_server: SeaweedServer, tmp_path: Path
) -> None:
    async def body(deployment: Deployment) -> None:
        site, tenant = deployment.site, deployment.tenant
        await deployment.note(LONG_TEXT)
        old = await back_up(site, tenant)
        await deployment.note(LONG_TEXT + "and more")
        new = await back_up(site, tenant, full=True)
        assert (old["second"]["blobs"], new["second"]["blobs"], new["blobs"]) == (1, 1, 2)
        assert site.second is not None
        assert await records(site.second, tenant) == await records(site.store, tenant)

        done = await prune_all(site, tenant)
        assert (done["pruned"], done["second"]["pruned"]) == ([old["backup_id"]], [old["backup_id"]])
        for store in (site.store, site.second):
            keys = [info.key async for info in store.list(layout.backups_prefix(tenant))]
            assert len(keys) == 4 and all(new["backup_id"] in key for key in keys)

        async for info in site.store.list(layout.tenant_prefix(tenant)):
            if not info.key.startswith(layout.tenant_prefix(tenant) + "ltx/"):
                await site.store.delete(info.key)  # blobs, backups, head: the first bucket is lost
        assert (await list_all(site, tenant, "first"))["backups"] == []
        (found,) = (await list_all(site, tenant, "second"))["backups"]
        checked = await check(site, tenant, found["backup_id"], "second", full=True)
        assert (checked["ok"], checked["restore_drill"], checked["checked_blobs"]) == (True, "same", 2), checked

    run(seaweed_server, tmp_path, body)


def test_the_operation_backs_up_into_the_place_of_its_tenant_and_nowhere_else(
    seaweed_server: SeaweedServer, tmp_path: Path
) -> None:
    async def body(deployment: Deployment) -> None:
        tenant, bucket = deployment.tenant, deployment.site.settings.bucket
        reply = await deployment.call("backup.create", {"destination": "s3://"})
        assert reply.envelope["error"]["code"] == "NOT_FOUND", "it was never written to"
        await deployment.note(LONG_TEXT)
        place = f"s3://{bucket}/{layout.backups_prefix(tenant)}"
        for destination in ("s3://", f"s3://{bucket}", place):
            reply = await deployment.call("backup.create", {"destination": destination})
            made = reply.envelope["result"]
            assert made["destination"].startswith(place) and made["commit_seq"] == 1
            assert made["database"] == made["destination"] + CHECKPOINT_NAME
            assert made["blobs"] == f"s3://{bucket}/{blob_prefix(tenant)}"
            assert "commit_seq" not in reply.envelope
        other = f"s3://{bucket}/{layout.backups_prefix('somebody-else')}"
        for destination in (other, "s3://elsewhere", f"s3://{bucket}/tenants", str(tmp_path / "copy")):
            reply = await deployment.call("backup.create", {"destination": destination})
            assert reply.envelope["error"]["code"] == "CONFIG_ERROR", destination
        made_ids = [record.backup_id for record in await records(deployment.site.store, tenant)]
        assert len(made_ids) == 3 and not (tmp_path / "copy").exists()

    run(seaweed_server, tmp_path, body)


def test_a_tenant_that_was_never_written_to_is_not_backed_up_and_can_still_be_born(
    seaweed_server: SeaweedServer, tmp_path: Path
) -> None:
    async def body(deployment: Deployment) -> None:
        with pytest.raises(MemoreeError) as refusal:
            await back_up(deployment.site, deployment.tenant)
        assert refusal.value.code is Code.NOT_FOUND
        assert await deployment.claim("Cone 6 was reached.") == 1

    run(seaweed_server, tmp_path, body)


def test_the_commands_make_list_show_verify_and_prune(seaweed_server: SeaweedServer, tmp_path: Path) -> None:
    async def body(deployment: Deployment) -> None:
        await deployment.note(LONG_TEXT)
        made = (await deployment.command("create"))["result"]
        assert (made["commit_seq"], made["blobs"], made["second"]["failures"]) == (1, 1, {})
        listed = (await deployment.command("list", "--from", "second"))["result"]
        assert [each["backup_id"] for each in listed["backups"]] == [made["backup_id"]]
        shown = (await deployment.command("show", made["backup_id"]))["result"]
        assert (shown["tenant"], shown["manifest"]["blobs"]) == (deployment.tenant, 1)

        store = deployment.site.store
        [blob] = [info.key async for info in store.list(blob_prefix(deployment.tenant))]
        await store.put(blob, LONG_TEXT.replace("6", "5", 1).encode())
        checked = (await deployment.command("verify", made["backup_id"], "--full", status=1))["result"]
        assert [fault["object"] for fault in checked["faults"]] == [blob]
        assert (await deployment.command("prune", "--dry-run"))["result"]["kept"] == [made["backup_id"]]

    run(seaweed_server, tmp_path, body)
