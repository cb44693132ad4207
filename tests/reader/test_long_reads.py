"""Reads through the whole store, over a bucket: they keep no other read and no write waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from memoree.objects.s3 import S3Settings
from memoree.verification import store as verification

from .test_service import Site, run, writing

pytestmark = pytest.mark.stack

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
SECONDS_MAX = 20.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in another thread
            await asyncio.sleep(0.01)


def test_a_verify_that_does_not_end_keeps_nobody_waiting_and_ends_with_its_caller(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(db: apsw.Connection, blobs: object) -> None:
        begun.set()
        db.execute(ENDLESS).fetchall()

    async def body(site: Site) -> None:
        content = {"type": "text", "data": "cone 6 reached at 21:40"}
        async with writing(site):
            with monkeypatch.context() as patched:
                patched.setattr(verification, "verify", endless)
                verifying = asyncio.create_task(site.call("verify", {}))
                await until(begun.is_set)
                for _ in range(8):
                    refused = await site.call("verify", {})
                    assert (refused.status, refused.envelope["error"]["retryable"]) == (503, True)
                put = await site.call("artifact.put", {"kind": "log", "title": "t", "content": content}, key="put")
                assert put.status == 200
                assert (await site.call("doctor", {})).status == 200
                verifying.cancel()
                await asyncio.gather(verifying, return_exceptions=True)
            async with asyncio.timeout(SECONDS_MAX):
                while (sound := await site.call("verify", {})).status == 503:
                    pass
            assert sound.envelope["result"]["ok"]

    run(seaweedfs, tmp_path, body)
