"""A command that ends the process every time it is tried."""

from __future__ import annotations

import asyncio
from pathlib import Path

from faults.checker import Checker
from faults.site import Site

POISON = "poison"


def test_a_command_that_kills_the_writer_is_given_up_after_three_tries_and_blocks_nobody(
    site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer():
                await clients.write("before")
            swallowed = {"claim_type": "fact", "statement": "never told"}
            poisoned = asyncio.create_task(clients.call("claim.assert", swallowed, key=POISON, wait_seconds=60))
            deaths = 0
            others: asyncio.Task[None] | None = None
            while not poisoned.done():
                with site.writer(crash_at="applying", subject=POISON) as writer:
                    others = others or asyncio.create_task(clients.write_many("other", 5))
                    while writer.process.poll() is None and not poisoned.done():
                        await asyncio.sleep(0.02)
                    if writer.process.poll() is not None:
                        await writer.crashed()
                        deaths += 1
                    else:
                        await others
            reply = poisoned.result()
            assert reply.envelope["error"]["code"] == "INTERNAL_ERROR", reply.envelope
            assert deaths == 4, "the first delivery, and three marked tries"
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())
