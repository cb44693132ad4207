"""The ingest worker of a replicated deployment as a process: `python -m functions.ingest.app`."""

from __future__ import annotations

import asyncio

from memoree.settings import StackSettings
from memoree.stack.processes import configure_logging, run_ingest

if __name__ == "__main__":
    configure_logging()
    asyncio.run(run_ingest(StackSettings()))
