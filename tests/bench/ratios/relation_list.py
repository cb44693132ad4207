"""A page of 100 relations over HTTP, of a claim with 10 000 of them, against the same statement bare on the api's own
replica: half of the edges come in, half go out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

import apsw
import orjson

from memoree import limits
from memoree.clock import stored, utc_now
from memoree.database.relations import PAGES
from memoree.envelope import AmbientContext
from memoree.operations.shapes import FIRST_PAGE
from memoree.retrieval.scope import scope_bindings

from .. import data
from ..figures import Figure, Ratio, latencies_ms, p50
from ..graph import claims, in_parallel
from ..replicas import replica
from ..site import GRAPH, Site
from ..wire import Caller, list_relations, relate

PAGE_ROWS = limits.RELATION_LIST_ITEMS_MAX


async def measure(site: Site) -> Figure:
    anchor, *others = await claims(site, 1 + site.plan.edges)
    edges = [(anchor, other) if number % 2 else (other, anchor) for number, other in enumerate(others)]
    await in_parallel(site, [relate(source, "supports", target) for source, target in edges])
    http: list[float] = []
    bare: list[float] = []
    async with await site.stack.caller(GRAPH) as caller:
        newest = await _newest(caller, anchor)
        with closing(replica(site.stack, GRAPH, newest)) as db:
            _executed(db, anchor, site.plan.samples_per_round)
            await _answered(caller, anchor, site.plan.samples_per_round)
            for _ in range(site.plan.rounds):
                bare += _executed(db, anchor, site.plan.samples_per_round)
                http += await _answered(caller, anchor, site.plan.samples_per_round)
    absolute = latencies_ms("relation_list", http) | latencies_ms("bare_relation_list", bare)
    return Figure(p50(http), p50(bare), absolute)


async def _newest(caller: Caller, anchor: str) -> int:
    """The commit of the newest edge, once the api shows every one of them."""
    answer = await caller.call(list_relations(anchor))
    number: int = answer["result"]["relations"][0]["relation_commit_seq"]
    return number


async def _answered(caller: Caller, anchor: str, samples: int) -> list[float]:
    seconds = []
    for _ in range(samples):
        body = list_relations(anchor)
        began = time.perf_counter()
        answer = await caller.send(body)
        seconds.append(time.perf_counter() - began)
        assert len(orjson.loads(answer)["result"]["relations"]) == PAGE_ROWS
    return seconds


def _executed(db: apsw.Connection, anchor: str, samples: int) -> Sequence[float]:
    context = AmbientContext.model_validate(data.CONTEXT)
    bindings = scope_bindings(db, context, "ambient", now=stored(utc_now()), historical=False) | {
        "entity_type": "claim",
        "entity_id": anchor,
        "relation": None,
        "before": FIRST_PAGE,
        "limit": PAGE_ROWS + 1,
    }
    seconds = []
    for _ in range(samples):
        began = time.perf_counter()
        rows = db.execute(PAGES["both"], bindings).fetchall()
        seconds.append(time.perf_counter() - began)
        assert len(rows) == PAGE_ROWS + 1
    return seconds


RATIO = Ratio(
    name="relation_list_p50_over_bare_sql",
    measured_is="one HTTP page of 100 of a claim's 10 000 relations",
    floor_is="its indexed SELECT bare on the same file",
    must=6,
    aim=4,
    measure=measure,
)
