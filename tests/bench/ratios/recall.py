"""`memory.recall` over HTTP on 100 000 claims and 20 000 artifacts, warm, against one fixed reference query per case.

The reference query runs on a plain full-text index of the same texts in a file of its own, so that no choice of the
product's (its columns, its tokenizer's options, what it scores) makes the floor higher.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

from .. import queries
from ..asking import asked, plain
from ..figures import Figure, Ratio, latencies_ms, p50
from ..site import Site


async def measure(site: Site) -> Figure:
    memory = await site.memory()
    cases = queries.cases(site.plan.queries_per_band)
    http: defaultdict[str, list[float]] = defaultdict(list)
    bare: defaultdict[str, list[float]] = defaultdict(list)
    async with await memory.caller() as caller:
        for first in range(site.plan.rounds):
            some = cases[first :: site.plan.rounds]
            await asked(caller, some)
            for case, seconds in zip(some, await asked(caller, some), strict=True):
                http[case.kind].append(seconds)
            plain(memory, some)
            for case, seconds in zip(some, plain(memory, some), strict=True):
                bare[case.kind].append(seconds)
    every_http, every_bare = list(chain.from_iterable(http.values())), list(chain.from_iterable(bare.values()))
    absolute = latencies_ms("recall", every_http) | latencies_ms("plain_fts", every_bare)
    for kind in http:
        absolute |= latencies_ms(f"recall_{kind}", http[kind]) | latencies_ms(f"plain_fts_{kind}", bare[kind])
    return Figure(p50(every_http), p50(every_bare), absolute)


RATIO = Ratio(
    name="recall_p50_over_bare_fts",
    measured_is="one HTTP `memory.recall`, 100 000 claims and 20 000 artifacts, warm",
    floor_is="the reference query on claims and on artifacts, plain index",
    must=4,
    aim=1.5,
    measure=measure,
)
