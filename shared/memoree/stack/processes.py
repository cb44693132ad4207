"""The processes of a stack: `python -m memoree.stack.processes ROLE …`.

`writer` waits for the leases of others; `supervised-writer` does not, because its supervisor reaps one writer before
it starts the next. `api SOCKET METRICS_SOCKET` serves on inherited listening sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from memoree.assembly import writer_worker
from memoree.errors import MemoreeError
from memoree.settings import StackSettings

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
QUIET_LOGGERS = ("botocore", "aiobotocore", "httpx", "httpcore")


async def run_writer(settings: StackSettings, *, unleased: bool) -> None:
    """Until SIGTERM or SIGINT; then settle every tenant and return. Raises `CONFIG_ERROR` for a store that breaks
    a promise the fence needs. `unleased`: the caller knows the last writer of this deployment is dead."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with writer_worker(settings, unleased=unleased) as worker:
        await worker.run(stop)


def configure_logging() -> None:
    logging.basicConfig(level=os.environ.get("MEMOREE_LOG_LEVEL", "INFO").upper(), format=LOG_FORMAT)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def main(argv: list[str]) -> int:
    configure_logging()
    try:
        match argv:
            case ["writer" | "supervised-writer" as role]:
                asyncio.run(run_writer(StackSettings(), unleased=role == "supervised-writer"))
            case _:
                sys.stderr.write(f"{__doc__}\n")
                return 2
    except MemoreeError as error:
        logging.getLogger("memoree").error("%s: %s", error.code, error.message)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
