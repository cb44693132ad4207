"""Filling the tenant of relations and contradictions, through the front door."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .site import GRAPH, Site
from .wire import assert_text


async def claims(site: Site, count: int) -> list[str]:
    """New claims; their ids."""
    answers = await in_parallel(site, [assert_text(f"a claim of the graph {number}") for number in range(count)])
    return [answer["result"]["claim_id"] for answer in answers]


async def in_parallel(site: Site, bodies: Sequence[bytes]) -> list[dict[str, Any]]:
    """The answers to writes that many clients make at once, in the order of the bodies."""
    answers: dict[int, dict[str, Any]] = {}
    waiting = iter(enumerate(bodies))

    async def client() -> None:
        async with await site.stack.caller(GRAPH) as caller:
            for number, body in waiting:
                answers[number] = await caller.call(body)

    await asyncio.gather(*(client() for _ in range(site.plan.clients)))
    return [answers[number] for number in range(len(bodies))]
