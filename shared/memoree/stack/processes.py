"""The processes of a stack: `python -m memoree.stack.processes ROLE …`.

`writer` waits for the leases of others; `supervised-writer` does not, because its supervisor reaps one writer before
it starts the next. `ingest` makes commands of connectors' messages, `jobs` runs the schedule. `api SOCKET
METRICS_SOCKET` serves on inherited listening sockets.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from memoree.errors import MemoreeError
from memoree.redaction import hide_secrets_of
from memoree.stack.leaving import leave

if TYPE_CHECKING:
    from memoree.reader.service import ReplicatedService
    from memoree.settings import StackSettings

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DRAIN_SECONDS = 1
"""The whole stack stops within five seconds; a client whose answer is cut off retries with the same key."""
QUIET_LOGGERS = ("botocore", "aiobotocore", "httpx", "httpcore", "mangum")


async def run_writer(settings: StackSettings, *, supervised: bool) -> None:
    """Until SIGTERM or SIGINT; then settle every tenant and return. Raises `CONFIG_ERROR` for a store that breaks
    a promise the fence needs. `supervised`: see `WriterWorker`."""
    from memoree.assembly import writer_worker

    stop = stop_signal()
    async with writer_worker(settings, supervised=supervised) as worker:
        keep_what_was_loaded()
        await worker.run(stop)


async def run_ingest(settings: StackSettings) -> None:
    """Until SIGTERM or SIGINT; what is undecided then goes back to the ingest queue."""
    from memoree.assembly import ingestion

    stop = stop_signal()
    async with ingestion(settings) as opened:
        keep_what_was_loaded()
        await opened.worker.run(opened.queue, stop)


async def run_jobs(settings: StackSettings) -> None:
    """Until SIGTERM or SIGINT; a job under way is then left to whoever runs the schedule next."""
    from memoree.assembly import job_site
    from memoree.jobs.schedule import Scheduler
    from memoree.jobs.scheduled import jobs
    from memoree.jobs.status import tell

    stop = stop_signal()
    settings.runtime_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    scheduler = Scheduler(
        jobs(settings), lambda: job_site(settings), changed=lambda changed: tell(changed, settings.runtime_dir)
    )
    keep_what_was_loaded()
    await scheduler.run(stop)


def stop_signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT from now on, in the running loop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def run_api(settings: StackSettings, listening_fd: int, metrics_fd: int) -> None:
    """Serve on inherited sockets until SIGTERM or SIGINT, then drain. Raises `CONFIG_ERROR`."""
    from memoree.http.app import create_app
    from memoree.http.server import HttpServer, inherited
    from memoree.http.settings import HttpSettings

    http_settings = HttpSettings.from_environment(os.environ, tokens_required=True)
    app = create_app(lambda: _service(settings), http_settings)
    HttpServer(app, inherited(listening_fd), metrics_listener=inherited(metrics_fd), drain_seconds=DRAIN_SECONDS).run()


@asynccontextmanager
async def _service(settings: StackSettings) -> AsyncIterator[ReplicatedService]:
    from memoree.assembly import replicated_service

    async with replicated_service(settings, authorization=True) as service:
        keep_what_was_loaded()
        yield service


def keep_what_was_loaded() -> None:
    """End `main`'s pause of the collector. What is there by now stays for good, and is never looked through again."""
    gc.freeze()
    gc.enable()


def configure_logging() -> None:
    logging.basicConfig(format=LOG_FORMAT)
    logging.getLogger().setLevel(os.environ.get("MEMOREE_LOG_LEVEL", "INFO").upper())  # also where a host logs already
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    hide_secrets_of(os.environ)


def main(argv: list[str]) -> int:
    gc.disable()  # a seventh of a start is the collector walking over modules that stay
    from memoree.settings import StackSettings

    configure_logging()
    try:
        match argv:
            case ["writer" | "supervised-writer" as role]:
                asyncio.run(run_writer(StackSettings(), supervised=role == "supervised-writer"))
            case ["ingest"]:
                asyncio.run(run_ingest(StackSettings()))
            case ["jobs"]:
                asyncio.run(run_jobs(StackSettings()))
            case ["api", listening, metrics]:
                run_api(StackSettings(), int(listening), int(metrics))
            case _:
                sys.stderr.write(f"{__doc__}\n")
                return 2
    except MemoreeError as error:
        logging.getLogger("memoree").error("%s: %s", error.code, error.message)
        return 2
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
