"""A new api process until its first answer from the full tenant, against Litestream restoring the same data alone."""

from __future__ import annotations

import asyncio
import shutil
import time

from memoree.replication import layout
from memoree.replication.litestream import restore
from memoree.replication.ltx import parse_name, restorable_boundaries

from .. import queries
from ..figures import Figure, Ratio, latencies_ms, p50
from ..processes import MIB
from ..site import FULL, Site
from ..wire import search


async def measure(site: Site) -> Figure:
    await site.filled()
    starts: list[float] = []
    restores: list[float] = []
    size_bytes = 0
    for number in range(site.plan.cold_starts):
        seconds, size_bytes = await _restored(site)
        restores.append(seconds)
        starts.append(await _answered_by_new_process(site, number))
    absolute = latencies_ms("cold_start", starts) | latencies_ms("litestream_restore", restores)
    return Figure(p50(starts), p50(restores), absolute | {"cold_start_tenant_mb": size_bytes / MIB})


async def _answered_by_new_process(site: Site, number: int) -> float:
    """The request is sent as soon as the process exists, and waits for it in the listening socket."""
    name = f"cold-{number}"
    query = queries.queries()["medium"][number]
    began = time.perf_counter()
    async with site.stack.api_process(name) as url, await site.stack.caller(FULL, url=url) as caller:
        answer = await caller.call(search(query))
        seconds = time.perf_counter() - began
    assert answer["result"]["hits"], f"nothing matches {query!r}, which was made from a claim"
    await asyncio.to_thread(shutil.rmtree, site.stack.data_dir / name)
    return seconds


async def _restored(site: Site) -> tuple[float, int]:
    """Seconds, and the size of the restored file."""
    filled = await site.filled()
    assert filled.head.prefix is not None
    prefix = layout.tenant_prefix(FULL) + filled.head.prefix
    names = [name async for info in site.store.list(prefix) if (name := parse_name(info.key)) is not None]
    boundary = next(txid for txid in restorable_boundaries(names) if txid >= filled.head.txid)
    output = site.directory / "restored.sqlite3"
    began = time.perf_counter()
    await restore(site.stack.replica_target(prefix), boundary, output)
    seconds = time.perf_counter() - began
    size_bytes = output.stat().st_size
    output.unlink()
    return seconds, size_bytes


RATIO = Ratio(
    name="cold_start_over_restore",
    measured_is="a new api process until its first search answer",
    floor_is="litestream restore of the same data alone",
    must=2.5,
    aim=1.3,
    measure=measure,
)
