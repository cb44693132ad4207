"""The connectors' side of the ingest queue: everything that is published arrives, in order, and never faster than it
is worked off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol

from blake3 import blake3

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ids import UploadId, new_id
from memoree.ingest.message import (
    Ingest,
    IngestMessage,
    InlineContent,
    UploadReference,
    group_of,
    item_of,
    to_body,
)
from memoree.queue import CommandQueue, MessageTooLarge, OutgoingMessage, QueueError, QueueStats
from memoree.uploads import UploadDeclaration, Uploads

LOOK_SECONDS = 0.5
"""Between two looks at how deep the queue is."""
PAUSE_SECONDS_MAX = 2.0
"""Before a batch, while the queue is nearly as deep as it may be."""
SEND_SECONDS_MAX = 120.0
"""How long a queue may not answer before the connector is told."""
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.1, 5.0

log = logging.getLogger(__name__)


class ContentUploads(Protocol):
    """Where content goes that is too large for a message."""

    async def send(self, tenant: str, data: bytes) -> UploadId:
        """The id of a complete upload of these bytes. Raises `MemoreeError`, `ObjectStoreError`."""


class StoredUploads:
    """`ContentUploads` for a connector on a host that may write to the store."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    async def send(self, tenant: str, data: bytes) -> UploadId:
        declaration = UploadDeclaration(size_bytes=len(data), blob_hash=blake3(data).hexdigest())
        ticket = await self._uploads.declare(tenant, declaration)
        await self._uploads.receive(tenant, await self._uploads.find(tenant, ticket.upload_id), _whole(data))
        return ticket.upload_id


class Publisher:
    """Publishes to one ingest queue. Calls of one publisher come one after the other.

    `queue_lag_warn` is true while more than `INGEST_QUEUE_LAG_WARN` messages wait; `on_lag` is told when that begins.
    """

    def __init__(
        self,
        queue: CommandQueue,
        uploads: ContentUploads,
        *,
        on_lag: Callable[[QueueStats], None] | None = None,
    ) -> None:
        self._queue = queue
        self._uploads = uploads
        self._on_lag = on_lag or _log_lag
        self._looked_at: float | None = None
        self._stats = QueueStats(waiting=0, in_flight=0, dead=0, oldest_age_seconds=None)
        self.queue_lag_warn = False

    async def content(self, tenant: str, data: bytes) -> InlineContent | UploadReference:
        """Content for an `Ingest` of this tenant: the bytes themselves up to 128 KiB, else an upload of them, which is
        kept for a day. Raises `CONTENT_TOO_LARGE` over 8 MiB; `MemoreeError` and `ObjectStoreError` when the upload
        fails."""
        if len(data) <= limits.INGEST_INLINE_BYTES_MAX:
            return InlineContent.of(data)
        if len(data) > limits.ARTIFACT_BYTES_MAX:
            message = f"the content has {len(data)} bytes; the limit is {limits.ARTIFACT_BYTES_MAX}"
            raise MemoreeError(Code.CONTENT_TOO_LARGE, message)
        return await self._uploaded(tenant, data)

    async def publish(self, messages: Sequence[IngestMessage]) -> None:
        """Returns when all of them are durably queued, in this order as far as order matters: per source, and there per
        item, with `register` and `checkpoint` in their place.

        Slows down while the queue is deep, and waits while it is full. Raises `QueueError` when the queue does not
        answer for two minutes: some of the messages may be queued then, and all of them may be published again.
        """
        for wave in waves(messages):
            await self._room()
            await self._send([await self._outgoing(message) for message in wave])

    async def _outgoing(self, message: IngestMessage) -> OutgoingMessage:
        body = to_body(message)
        content = message.content if isinstance(message, Ingest) else None
        if isinstance(content, InlineContent) and len(body.encode()) > limits.INGEST_MESSAGE_BYTES_MAX:
            reference = await self._uploaded(message.tenant, content.decoded())
            body = to_body(message.model_copy(update={"content": reference}))
        # Not a digest of the body: for five minutes the queue would take a message for the repeat of one that is a dead
        # letter by now, and drop it.
        return OutgoingMessage(body, group=group_of(message), dedup_id=new_id("ing"))

    async def _uploaded(self, tenant: str, data: bytes) -> UploadReference:
        upload_id = await self._uploads.send(tenant, data)
        return UploadReference(
            type="upload", upload_id=upload_id, blob_hash=blake3(data).hexdigest(), size_bytes=len(data)
        )

    async def _send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Messages that commute: those that fail are sent again, and may come after the others."""
        deadline = time.monotonic() + SEND_SECONDS_MAX
        pause = RETRY_SECONDS_MIN
        while messages:
            outcomes = await self._queue.send_batch(messages)
            failures = [
                (message, outcome)
                for message, outcome in zip(messages, outcomes, strict=True)
                if isinstance(outcome, QueueError)
            ]
            for _, failure in failures:
                if isinstance(failure, MessageTooLarge) or time.monotonic() >= deadline:
                    raise failure
            messages = [message for message, _ in failures]
            if messages:
                log.warning("%d messages could not be queued and are sent again: %s", len(messages), failures[0][1])
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _room(self) -> None:
        """Back-pressure: a pause that grows with what is waiting, and no end of it while the queue is full."""
        while True:
            await self._look()
            depth = self._stats.waiting + self._stats.in_flight
            if depth < limits.INGEST_QUEUE_DEPTH_MAX:
                excess = max(0, depth - limits.INGEST_QUEUE_LAG_WARN)
                room = limits.INGEST_QUEUE_DEPTH_MAX - limits.INGEST_QUEUE_LAG_WARN
                await asyncio.sleep(PAUSE_SECONDS_MAX * (excess / room) ** 2)
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        try:
            self._stats = await self._queue.stats()
        except QueueError as error:
            log.warning("the depth of the queue is unknown: %s", error)
            return  # sending will tell whether it answers
        self._looked_at = now
        lagging = self._stats.waiting + self._stats.in_flight > limits.INGEST_QUEUE_LAG_WARN
        if lagging and not self.queue_lag_warn:
            self._on_lag(self._stats)
        self.queue_lag_warn = lagging


def waves(messages: Sequence[IngestMessage]) -> Iterator[list[IngestMessage]]:
    """The messages in order, cut so that those of one wave commute and none is larger than what is sent at once."""
    wave: list[IngestMessage] = []
    said: set[tuple[str, str | None]] = set()
    closed: set[str] = set()
    """Groups in which the wave holds a message that must stand before and after all others."""
    for message in messages:
        group, item = group_of(message), item_of(message)
        clashes = group in closed or (group, item) in said or (item is None and any(group == g for g, _ in said))
        if clashes or len(wave) == limits.INGEST_PUBLISHED_AT_ONCE_MAX:
            yield wave
            wave, said, closed = [], set(), set()
        wave.append(message)
        said.add((group, item))
        if item is None:
            closed.add(group)
    if wave:
        yield wave


def _log_lag(stats: QueueStats) -> None:
    log.warning("queue_lag_warn: %d messages wait for ingestion; publishing slows down", stats.waiting)


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
