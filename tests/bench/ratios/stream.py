"""Resident memory while a large content passes through: sent to an api process, verified by the writer, read back.

The api process is a new one, so that nothing measured before counts; the writer is the stack's, measured before it has
had much to do. Both are watched all the while.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
from blake3 import blake3

from ..data import CONTEXT
from ..figures import Figure, Ratio
from ..processes import MIB, descendants, memory_of
from ..site import STREAM, Site

LOOK_SECONDS = 0.05
STEP_SECONDS_MAX = 300.0
POLL_SECONDS = 0.02


class Peak:
    """The largest resident memory seen of each process, MiB."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.rss = {pid: memory_of(pid).rss for pid in pids}

    async def watch(self) -> None:
        while True:
            for pid in self.rss:
                self.rss[pid] = max(self.rss[pid], memory_of(pid).rss)
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def watched(pids: Sequence[int]) -> AsyncIterator[Peak]:
    peak = Peak(pids)
    watching = asyncio.create_task(peak.watch())
    try:
        yield peak
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


class Content:
    """Bytes that are their own block over and over, so that nobody has to hold them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._block = uuid.uuid4().bytes * (MIB // 16)
        hasher = blake3()
        for _ in range(size // MIB):
            hasher.update(self._block)
        self.digest = hasher.hexdigest()

    async def blocks(self) -> AsyncIterator[bytes]:
        for _ in range(self.size // MIB):
            yield self._block


async def measure(site: Site) -> Figure:
    content = Content(site.plan.stream_bytes)
    headers = {"Authorization": f"Bearer {site.stack.tokens[STREAM]}"}
    async with (
        site.stack.api_process("stream") as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=STEP_SECONDS_MAX, trust_env=False) as client,
    ):
        await _call(client, "claim.assert", {"claim_type": "fact", "statement": "the tenant is known"})
        api, writer = _processes(site)
        before = memory_of(api).rss
        async with watched([api, writer]) as peak:
            began = time.perf_counter()
            upload_id = await _send(client, content)
            sent = time.perf_counter()
            path = await _name(client, upload_id)
            named = time.perf_counter()
            await _read_back(client, path, content)
            read = time.perf_counter()
    megabytes = content.size / 1_000_000
    absolute = {
        "stream_api_rss_before_mb": before,
        "stream_api_rss_mb": peak.rss[api],
        "stream_writer_rss_mb": peak.rss[writer],
        "stream_upload_mb_per_s": megabytes / (sent - began),
        "stream_verification_mb_per_s": megabytes / (named - sent),
        "stream_download_mb_per_s": megabytes / (read - named),
    }
    return Figure(max(peak.rss.values()), absolute=absolute)


def _processes(site: Site) -> tuple[int, int]:
    """The new api process, and the stack's writer."""
    of_stack = descendants(site.stack.pid, "memoree.stack.processes api")
    (api,) = set(descendants(os.getpid(), "memoree.stack.processes api")) - set(of_stack)
    (writer,) = descendants(site.stack.pid, "memoree.stack.processes supervised-writer")
    return api, writer


async def _call(client: httpx.AsyncClient, operation: str, payload: dict[str, object]) -> dict[str, str]:
    """The result, asked for again with the same key while it is not decided."""
    key = uuid.uuid4().hex
    request = {"request_id": key, "op": operation, "context": CONTEXT, "idempotency_key": key, "input": payload}
    while True:
        answer = await client.post("/v1/call", json=request, headers={"Prefer": "wait=25"})
        if answer.status_code != httpx.codes.ACCEPTED:
            found: dict[str, str] = answer.raise_for_status().json()["result"]
            return found
        await asyncio.sleep(POLL_SECONDS)


async def _send(client: httpx.AsyncClient, content: Content) -> str:
    """To the api process itself: the store's own memory is not what is asked about."""
    declared = {"size_bytes": content.size, "blob_hash": content.digest}
    answer = await client.post("/v1/artifacts/uploads", json=declared)
    upload_id: str = answer.raise_for_status().json()["upload_id"]
    answer = await client.put(
        f"/v1/artifacts/uploads/{upload_id}/content",
        content=content.blocks(),
        headers={"Content-Length": str(content.size)},
    )
    answer.raise_for_status()
    return upload_id


async def _name(client: httpx.AsyncClient, upload_id: str) -> str:
    """Put an artifact of it; where its bytes are."""
    named = {"type": "upload", "upload_id": upload_id}
    payload = {"kind": "file", "title": "large", "media_type": "application/octet-stream", "content": named}
    record = await _call(client, "artifact.put", payload)
    return f"/v1/artifacts/{record['artifact_id']}/revisions/{record['revision_id']}/content"


async def _read_back(client: httpx.AsyncClient, path: str, content: Content) -> None:
    hasher = blake3()
    async with client.stream("GET", path) as answer:
        async for chunk in answer.aiter_bytes():
            hasher.update(chunk)
    assert hasher.hexdigest() == content.digest, "the benchmark read something else than it wrote"


RATIO = Ratio(
    name="stream_1gib_rss_mb",
    measured_is="resident memory of an api process and the writer while 1 GiB is uploaded and downloaded, MiB",
    floor_is="-",
    must=200,
    aim=150,
    measure=measure,
)
