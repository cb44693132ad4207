"""Resident memory of the api and the writer while they serve 100 000 claims.

Resident counts the pages of a mapped replica too, which the kernel takes back when it needs them; the anonymous part
beside it does not.
"""

from __future__ import annotations

from functools import partial

from ..figures import Figure, Ratio
from ..processes import descendants, memory_of
from ..site import FULL, Site
from ..wire import search

LITESTREAM = "litestream replicate"


async def _measure(site: Site, name: str, command: str) -> Figure:
    filled = await site.filled()
    async with await site.stack.caller(FULL) as caller:
        await caller.caught_up(search("the newest state", min_commit_seq=filled.head.commit_seq))
    (pid,) = descendants(site.stack.pid, f"memoree.stack.processes {command}")
    memory = memory_of(pid)
    absolute = {f"rss_{name}_anonymous_mb": memory.anonymous}
    for number, child in enumerate(descendants(pid, LITESTREAM), start=1):
        absolute[f"rss_litestream_{number}_mb"] = memory_of(child).rss
    return Figure(memory.rss, absolute=absolute)


API = Ratio(
    name="rss_api_mb",
    measured_is="resident memory of the api process, MiB",
    floor_is="-",
    must=250,
    aim=150,
    measure=partial(_measure, name="api", command="api"),
)
WRITER = Ratio(
    name="rss_writer_mb",
    measured_is="resident memory of the writer process, MiB",
    floor_is="-",
    must=250,
    aim=150,
    measure=partial(_measure, name="writer", command="supervised-writer"),
)
