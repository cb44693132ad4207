"""The writer of a replicated deployment as a process: `python -m functions.writer.app`."""

from __future__ import annotations

import asyncio

from memoree.settings import StackSettings
from memoree.stack.processes import configure_logging, run_writer

if __name__ == "__main__":
    configure_logging()
    asyncio.run(run_writer(StackSettings(), supervised=False))
