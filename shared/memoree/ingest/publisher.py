"""The connectors' side of the ingest queue: everything that is published arrives, in order, and never faster than it
is worked off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from blake3 import blake3

from memoree import limits
from memoree.errors import Code, MemoreeError, not_found, shown
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
from memoree.queue.checks import check_size
from memoree.queue.sqs_text import wire_bytes
from memoree.uploads import UploadDeclaration, Uploads

LOOK_SECONDS = 0.5
"""Between two looks at how deep the queue is."""
PAUSE_SECONDS_MAX = 2.0
"""Before a batch, while the queue is nearly as deep as it may be."""
SEND_SECONDS_MAX = 120.0
"""How long a queue may not answer before the connector is told."""
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.1, 5.0

log = logging.getLogger(__name__)


class TooLargeToPublish(MemoreeError):
    """Messages that no queue takes and that no upload makes smaller; all others of the same call were published. The
    code is `CONTENT_TOO_LARGE`."""

    def __init__(self, reasons: Sequence[tuple[IngestMessage, str]]) -> None:
        """`reasons` names at least one message, and each with what is wrong with it."""
        self.reasons = list(reasons)
        message, reason = self.reasons[0]
        others = f" ({len(self.reasons)} messages in all)" if len(self.reasons) > 1 else ""
        super().__init__(Code.CONTENT_TOO_LARGE, f"{_name(message)} was not published: {reason}{others}")


class ContentUploads(Protocol):
    """Where content goes that is too large for a message."""

    async def send(self, tenant: str, data: bytes) -> UploadId:
        """The id of a complete upload of these bytes. Raises `MemoreeError`, `ObjectStoreError`."""


class StoredUploads:
    """`ContentUploads` for a connector on a host that may write to the store. Of a tenant that is not known nothing is
    stored: there would be nobody who removes it."""

    def __init__(self, uploads: Uploads, knows: Callable[[str], Awaitable[bool]]) -> None:
        self._uploads = uploads
        self._knows = knows

    async def send(self, tenant: str, data: bytes) -> UploadId:
        if not await self._knows(tenant):
            not_found("tenant", tenant)
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

        Slows down while the queue is deep, and waits while it is full. Raises `TooLargeToPublish` once all others are
        queued, and `QueueError` when the queue does not answer for two minutes: some of the messages may be queued
        then, and all of them may be published again.
        """
        refused: list[tuple[IngestMessage, str]] = []
        for wave in waves(messages):
            await self._room()
            ready: list[tuple[IngestMessage, OutgoingMessage]] = []
            for message in wave:
                try:
                    # Not a digest of the body: for five minutes the queue would take a message for the repeat of one
                    # that is a dead letter by now, and drop it.
                    body, dedup_id = await self._body(message), new_id("ing")
                    ready.append((message, OutgoingMessage(body, group_of(message), dedup_id)))
                except MessageTooLarge as error:
                    refused.append((message, str(error)))
            refused += await self._send(ready)
        if refused:
            raise TooLargeToPublish(refused)

    async def _body(self, message: IngestMessage) -> str:
        """The message as it travels, in a form that is small enough: as it is; with its content as base64, which JSON
        and the queue escape nowhere; or with an upload of it. Raises `MessageTooLarge` when there is none."""
        body = to_body(message)
        size = wire_bytes(body)
        content = message.content if isinstance(message, Ingest) else None
        if size > limits.INGEST_MESSAGE_BYTES_MAX and isinstance(content, InlineContent):
            data = content.decoded()
            body = to_body(message.model_copy(update={"content": InlineContent.encoded(data)}))
            if wire_bytes(body) > limits.INGEST_MESSAGE_BYTES_MAX:
                body = to_body(message.model_copy(update={"content": await self._set_aside(message, data, size)}))
        check_size(wire_bytes(body))
        return body

    async def _set_aside(self, message: IngestMessage, data: bytes, size: int) -> UploadReference:
        try:
            return await self._uploaded(message.tenant, data)
        except MemoreeError as error:
            if error.code is not Code.CONTENT_TOO_LARGE:
                raise
            raise MessageTooLarge(
                f"as a message it has {size} bytes, the most is {limits.INGEST_MESSAGE_BYTES_MAX}, and its content "
                "cannot be sent as an upload"
            ) from error

    async def _uploaded(self, tenant: str, data: bytes) -> UploadReference:
        upload_id = await self._uploads.send(tenant, data)
        return UploadReference(
            type="upload", upload_id=upload_id, blob_hash=blake3(data).hexdigest(), size_bytes=len(data)
        )

    async def _send(self, messages: Sequence[tuple[IngestMessage, OutgoingMessage]]) -> list[tuple[IngestMessage, str]]:
        """Messages that commute: those that fail are sent again, and may come after the others. Returns those that this
        queue will never take, with what it says."""
        deadline = time.monotonic() + SEND_SECONDS_MAX
        pause = RETRY_SECONDS_MIN
        refused: list[tuple[IngestMessage, str]] = []
        while messages:
            outcomes = await self._queue.send_batch([outgoing for _, outgoing in messages])
            told = list(zip(messages, outcomes, strict=True))
            refused += [(each[0], str(outcome)) for each, outcome in told if isinstance(outcome, MessageTooLarge)]
            failures = [
                (each, outcome)
                for each, outcome in told
                if isinstance(outcome, QueueError) and not isinstance(outcome, MessageTooLarge)
            ]
            if failures and time.monotonic() >= deadline:
                raise failures[0][1]
            messages = [message for message, _ in failures]
            if messages:
                log.warning("%d messages could not be queued and are sent again: %s", len(messages), failures[0][1])
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_SECONDS_MAX)
        return refused

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


def _name(message: IngestMessage) -> str:
    item = item_of(message)
    return f"item {shown(item)}" if item is not None else f"the {message.type} of source {shown(message.source.name)}"


def _log_lag(stats: QueueStats) -> None:
    log.warning("queue_lag_warn: %d messages wait for ingestion; publishing slows down", stats.waiting)


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
