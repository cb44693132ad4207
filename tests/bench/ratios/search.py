"""A search over HTTP on 100 000 claims, warm, against the same candidate statements bare on the api's own replica.

Both sides go through the committed query lists once to warm up and once for the record.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice

import apsw

from memoree import limits
from memoree.clock import stored, utc_now
from memoree.database import meta
from memoree.envelope import AmbientContext
from memoree.retrieval.candidates import ARTIFACT_CANDIDATES, CLAIM_CANDIDATES, TIED_ROWS_MAX, prepare
from memoree.retrieval.driving import driven
from memoree.retrieval.engine import WINDOW_PER_HIT
from memoree.retrieval.expression import EntityType, expression_of
from memoree.retrieval.query import analyze
from memoree.retrieval.scope import scope_bindings

from .. import data, queries
from ..figures import Figure, Ratio, latencies_ms, p50
from ..replicas import replica
from ..site import FULL, Site
from ..wire import Caller, search

WINDOW = WINDOW_PER_HIT * (limits.SEARCH_ITEMS_DEFAULT + 1)
"""Rows the product reads per statement for its default limit."""
UNBOUNDED = -1

Seconds = Mapping[str, Sequence[float]]


async def measure(site: Site) -> Figure:
    filled = await site.filled()
    lists = {band: words[: site.plan.queries_per_band] for band, words in queries.queries().items()}
    async with await site.stack.caller(FULL) as caller:
        await caller.caught_up(search("the newest state", min_commit_seq=filled.head.commit_seq))
        await _http(caller, lists)
        http = await _http(caller, lists)
        with closing(replica(site.stack, FULL, filled.head.commit_seq)) as db:
            _bare(db, lists)
            bare = _bare(db, lists)
    absolute: dict[str, float] = {}
    for band in lists:
        absolute |= latencies_ms(f"search_{band}", http[band]) | latencies_ms(f"bare_fts_{band}", bare[band])
    return Figure(p50(_all(http)), p50(_all(bare)), absolute | latencies_ms("search", _all(http)))


async def _http(caller: Caller, lists: Mapping[str, Sequence[str]]) -> Seconds:
    return {band: [await _answered(caller, query) for query in words] for band, words in lists.items()}


async def _answered(caller: Caller, query: str) -> float:
    body = search(query)
    began = time.perf_counter()
    answer = await caller.call(body)
    seconds = time.perf_counter() - began
    assert answer["result"]["hits"], f"nothing matches {query!r}, which was made from a claim"
    return seconds


def _bare(db: apsw.Connection, lists: Mapping[str, Sequence[str]]) -> Seconds:
    scope = scope_bindings(
        db, AmbientContext.model_validate(data.CONTEXT), "ambient", now=stored(utc_now()), historical=False
    )
    prepare(db)
    return {band: [_executed(db, query, scope) for query in words] for band, words in lists.items()}


def _executed(db: apsw.Connection, query: str, scope: Mapping[str, object]) -> float:
    claims = {**scope, "match": _match(db, query, "claim"), "rows_max": WINDOW + TIED_ROWS_MAX}
    artifacts = {**scope, "match": _match(db, query, "artifact"), "rows_max": UNBOUNDED}
    began = time.perf_counter()
    for statement, bound in ((CLAIM_CANDIDATES, claims), (ARTIFACT_CANDIDATES, artifacts)):
        with closing(db.execute(statement, bound)) as cursor:
            list(islice(cursor, WINDOW))
    return time.perf_counter() - began


def _match(db: apsw.Connection, text: str, entity_type: EntityType) -> str:
    query, counters = analyze(text), meta.read(db)
    expression = expression_of(query, entity_type)
    return driven(db, query, expression, entity_type, (counters.history, counters.commit_seq)).match


def _all(seconds: Seconds) -> list[float]:
    return [each for band in seconds.values() for each in band]


RATIO = Ratio(
    name="search_p50_over_bare_fts",
    measured_is="one HTTP search on 100 000 claims, warm",
    floor_is="its candidate statements bare on the same file",
    must=8,
    aim=3,
    measure=measure,
)
