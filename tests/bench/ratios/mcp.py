"""A search of a bundle through the Model Context Protocol over HTTP, against the same search over `/v1/call`: one
server, one connection each, in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import orjson

from memoree.operations.okf_search import SEARCH

from .. import data
from ..figures import Figure, Ratio, latencies_ms, p50
from ..memories import server
from ..site import Site
from ..wire import Caller
from .okf import CONTEXT, WORDS_MAX, WORDS_MIN, imported

ROUTE = "POST /mcp"
ACCEPT = "accept: application/json, text/event-stream\r\n"


async def measure(site: Site) -> Figure:
    found, plan = await imported(site), site.plan
    chooser = random.Random(115)
    bodies = [document.body.split() for document in data.documents(found.files)]
    queries = [
        " ".join(chooser.sample(chooser.choice(bodies), chooser.randint(WORDS_MIN, WORDS_MAX)))
        for _ in range(plan.samples_per_round)
    ]
    tool: list[float] = []
    call: list[float] = []
    async with (
        server(found.directory / "data") as (url, _),
        await Caller.open(url, "", ROUTE, ACCEPT) as model,
        await Caller.open(url, "") as caller,
    ):
        await _tools(model, queries)
        await _calls(caller, queries)
        for _ in range(plan.rounds):
            tool += await _tools(model, queries)
            call += await _calls(caller, queries)
    return Figure(p50(tool), p50(call), latencies_ms("mcp_search", tool) | latencies_ms("okf_search_http", call))


async def _tools(model: Caller, queries: Sequence[str]) -> list[float]:
    seconds = []
    for number, query in enumerate(queries):
        params = {"name": "memory_search", "arguments": {"query": query}}
        body = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        began = time.perf_counter()
        answer = await model.answered(body)
        seconds.append(time.perf_counter() - began)
        assert answer["result"]["structuredContent"]["count"] > 0, answer
    return seconds


async def _calls(caller: Caller, queries: Sequence[str]) -> list[float]:
    seconds = []
    for query in queries:
        body = orjson.dumps({"request_id": "req_bench", "op": SEARCH, **CONTEXT, "input": {"query": query}})
        began = time.perf_counter()
        answer = await caller.call(body)
        seconds.append(time.perf_counter() - began)
        assert answer["result"]["count"] > 0, answer
    return seconds


RATIO = Ratio(
    name="mcp_call_over_http_call",
    measured_is="one memory_search over /mcp",
    floor_is="the same search over /v1/call",
    must=3.0,
    aim=1.5,
    measure=measure,
)
