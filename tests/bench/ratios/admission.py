"""What tokens and limits cost: one and the same route of two servers on one directory, the cheapest that there is."""

from __future__ import annotations

import asyncio
import secrets
import time

import orjson

from memoree.embedded import LOCAL_TENANT

from .. import episodes
from ..figures import Figure, Ratio, latencies_ms, p50
from ..memories import server
from ..site import Site, say
from ..stack import SCOPES, UNLIMITED
from ..wire import Caller, ingest

EPISODE_ID = "01KJR4GZXJDFPSG3SB9V65FA1E"
ROUTE = f"GET /v1/episode/{EPISODE_ID}"


async def measure(site: Site) -> Figure:
    plan, directory = site.plan, site.directory / "admission"
    await asyncio.to_thread(episodes.fill, directory, 1, iter(["the first one"]), say)
    token, tokens_file = secrets.token_urlsafe(32), site.directory / "admission.tokens.json"
    tokens_file.touch(mode=0o600)
    tokens_file.write_bytes(orjson.dumps({token: {"tenant": LOCAL_TENANT, "scopes": SCOPES}}))
    limits = {"MEMOREE_RATE_PER_SECOND": UNLIMITED, "MEMOREE_RATE_BURST": UNLIMITED}
    guarded: list[float] = []
    unguarded: list[float] = []
    async with (
        server(directory) as (open_url, _),
        server(directory, "--tokens", str(tokens_file), **limits) as (guarded_url, _),
        await Caller.open(open_url, "", "POST /v1/ingest") as ingesting,
        await Caller.open(open_url, "", ROUTE) as anybody,
        await Caller.open(guarded_url, token, ROUTE) as somebody,
    ):
        await ingesting.answered(orjson.dumps({**orjson.loads(ingest("what is read")), "id": EPISODE_ID}))
        for caller in (anybody, somebody):
            await _answered(caller, plan.samples_per_round)
        for _ in range(plan.rounds):
            unguarded += await _answered(anybody, plan.samples_per_round)
            guarded += await _answered(somebody, plan.samples_per_round)
    absolute = latencies_ms("with_tokens_and_limits", guarded) | latencies_ms("without_tokens", unguarded)
    return Figure(p50(guarded), p50(unguarded), absolute)


async def _answered(caller: Caller, samples: int) -> list[float]:
    seconds = []
    for _ in range(samples):
        began = time.perf_counter()
        found = await caller.answered()
        seconds.append(time.perf_counter() - began)
        assert found["id"] == EPISODE_ID
    return seconds


RATIO = Ratio(
    name="auth_and_limit_overhead",
    measured_is="one HTTP read with tokens and limits",
    floor_is="the same without",
    must=1.3,
    aim=1.1,
    measure=measure,
)
