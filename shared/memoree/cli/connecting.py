"""What the commands of `connect` do: find the destination, run the connector, and say what happened."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memoree.cli.jobs import deployment_settings, report, say
from memoree.cli.parsing import current_invocation
from memoree.cli.wrapper import actor
from memoree.connectors import Connector
from memoree.connectors.delivery import Outlet, Summary
from memoree.connectors.messages import Destination
from memoree.connectors.outlets import NoUploads, QueueAddress, Rehearsal, ServerUploads, to_queue, worked_off
from memoree.connectors.running import TROUBLE, Runner
from memoree.connectors.state import State, state_directory, state_path
from memoree.embedded import LOCAL_TENANT
from memoree.envelope import parse
from memoree.errors import Code, MemoreeError
from memoree.ingest.publisher import ContentUploads
from memoree.paths import discover

if TYPE_CHECKING:
    from memoree.settings import StackSettings

Opener = Callable[[], AbstractAsyncContextManager[Outlet]]

INCOMPLETE_STATUS = 1
INTERRUPTED_STATUS = 130
INGEST_QUEUE_VARIABLE = "MEMOREE_INGEST_QUEUE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options that all connectors have, as they were given."""

    source: str
    locator: str | None
    once: bool
    interval: float
    workspace: str | None
    project: str | None
    tenant: str
    queue: str | None
    queue_region: str
    queue_endpoint: str | None
    data: Path | None
    state: Path | None
    rescan: bool
    dry_run: bool
    kind: str

    def destination(self) -> Destination:
        """Raises `INVALID_REQUEST`, and `NO_AMBIENT_CONTEXT` when no context was given and there is none."""
        return parse(
            Destination,
            {
                "tenant": self.tenant,
                "context": self._context(),
                "source": self.source,
                "item_kind": self.kind,
                "locator": self.locator,
                "actor": actor() or None,
            },
        )

    def _context(self) -> dict[str, str | None]:
        if (self.workspace is None) != (self.project is None):
            raise click.UsageError("--workspace and --project are given together or not at all")
        if self.workspace is not None:
            return {"workspace_id": self.workspace, "project_id": self.project}
        found = current_invocation().resolve_context().context
        return {"workspace_id": found.workspace_id, "project_id": found.project_id, "task_id": found.task_id}


def run(connector_at: Callable[[Path], Connector], wishes: Wishes) -> int:
    """Returns the exit status. Raises `MemoreeError` for what keeps it from working at all."""
    if wishes.queue is not None and wishes.data is not None:
        raise click.UsageError("--queue names a queue and --data a running stack; give one of them")
    destination = wishes.destination()
    dead: list[int] = []
    opened, where = _outlet(wishes, dead.append)
    directory = (wishes.state or state_directory()).absolute()
    context = destination.context.model_dump().values()
    path = state_path(directory, where, destination.tenant, *context, destination.source)
    rehearsal = Rehearsal() if wishes.dry_run else None
    with State.open(path) as state, _progress() as progress, _for_good(state, rehearsal is None):
        if wishes.rescan:
            state.forget()
        opener = opened if rehearsal is None else rehearsal.opened
        runner = Runner(connector_at(path), destination, state, opener, progress=progress, say=say)
        interrupted = asyncio.run(_until_interrupted(runner, wishes))
    return _told(runner.total, rehearsal, sum(dead), interrupted=interrupted, watched=not wishes.once)


async def _until_interrupted(runner: Runner, wishes: Wishes) -> bool:
    """Whether it was interrupted. What was not handed over by then is handed over by the next run."""
    forever = not wishes.once and not wishes.dry_run
    work = asyncio.create_task(runner.watch(wishes.interval) if forever else _once(runner))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return True
    except TROUBLE as error:
        raise error if isinstance(error, MemoreeError) else MemoreeError(Code.TRANSPORT_ERROR, str(error)) from error
    return False


async def _once(runner: Runner) -> None:
    await runner.once()


# --- where to -------------------------------------------------------------------------------------------------------


def _outlet(wishes: Wishes, dead: Callable[[int], None]) -> tuple[Opener, str]:
    """How the outlet is opened, and the name of the place. One that sees what becomes of the messages tells `dead`."""
    if wishes.queue is not None:
        address = QueueAddress(url=wishes.queue, region=wishes.queue_region, endpoint_url=wishes.queue_endpoint)
        uploads = _uploads()
        return lambda: to_queue(address, uploads), wishes.queue
    if wishes.data is not None or os.environ.get(INGEST_QUEUE_VARIABLE):
        settings = deployment_settings(wishes.data)
        return lambda: _deployment(settings), settings.ingest_queue_url or ""
    if wishes.tenant != LOCAL_TENANT:
        raise click.UsageError(f"the store in the data directory has the tenant {LOCAL_TENANT} alone; name a --queue")
    data_dir = discover().data_dir
    return lambda: _embedded(data_dir, dead), str(data_dir)


def _uploads() -> ContentUploads:
    """Through the api that --endpoint names."""
    from memoree.client.http import HttpEndpoint

    invocation = current_invocation()
    if invocation.address is None:
        return NoUploads()
    endpoint = invocation.open_endpoint()
    if not isinstance(endpoint, HttpEndpoint):
        raise MemoreeError(Code.CONFIG_ERROR, "content is uploaded to an http:// or https:// --endpoint")
    return ServerUploads(endpoint)


@asynccontextmanager
async def _deployment(settings: StackSettings) -> AsyncIterator[Outlet]:
    from memoree.assembly import ingestion

    async with ingestion(settings) as opened:
        yield opened.publisher


@asynccontextmanager
async def _embedded(data_dir: Path, dead: Callable[[int], None]) -> AsyncIterator[Outlet]:
    from memoree.assembly import embedded_ingestion

    async with embedded_ingestion(data_dir) as opened, worked_off(opened, dead) as outlet:
        yield outlet


# --- what happened --------------------------------------------------------------------------------------------------


def _told(total: Summary, rehearsal: Rehearsal | None, dead_letters: int, *, interrupted: bool, watched: bool) -> int:
    result = total.to_wire()
    if dead_letters:
        result["dead_letters"] = dead_letters
    if rehearsal is not None:
        result |= {"dry_run": True, "message_count": rehearsal.count, "messages": rehearsal.messages}
    if interrupted and not watched:
        result["interrupted"] = True
    if current_invocation().for_people:
        for change in total.skipped:
            say(f"skipped {change.where}: {change.reason}")
    report(result)
    if interrupted and not watched:
        return INTERRUPTED_STATUS
    return INCOMPLETE_STATUS if total.skipped_count or dead_letters else 0


@contextmanager
def _progress() -> Iterator[Callable[[Summary], None]]:
    """A line on standard error, for people only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(file=sys.stderr).status("looking") as status:
        yield lambda done: status.update(
            f"{done.delivered} delivered, {done.withdrawn} withdrawn, {done.unchanged} unchanged"
        )


def _for_good(state: State, remembered: bool) -> AbstractContextManager[None]:
    return nullcontext() if remembered else state.rehearsed()
