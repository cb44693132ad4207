"""Administrative operations over a bucket: `verify` reads all of it, `backup.create` has no place there."""

from __future__ import annotations

from pathlib import Path

import pytest

from memoree.objects.blobs import blob_prefix
from memoree.objects.s3 import S3Settings, S3Store

from .test_service import Site, run, writing

pytestmark = pytest.mark.stack

LONG_TEXT = "cone 6 reached at 21:40\n" * 1000


def test_verify_reads_every_blob_of_the_tenant(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        content = {"type": "text", "data": LONG_TEXT}
        async with writing(site), S3Store(seaweedfs) as store:
            put = await site.call("artifact.put", {"kind": "log", "title": "t", "content": content}, key="put")
            assert put.status == 200
            sound = (await site.call("verify", {})).envelope["result"]
            assert (sound["issues"], sound["checked_external_blobs"]) == ([], 1)
            [blob] = [info.key async for info in store.list(blob_prefix(site.tenant))]
            await store.put(blob, LONG_TEXT.replace("6", "5", 1).encode())
            [issue] = (await site.call("verify", {})).envelope["result"]["issues"]
            assert "digest mismatch" in issue and blob.rpartition("/")[2] in issue
            await store.delete(blob)
            [issue] = (await site.call("verify", {})).envelope["result"]["issues"]
            assert "is missing from the store" in issue

    run(seaweedfs, tmp_path, body)


def test_a_bucket_is_not_backed_up_into_a_directory(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        reply = await site.call("backup.create", {"destination": str(tmp_path / "backup")})
        assert reply.envelope["error"]["code"] == "CONFIG_ERROR"
        assert "bucket" in reply.envelope["error"]["message"]
        assert not (tmp_path / "backup").exists()

    run(seaweedfs, tmp_path, body)
