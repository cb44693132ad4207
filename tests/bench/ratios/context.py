"""The slowest of a hundred contexts of 12 KiB over HTTP against the ordinary one, over every query list."""

from __future__ import annotations

from .. import queries
from ..asking import asked
from ..figures import Figure, Ratio, latencies_ms, p50, percentile
from ..site import Site
from ..wire import build_context

CONTEXT_BYTES = 12 * 1024
SLOW_SHARE = 0.99


async def measure(site: Site) -> Figure:
    memory = await site.memory()
    cases = queries.cases(site.plan.queries_per_band)
    async with await memory.caller() as caller:
        await asked(caller, cases, _context)
        seconds = await asked(caller, cases, _context)
    return Figure(percentile(seconds, SLOW_SHARE), p50(seconds), latencies_ms("context_12kib", seconds))


def _context(query: str) -> bytes:
    return build_context(query, CONTEXT_BYTES)


RATIO = Ratio(
    name="context_12kib_p99_over_p50",
    measured_is="p99 of one HTTP `context.build` of at most 12 KiB",
    floor_is="its p50",
    must=8,
    aim=4,
    measure=measure,
)
