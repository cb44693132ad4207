"""A store in a directory, its ingest queue, and messages for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree.assembly import embedded_ingestion
from memoree.database import sources
from memoree.embedded import EmbeddedService
from memoree.ids import new_id
from memoree.ingest.dead import DeadLetters, Letter
from memoree.ingest.ingestion import Ingestion
from memoree.ingest.message import (
    Checkpoint,
    Ingest,
    IngestMessage,
    InlineContent,
    MessageContext,
    Register,
    SourceReference,
    Withdraw,
)
from memoree.ingest.publisher import Publisher
from memoree.ingest.site import one_by_one
from memoree.ingest.worker import IngestWorker
from memoree.owner import Owner
from memoree.queue import Message, OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.service import Reply, Request

CONTEXT = MessageContext(workspace_id="wsp_lab", project_id="prj_kiln")
OWNER = Owner("wsp_lab", "prj_kiln", None, None)
SOURCE = SourceReference(system="wiki", name="Studio wiki")
COMMON: dict[str, Any] = {"tenant": "local", "source": SOURCE, "context": CONTEXT}


def register(**changes: Any) -> Register:
    return Register(**{**COMMON, **changes})


def item(external_id: str = "page-1", content: bytes = b"Celadon: 2% iron oxide", **changes: Any) -> Ingest:
    given = {
        **COMMON,
        "external_id": external_id,
        "external_revision": "v1",
        "kind": "wiki_page",
        "title": f"Page {external_id}",
        "content": InlineContent.of(content),
        "observed_at": at(1),
    }
    return Ingest(**{**given, **changes})


def withdraw(external_id: str = "page-1", **changes: Any) -> Withdraw:
    return Withdraw(**{**COMMON, "external_id": external_id, "reason": "deleted", "observed_at": at(1), **changes})


def checkpoint(cursor: str, **changes: Any) -> Checkpoint:
    return Checkpoint(**{**COMMON, "cursor": cursor, "observed_at": at(1), **changes})


def at(minute: int) -> str:
    return f"2026-03-02T20:{minute:02}:00Z"


@dataclass(slots=True)
class Bench:
    """One store, its queue and its worker; what was received and not acknowledged is `in_hand`."""

    queue: SqliteQueue
    dead: DeadLetters
    publisher: Publisher
    worker: IngestWorker
    service: EmbeddedService

    async def publish(self, *messages: IngestMessage) -> None:
        await self.publisher.publish(messages)

    async def put(self, *bodies: str, group: str = "source-x") -> None:
        """Bodies as they are, whatever a publisher would make of them."""
        sent = await self.queue.send_batch([OutgoingMessage(body, group, new_id("test")) for body in bodies])
        assert all(isinstance(message_id, str) for message_id in sent)

    async def received(self) -> list[Message]:
        return await self.queue.receive(max_messages=1000, wait_seconds=0, visibility_seconds=60)

    async def apply(self, *messages: IngestMessage) -> None:
        """Publish, decide and acknowledge."""
        await self.publish(*messages)
        await self.work_off()

    async def work_off(self) -> None:
        no_more = asyncio.Event()
        no_more.set()
        async with asyncio.timeout(30):
            await self.worker.run(self.queue, asyncio.Event(), no_more=no_more)

    async def letters(self) -> list[Letter]:
        return [letter async for letter in self.dead.letters()]

    def rows(self, statement: str, *bindings: object) -> list[Any]:
        return self.service.snapshot(lambda db: db.execute(statement, bindings).fetchall())[0]

    @property
    def commit_seq(self) -> int:
        return self.service.snapshot(lambda _db: None)[1].commit_seq

    def item(self, external_id: str) -> sources.Item | None:
        def look(db: apsw.Connection) -> sources.Item | None:
            source = self._source(db)
            return sources.find_item(db, source, external_id) if source is not None else None

        return self.service.snapshot(look)[0]

    @property
    def source(self) -> sources.Source | None:
        return self.service.snapshot(self._source)[0]

    def _source(self, db: apsw.Connection) -> sources.Source | None:
        source_id = sources.named(db, OWNER, SOURCE.name)
        return sources.find(db, source_id) if source_id is not None else None

    async def content(self, external_id: str) -> bytes:
        found = self.item(external_id)
        assert found is not None, f"{external_id} is not there"
        revision = await self.service.revision_content("local", found.artifact_id, found.artifact_revision_id)
        return b"".join([piece async for piece in revision.windows(0, revision.size)])


Meddle = Callable[[Request], Awaitable[Reply | None]]


class Troubled:
    """A service in which `meddle` may raise, or answer, before a request is applied: for faults that a sound store does
    not have."""

    def __init__(self, service: EmbeddedService, meddle: Meddle) -> None:
        self._service = service
        self._meddle = meddle

    async def call(self, tenant: str, request: Request, **options: Any) -> Reply:
        reply = await self._meddle(request)
        return reply if reply is not None else await self._service.call(tenant, request, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture
def open_bench(tmp_path: Path) -> OpenBench:
    """Opens the store again and again; `meddle` as `Troubled` has it."""

    @asynccontextmanager
    async def opened(meddle: Meddle | None = None) -> AsyncIterator[Bench]:
        async with embedded_ingestion(tmp_path / "store") as ingestion:
            yield _bench(ingestion, meddle)

    return opened


def _bench(ingestion: Ingestion, meddle: Meddle | None) -> Bench:
    assert isinstance(ingestion.queue, SqliteQueue)
    site = ingestion.worker.site
    assert isinstance(site.service, EmbeddedService)
    worker = ingestion.worker
    if meddle is not None:
        troubled: Any = Troubled(site.service, meddle)
        worker = IngestWorker(replace(site, service=troubled, write_many=one_by_one(troubled)))
    return Bench(ingestion.queue, ingestion.dead, ingestion.publisher, worker, site.service)


@pytest.fixture
def with_bench(open_bench: OpenBench) -> Callable[..., None]:
    """Runs a scenario, an async function of a bench."""

    def run(scenario: Callable[[Bench], Awaitable[None]], **options: Any) -> None:
        async def opened() -> None:
            async with open_bench(**options) as bench:
                await scenario(bench)

        asyncio.run(opened())

    return run
