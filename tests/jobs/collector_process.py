"""One run of the garbage collector as a process of its own, days later than it is: `python collector_process.py TENANT
DAYS`. It dies at a named crash point if told to."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta

from memoree.assembly import job_site
from memoree.clock import utc_now
from memoree.jobs import gc
from memoree.settings import StackSettings


async def main(tenant: str, days: float) -> None:
    async with job_site(StackSettings()) as site:
        later = replace(site.tenancy(tenant), clock=lambda: utc_now() + timedelta(days=days))
        await gc.collect(later)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
