"""A recall of MemoryProtocol over HTTP against the same operation called in this process, over the same directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from memoree import limits
from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService
from memoree.operations.recall_episodes import RECALL

from .. import data, episodes
from ..figures import Figure, Ratio, latencies_ms, p50
from ..memories import server
from ..site import Site, say
from ..wire import Caller, recall_episodes


async def measure(site: Site) -> Figure:
    plan, directory = site.plan, site.directory / "episodes"
    texts = (document.body for document in data.documents(plan.episodes))
    await asyncio.to_thread(episodes.fill, directory, plan.episodes, texts, say)
    queries = episodes.queries(min(plan.samples_per_round, plan.episodes))
    http: list[float] = []
    inside: list[float] = []
    service = embedded_service(directory)
    try:
        async with server(directory) as (url, _), await Caller.open(url, "", "POST /v1/recall") as caller:
            await _answered(caller, queries)
            _called(service, queries)
            for _ in range(plan.rounds):
                inside += _called(service, queries)
                http += await _answered(caller, queries)
    finally:
        service.close_sync()
    absolute = latencies_ms("episode_recall_http", http) | latencies_ms("episode_recall_inprocess", inside)
    return Figure(p50(http), p50(inside), absolute)


async def _answered(caller: Caller, queries: Sequence[str]) -> list[float]:
    seconds = []
    for query in queries:
        body = recall_episodes(query)
        began = time.perf_counter()
        found = await caller.answered(body)
        seconds.append(time.perf_counter() - began)
        assert found, f"nothing matches {query!r}, which was made from an episode"
    return seconds


def _called(service: EmbeddedService, queries: Sequence[str]) -> list[float]:
    seconds = []
    for query in queries:
        asked = episodes.request(RECALL, {"query": query, "k": limits.EPISODE_HITS_DEFAULT})
        began = time.perf_counter()
        reply = service.answer(asked)
        seconds.append(time.perf_counter() - began)
        assert reply.envelope["result"]["hits"]
    return seconds


RATIO = Ratio(
    name="recall_http_over_inprocess",
    measured_is="one recall of MemoryProtocol over HTTP",
    floor_is="the same operation called in the process",
    must=2.5,
    aim=1.5,
    measure=measure,
)
