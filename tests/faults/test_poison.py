"""A command that ends the process every time it is tried."""

from __future__ import annotations

import asyncio
from pathlib import Path

from faults.checker import Checker
from faults.site import Site

POISON = "poison"
DEATHS = 4
"""The first delivery, and three tries with a mark."""


def test_a_command_that_kills_the_writer_is_given_up_after_three_tries_and_blocks_nobody(
    site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer():
                await clients.write("before")
            swallowed = {"claim_type": "fact", "statement": "never told"}
            poisoned = asyncio.create_task(clients.call("claim.assert", swallowed, key=POISON, wait_seconds=60))
            others = asyncio.create_task(clients.write_many("other", 5))
            for _ in range(DEATHS):
                with site.writer(crash_at="applying", subject=POISON) as writer:
                    await writer.crashed()
            with site.writer(crash_at="applying", subject=POISON):
                await asyncio.gather(poisoned, others)
            reply = poisoned.result()
            assert reply.envelope["error"]["code"] == "INTERNAL_ERROR", reply.envelope
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())
