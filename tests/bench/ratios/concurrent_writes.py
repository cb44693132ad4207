"""Durable writes per second of 64 clients, each waiting for its answer before it writes again.

The load comes from this one process; `load_cpu_share` is the part of one processor it used. The clients of the floor
are aiobotocore's and keep a whole processor busy (`put_load_cpu_share`): that is what a program gets from this store
through the client the product uses.
"""

from __future__ import annotations

import asyncio
import time

from ..figures import Figure, Ratio, latencies_ms
from ..site import SMALL, Site
from ..wire import Caller, assert_text


async def measure(site: Site) -> Figure:
    plan = site.plan
    each = -(-plan.writes_per_client // plan.rounds)
    writes, puts = _Side(), _Side()
    latencies: list[float] = []
    async with await site.warm_caller():
        callers = [await site.stack.caller(SMALL) for _ in range(plan.clients)]
        for _ in range(plan.rounds):
            with puts:
                await site.puts.throughput(plan.clients, each)
            with writes:
                latencies += await _write_all(callers, each)
        for caller in callers:
            await caller.__aexit__(None, None, None)
    done = plan.rounds * each * plan.clients
    absolute = latencies_ms("durable_ack_64", latencies) | {
        "writes_64_per_second": done / writes.seconds,
        "puts_64_per_second": done / puts.seconds,
        "load_cpu_share": writes.processor_seconds / writes.seconds,
        "put_load_cpu_share": puts.processor_seconds / puts.seconds,
    }
    return Figure(done / writes.seconds, done / puts.seconds, absolute)


async def _write_all(callers: list[Caller], each: int) -> list[float]:
    return [seconds for one in await asyncio.gather(*(_write(c, each) for c in callers)) for seconds in one]


async def _write(caller: Caller, writes: int) -> list[float]:
    seconds = []
    for _ in range(writes):
        body = assert_text("one of many clients wrote this")
        began = time.perf_counter()
        await caller.call(body)
        seconds.append(time.perf_counter() - began)
    return seconds


class _Side:
    """Adds up the time spent inside, and the processor time of this process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.processor_seconds = 0.0

    def __enter__(self) -> None:
        self.seconds -= time.perf_counter()
        self.processor_seconds -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter()
        self.processor_seconds += time.process_time()


RATIO = Ratio(
    name="writes_64_over_put_64",
    measured_is="durable writes/s of 64 HTTP clients",
    floor_is="1 KiB PUTs/s of 64 clients",
    must=0.5,
    aim=1.5,
    measure=measure,
    higher_is_better=True,
)
