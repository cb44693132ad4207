"""`verify` of a stack with 100 MB of blobs, against reading and hashing the same blobs, one after the other."""

from __future__ import annotations

import base64
import random
import time

from blake3 import blake3

from memoree.objects.blobs import blob_key

from ..figures import Figure, Ratio, p50
from ..site import BLOBS, Site
from ..wire import Caller, put_bytes, verify

MB = 1_000_000
SEED = 3


async def measure(site: Site) -> Figure:
    blobs = [random.Random(SEED + number).randbytes(site.plan.blob_bytes) for number in range(site.plan.blobs)]
    digests = [blake3(blob).hexdigest() for blob in blobs]
    size_mb = len(blobs) * site.plan.blob_bytes / MB
    verified: list[float] = []
    read: list[float] = []
    async with await site.stack.caller(BLOBS) as caller:
        for blob in blobs:
            await caller.call(put_bytes(base64.b64encode(blob).decode()))
        for _ in range(site.plan.rounds):
            read.append(await _read_and_hashed(site, digests))
            verified.append(await _verified(caller, len(blobs)))
    measured, floor = size_mb / p50(verified), size_mb / p50(read)
    return Figure(measured, floor, {"verify_mb_per_s": measured, "read_and_hash_mb_per_s": floor})


async def _verified(caller: Caller, blobs: int) -> float:
    began = time.perf_counter()
    report = (await caller.call(verify()))["result"]
    seconds = time.perf_counter() - began
    assert report["ok"] and report["checked_external_blobs"] == blobs, report
    return seconds


async def _read_and_hashed(site: Site, digests: list[str]) -> float:
    began = time.perf_counter()
    for digest in digests:
        found = await site.store.get(blob_key(BLOBS, digest))
        assert found is not None and blake3(found.body).hexdigest() == digest
    return time.perf_counter() - began


RATIO = Ratio(
    name="verify_mb_per_s_over_read",
    measured_is="MB/s of `verify` in a stack with 100 MB of blobs",
    floor_is="reading and hashing the same blobs",
    must=0.5,
    aim=1,
    measure=measure,
    higher_is_better=True,
)
