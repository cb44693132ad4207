"""Revising a claim with a long past, in conflict with another, against asserting a new one: neither history nor the
reassessment of the conflict may make a write slow."""

from __future__ import annotations

import time

from ..figures import Figure, Ratio, latencies_ms, p50
from ..graph import claims, in_parallel
from ..site import GRAPH, Site
from ..wire import Caller, assert_text, relate, revise_claim

RELATIONS = 100


class Revised:
    """A claim and its current revision."""

    def __init__(self, caller: Caller, claim_id: str, revision_id: str) -> None:
        self._caller = caller
        self.claim_id = claim_id
        self._revision_id = revision_id
        self._count = 0

    async def again(self) -> float:
        """Revise it once; how many seconds that took."""
        self._count += 1
        body = revise_claim(self.claim_id, self._revision_id, f"the claim in its state {self._count}")
        began = time.perf_counter()
        answer = await self._caller.call(body)
        seconds = time.perf_counter() - began
        self._revision_id = answer["result"]["revision_id"]
        return seconds


async def measure(site: Site) -> Figure:
    revises: list[float] = []
    asserts: list[float] = []
    async with await site.stack.caller(GRAPH) as caller:
        born = (await caller.call(assert_text("the claim to be revised")))["result"]
        claim = Revised(caller, born["claim_id"], born["revision_id"])
        for _ in range(site.plan.revisions):
            await claim.again()
        opponent, *others = await claims(site, RELATIONS)
        edges = [relate(other, "supports", claim.claim_id) for other in others]
        await in_parallel(site, [relate(claim.claim_id, "contradicts", opponent), *edges])
        for _ in range(site.plan.rounds):
            revises += [await claim.again() for _ in range(site.plan.samples_per_round)]
            asserts += [await _asserted(caller, number) for number in range(site.plan.samples_per_round)]
    return Figure(p50(revises), p50(asserts), latencies_ms("revise", revises) | latencies_ms("assert", asserts))


async def _asserted(caller: Caller, number: int) -> float:
    body = assert_text(f"a plain claim {number}")
    began = time.perf_counter()
    await caller.call(body)
    return time.perf_counter() - began


RATIO = Ratio(
    name="revise_over_put",
    measured_is="revising a claim with 1 000 revisions, 100 relations and an open conflict",
    floor_is="a plain assert",
    must=2,
    aim=1.2,
    measure=measure,
)
