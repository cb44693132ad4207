"""A worker over the store in a directory, which dies by SIGKILL as soon as it is to deliver the item `killer`.

python killed_worker.py DIRECTORY
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from memoree.assembly import embedded_ingestion
from memoree.embedded import EmbeddedService
from memoree.ingest.worker import IngestWorker
from memoree.service import Reply, Request

VISIBILITY_SECONDS = 0.2


async def main(directory: Path) -> None:
    call = EmbeddedService.call

    async def deadly(self: EmbeddedService, tenant: str, request: Request, **options: Any) -> Reply:
        if getattr(request.call.input, "external_id", "") == "killer":
            os.kill(os.getpid(), signal.SIGKILL)
        return await call(self, tenant, request, **options)

    EmbeddedService.call = deadly  # type: ignore[method-assign]
    no_more = asyncio.Event()
    no_more.set()
    async with embedded_ingestion(directory) as opened:
        worker = IngestWorker(opened.worker.site, visibility_seconds=VISIBILITY_SECONDS)
        await worker.run(opened.queue, asyncio.Event(), no_more=no_more)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
