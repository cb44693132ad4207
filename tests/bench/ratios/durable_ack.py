"""One client writes claims one after the other over HTTP; each answer means durable, and costs so many PUTs."""

from __future__ import annotations

import time

from ..figures import Figure, Ratio, latencies_ms, p50
from ..site import Site
from ..wire import Caller, assert_text


async def measure(site: Site) -> Figure:
    puts: list[float] = []
    acks: list[float] = []
    async with await site.warm_caller() as caller:
        for _ in range(site.plan.rounds):
            puts += await site.puts.latencies(site.plan.samples_per_round)
            acks += await _writes(caller, site.plan.samples_per_round, first=len(acks))
    absolute = latencies_ms("put", puts) | latencies_ms("durable_ack", acks)
    return Figure(p50(acks), p50(puts), absolute)


async def _writes(caller: Caller, samples: int, first: int) -> list[float]:
    seconds = []
    for number in range(first, first + samples):
        body = assert_text(f"the durable claim {number}")
        began = time.perf_counter()
        await caller.call(body)
        seconds.append(time.perf_counter() - began)
    return seconds


RATIO = Ratio(
    name="durable_ack_p50_over_put_p50",
    measured_is="one HTTP write until it is acknowledged",
    floor_is="one 1 KiB PUT",
    must=12,
    aim=7,
    measure=measure,
)
