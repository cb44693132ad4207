"""How much slower `memory.recall` is on ten times the claims, against how much slower the reference query is.

Four words drawn by their frequency, so that most queries have a common one. Both stores and both plain indexes are
asked in turn, so that all four sides meet the same machine.
"""

from __future__ import annotations

from .. import queries
from ..asking import asked, plain
from ..figures import Figure, Ratio, latencies_ms, p50
from ..site import Site


async def measure(site: Site) -> Figure:
    small, large = await site.memory(), await site.grown_memory()
    cases = queries.questions(queries.ZIPF)[: site.plan.growth_queries]
    http: dict[int, list[float]] = {small.claims: [], large.claims: []}
    bare: dict[int, list[float]] = {small.claims: [], large.claims: []}
    for first in range(site.plan.rounds):
        some = cases[first :: site.plan.rounds]
        for memory in (small, large):
            async with await memory.caller() as caller:
                await asked(caller, some)
                http[memory.claims] += await asked(caller, some)
            plain(memory, some)
            bare[memory.claims] += plain(memory, some)
    resident = large.resident()
    absolute = {"rss_server_grown_mb": resident.rss, "rss_server_grown_anonymous_mb": resident.anonymous}
    for claims in http:
        absolute |= latencies_ms(f"recall_zipf_{claims}", http[claims])
        absolute |= latencies_ms(f"plain_fts_zipf_{claims}", bare[claims])
    return Figure(
        p50(http[large.claims]) / p50(http[small.claims]), p50(bare[large.claims]) / p50(bare[small.claims]), absolute
    )


RATIO = Ratio(
    name="recall_growth_over_bare_growth",
    measured_is="p50 of `memory.recall` at 1 000 000 claims over that at 100 000",
    floor_is="the same of the reference query",
    must=1.1,
    aim=0.4,
    measure=measure,
)
