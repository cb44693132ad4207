"""The slowest of a hundred contexts of 12 KiB over HTTP against the ordinary one.

Over questions and words drawn by their frequency, which is what contexts are built for. Of the bands `absolute` has the
same two numbers: there the cheapest queries are one rare word and the dearest one that most claims have, so that
their ratio says what the list is made of.
"""

from __future__ import annotations

from .. import queries
from ..asking import asked
from ..figures import Figure, Ratio, latencies_ms, p50, percentile
from ..queries import Case
from ..site import Site
from ..wire import build_context

CONTEXT_BYTES = 12 * 1024
SLOW_SHARE = 0.99
REPEATS = 2


async def measure(site: Site) -> Figure:
    memory = await site.memory()
    natural, bands = _lists(site.plan.queries_per_band)
    async with await memory.caller() as caller:
        await asked(caller, natural + bands, _context)
        seconds = [each for _ in range(REPEATS) for each in await asked(caller, natural, _context)]
        of_bands = await asked(caller, bands, _context)
    absolute = latencies_ms("context_12kib", seconds) | latencies_ms("context_12kib_bands", of_bands)
    return Figure(percentile(seconds, SLOW_SHARE), p50(seconds), absolute)


def _lists(per_list: int) -> tuple[list[Case], list[Case]]:
    """Questions and drawn words, and everything else."""
    cases = queries.cases(per_list)
    natural = [case for case in cases if case.kind in (queries.QUESTION, queries.ZIPF)]
    return natural, [case for case in cases if case not in natural]


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
