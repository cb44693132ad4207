"""Durable writes per second of 64 clients, each waiting for its answer before it writes again.

The load comes from this one process; `writes_load_cpu_share` is the part of one processor it used. The clients of the
floor are aiobotocore's and keep a whole processor busy (`writes_put_load_cpu_share`): that is what a program gets
from this store through the client the product uses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ..figures import Figure, Ratio, latencies_ms
from ..site import SMALL, Site
from ..wire import Caller, assert_text

Write = Callable[[Caller], Awaitable[object]]


async def measure(site: Site) -> Figure:
    return await side_by_side(site, "POST /v1/call", _claim, "writes")


async def _claim(caller: Caller) -> None:
    await caller.call(assert_text("one of many clients wrote this"))


async def side_by_side(site: Site, route: str, write: Write, name: str) -> Figure:
    """Writes per second of many clients of a route over PUTs per second of as many."""
    plan = site.plan
    each = -(-plan.writes_per_client // plan.rounds)
    writes, puts = _Side(), _Side()
    latencies: list[float] = []
    async with await site.warm_caller():
        callers = [await site.stack.caller(SMALL, route=route) for _ in range(plan.clients)]
        for _ in range(plan.rounds):
            with puts:
                await site.puts.throughput(plan.clients, each)
            with writes:
                latencies += await _write_all(callers, write, each)
        for caller in callers:
            await caller.__aexit__(None, None, None)
    done = plan.rounds * each * plan.clients
    absolute = latencies_ms(f"{name}_64", latencies) | {
        f"{name}_64_per_second": done / writes.seconds,
        f"{name}_puts_64_per_second": done / puts.seconds,
        f"{name}_load_cpu_share": writes.processor_seconds / writes.seconds,
        f"{name}_put_load_cpu_share": puts.processor_seconds / puts.seconds,
    }
    return Figure(done / writes.seconds, done / puts.seconds, absolute)


async def _write_all(callers: list[Caller], write: Write, each: int) -> list[float]:
    return [seconds for one in await asyncio.gather(*(_write(c, write, each) for c in callers)) for seconds in one]


async def _write(caller: Caller, write: Write, writes: int) -> list[float]:
    seconds = []
    for _ in range(writes):
        began = time.perf_counter()
        await write(caller)
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
