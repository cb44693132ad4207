"""Where the messages of a connector go: a queue it can reach, the queue of a deployment or of a data directory, or
nowhere."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memoree import limits
from memoree.client.http import HttpEndpoint
from memoree.client.upload import upload
from memoree.connectors.delivery import Outlet
from memoree.errors import Code, MemoreeError, shown
from memoree.ids import UploadId
from memoree.ingest.ingestion import Ingestion
from memoree.ingest.message import IngestMessage, InlineContent
from memoree.ingest.publisher import ContentUploads, Publisher
from memoree.queue import CommandQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAddress:
    """A queue that is reached with the environment's own credentials."""

    url: str
    region: str = "us-east-1"
    endpoint_url: str | None = None

    def open(self) -> CommandQueue:
        """Raises `CONFIG_ERROR` for a URL that is neither kind of queue."""
        parts = urlsplit(self.url)
        if parts.scheme == "sqlite" and parts.path:
            from memoree.queue.sqlite import SqliteQueue

            return SqliteQueue(Path(parts.path))
        if parts.scheme in ("http", "https"):
            from memoree.queue.sqs import SqsEndpoint, SqsQueue

            return SqsQueue(self.url, endpoint=SqsEndpoint(region=self.region, endpoint_url=self.endpoint_url))
        raise MemoreeError(Code.CONFIG_ERROR, f"{shown(self.url)} is neither sqlite:///FILE nor an SQS URL")


@dataclass(frozen=True, slots=True)
class ServerUploads:
    """`ContentUploads` for a connector that has a token of an api, and no access to the store."""

    endpoint: HttpEndpoint

    async def send(self, tenant: str, data: bytes) -> UploadId:
        """To the tenant of the token."""
        return UploadId(await asyncio.to_thread(self._send, data))

    def _send(self, data: bytes) -> str:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            return upload(self.endpoint, file)


class NoUploads:
    """`ContentUploads` of a connector that can reach nothing but the queue."""

    async def send(self, tenant: str, data: bytes) -> UploadId:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE,
            f"it has {len(data)} bytes; more than {limits.INGEST_INLINE_BYTES_MAX} do not fit into a message, and are "
            "sent through an api that --endpoint names",
        )


class Rehearsal:
    """Takes messages and sends none of them. Of the first ones it keeps what they say, without their content."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.count = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Outlet]:
        yield self

    async def content(self, tenant: str, data: bytes) -> InlineContent:
        return InlineContent(type="text", data="")

    async def publish(self, messages: Sequence[IngestMessage]) -> None:
        for message in messages:
            self.count += 1
            if len(self.messages) < limits.CONNECTOR_REHEARSED_MAX:
                self.messages.append(message.model_dump(exclude_none=True, exclude={"content", "version"}))


@asynccontextmanager
async def to_queue(address: QueueAddress, uploads: ContentUploads) -> AsyncIterator[Outlet]:
    queue = address.open()
    try:
        yield Publisher(queue, uploads)
    finally:
        await queue.close()


@asynccontextmanager
async def worked_off(ingestion: Ingestion, dead: Callable[[int], None] = lambda _: None) -> AsyncIterator[Outlet]:
    """The outlet of a data directory, which has no worker of its own: one runs beside the connector, and before this
    ends everything is applied or a dead letter. `dead` is told how many messages became one."""
    before = (await ingestion.queue.stats()).dead
    stop, no_more = asyncio.Event(), asyncio.Event()
    working = asyncio.create_task(ingestion.worker.run(ingestion.queue, stop, no_more=no_more))
    try:
        yield ingestion.publisher
        no_more.set()
        await working
        dead((await ingestion.queue.stats()).dead - before)
    finally:
        stop.set()
        await working
