"""The writer is killed at every step from an upload to a blob; whoever comes next repeats what leads to the same."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx
import pytest
from blake3 import blake3

from faults.site import Clients, Site
from memoree.objects.blobs import blob_key
from memoree.objects.s3 import S3Store
from memoree.replication import layout
from memoree.uploads import UploadDeclaration

POINTS = ["upload_hashed", "upload_promoted", "upload_sent_on"]
BODY = b"cone 6 reached at 21:40\n" * 400_000


async def _sent(clients: Clients, tenant: str) -> str:
    declaration = UploadDeclaration(size_bytes=len(BODY), blob_hash=blake3(BODY).hexdigest())
    ticket = await clients.service.uploads.declare(tenant, declaration)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.put(ticket.url, content=BODY, headers=dict(ticket.headers))
    assert answer.status_code == 200, answer.text
    return ticket.upload_id


@pytest.mark.fault_class(44)
def test_writers_killed_while_they_verify_lose_and_repeat_nothing(site: Site) -> None:
    asyncio.run(_killed_at_every_step(site))


async def _killed_at_every_step(site: Site) -> None:
    async with site.clients() as clients, S3Store(site.s3) as store:
        upload_id = await _sent(clients, site.tenant)
        content = {"type": "upload", "upload_id": upload_id}
        payload = {"kind": "file", "title": "t", "media_type": "application/octet-stream", "content": content}
        putting = asyncio.create_task(clients.decided("artifact.put", payload, key="k"))
        for point in POINTS:
            with site.writer(crash_at=point) as doomed:
                await doomed.crashed()
        with site.writer():
            acknowledged = (await putting)["result"]
            repeated = (await clients.decided("artifact.put", payload, key="k"))["result"]
            await clients.write("the first commit after it")
        assert repeated["artifact_id"] == acknowledged["artifact_id"]
        assert acknowledged["commit_seq"] == 1
        found = await clients.service.revision_content(
            site.tenant, acknowledged["artifact_id"], acknowledged["revision_id"], strong=True
        )
        async with aclosing(found.windows(0, found.size)) as windows:
            assert b"".join([window async for window in windows]) == BODY
        prefix = layout.tenant_prefix(site.tenant)
        keys = [info.key async for info in store.list(prefix)]
        assert [key for key in keys if "/blobs/" in key] == [blob_key(site.tenant, blake3(BODY).hexdigest())]
        assert [key for key in keys if "/uploads/" in key] == [f"{prefix}uploads/{upload_id}.declaration"]
