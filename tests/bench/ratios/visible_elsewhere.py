"""A write to one api process, seen by another.

The clock starts when the write is sent to process A. In the same moment a search for the claim's own word goes to
process B with `min_commit_seq` of the commit the write is going to make (nobody else writes to the tenant, so the
number is known; the acknowledgement confirms it). The clock stops when B's answer holds the claim. `handover` is the
other way to ask: B is asked only after A's acknowledgement, as when A's agent passes the number on.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from ..figures import Figure, Ratio, latencies_ms, p50
from ..site import SMALL, Site
from ..wire import Caller, assert_text, search


async def measure(site: Site) -> Figure:
    puts: list[float] = []
    seen: list[float] = []
    handed_over: list[float] = []
    samples = range(1, site.plan.samples_per_round + 1)
    async with (
        site.stack.api_process("elsewhere") as url,
        await site.warm_caller() as here,
        await site.stack.caller(SMALL, url=url) as elsewhere,
    ):
        await elsewhere.call(search("anything"))
        for _ in range(site.plan.rounds):
            puts += await site.puts.latencies(len(samples))
            last = (await here.call(assert_text("the last commit before")))["commit_seq"]
            seen += [await _asked_at_once(here, elsewhere, commit_seq=last + number) for number in samples]
            handed_over += [await _asked_after(here, elsewhere) for _ in samples]
    absolute = latencies_ms("visible_elsewhere", seen) | latencies_ms("handover", handed_over)
    return Figure(p50(seen), p50(puts), absolute)


async def _asked_at_once(here: Caller, elsewhere: Caller, commit_seq: int) -> float:
    word = _new_word()
    write, read = assert_text(f"seen elsewhere as {word}"), search(word, min_commit_seq=commit_seq)
    began = time.perf_counter()
    writing = asyncio.create_task(here.call(write))
    _check_shows(await elsewhere.call(read), word)
    seconds = time.perf_counter() - began
    assert (await writing)["commit_seq"] == commit_seq, "somebody else writes to the benchmark's tenant"
    return seconds


async def _asked_after(here: Caller, elsewhere: Caller) -> float:
    word = _new_word()
    write = assert_text(f"handed over as {word}")
    began = time.perf_counter()
    acknowledged = await here.call(write)
    _check_shows(await elsewhere.call(search(word, min_commit_seq=acknowledged["commit_seq"])), word)
    return time.perf_counter() - began


def _new_word() -> str:
    return f"w{uuid.uuid4().hex}"


def _check_shows(answer: dict[str, Any], word: str) -> None:
    assert answer["result"]["hits"], f"{word} was not found although its commit was asked for"


RATIO = Ratio(
    name="visible_elsewhere_p50_over_put_p50",
    measured_is="a write to one api process until another one answers with it",
    floor_is="one 1 KiB PUT",
    must=16,
    aim=8,
    measure=measure,
)
