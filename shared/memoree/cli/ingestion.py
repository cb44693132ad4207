"""What the commands of ingestion work on, and the work itself."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from memoree import limits
from memoree.assembly import embedded_ingestion, ingestion
from memoree.cli.jobs import deployment_settings, say
from memoree.envelope import load_json, parse
from memoree.errors import MemoreeError, invalid
from memoree.ingest.dead import DeadLetters
from memoree.ingest.ingestion import Ingestion
from memoree.ingest.message import IngestMessage, from_document
from memoree.ingest.publisher import Publisher
from memoree.operations.content import ArtifactContent
from memoree.paths import discover

LINES_AT_ONCE_MAX = 100
LINES_BYTES_MAX = 32 * limits.MIB
"""Of the lines that are in memory at a time, the last one left out."""
DEPLOYMENT_VARIABLE = "MEMOREE_BUCKET"

Result = TypeVar("Result")


def with_ingestion(data: Path | None, work: Callable[[Ingestion, bool], Awaitable[Result]]) -> Result:
    """Work on the ingest queue of the running stack in `data`, else of the deployment that MEMOREE_ variables describe,
    else of the store in the data directory. `work` is told whether somebody else works that queue off. Raises
    `CONFIG_ERROR`."""

    async def run() -> Result:
        async with _opened(data) as (opened, served):
            return await work(opened, served)

    return asyncio.run(run())


def with_dead_letters(data: Path | None, work: Callable[[DeadLetters], Awaitable[Result]]) -> Result:
    return with_ingestion(data, lambda opened, _served: work(opened.dead))


def status(data: Path | None) -> tuple[dict[str, Any], bool]:
    """How the queue is, and whether that is fine."""

    async def look(opened: Ingestion, _served: bool) -> tuple[dict[str, Any], bool]:
        stats = await opened.queue.stats()
        age = stats.oldest_age_seconds
        found = {
            "waiting": stats.waiting,
            "in_flight": stats.in_flight,
            "dead_letters": stats.dead,
            "oldest_age_seconds": age,
            "queue_lag_warn": stats.waiting + stats.in_flight > limits.INGEST_QUEUE_LAG_WARN,
        }
        return found, age is None or age <= limits.INGEST_AGE_SECONDS_MAX

    return with_ingestion(data, look)


def push(file: BinaryIO, data: Path | None) -> dict[str, Any]:
    """Publish the messages of a file; how many those were, and if they were applied at once, how many of them became
    dead letters. Raises `INVALID_REQUEST` for a line that is no message."""

    async def work(opened: Ingestion, served: bool) -> dict[str, Any]:
        if served:
            return {"published": await _published(file, opened.publisher)}
        dead_before = (await opened.queue.stats()).dead
        published = await _published_and_applied(file, opened)
        return {"published": published, "dead_letters": (await opened.queue.stats()).dead - dead_before}

    return with_ingestion(data, work)


def work_for_connectors(data: Path | None) -> int:
    """Until SIGTERM or SIGINT."""
    from memoree.stack.processes import configure_logging, stop_signal

    configure_logging()

    async def work(opened: Ingestion, _served: bool) -> int:
        await opened.worker.run(opened.queue, stop_signal())
        return 0

    return with_ingestion(data, work)


@asynccontextmanager
async def _opened(data: Path | None) -> AsyncIterator[tuple[Ingestion, bool]]:
    if data is None and DEPLOYMENT_VARIABLE not in os.environ:
        async with embedded_ingestion(discover().data_dir) as opened:
            yield opened, False
    else:
        async with ingestion(deployment_settings(data)) as opened:
            yield opened, True


async def _published_and_applied(file: BinaryIO, opened: Ingestion) -> int:
    no_more = asyncio.Event()
    working = asyncio.create_task(opened.worker.run(opened.queue, asyncio.Event(), no_more=no_more))
    try:
        return await _published(file, opened.publisher)
    finally:
        no_more.set()  # what was published is applied also when a later line is none
        await working


async def _published(file: BinaryIO, publisher: Publisher) -> int:
    published = 0
    lines = _numbered_lines(file)
    while batch := await asyncio.to_thread(_batch, lines):
        messages: list[IngestMessage] = []
        try:
            for number, line in batch:
                messages.append(await _message(number, line, publisher))
        finally:
            await publisher.publish(messages)
        published += len(messages)
        if sys.stderr.isatty():
            say(f"messages published: {published}")
    return published


async def _message(number: int, line: bytes, publisher: Publisher) -> IngestMessage:
    """Content that is too large for a message is uploaded, once nothing else is wrong with it. Raises
    `INVALID_REQUEST` naming the line."""
    try:
        document = load_json(line)
        content = document.get("content") if isinstance(document, dict) else None
        if isinstance(content, dict) and len(str(content.get("data", ""))) > limits.INGEST_INLINE_BYTES_MAX:
            data = parse(ArtifactContent, content, "content").decoded()
            if len(data) > limits.INGEST_INLINE_BYTES_MAX:
                message = from_document({**document, "content": {"type": "text", "data": ""}})
                return message.model_copy(update={"content": await publisher.content(message.tenant, data)})
        return from_document(document)
    except MemoreeError as error:
        invalid(f"line {number} is no message, those before it were published: {error.message}")


def _numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(limits.FRAME_BYTES_MAX):
        number += 1
        if line.strip():
            yield number, line


def _batch(lines: Iterator[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    batch: list[tuple[int, bytes]] = []
    size = 0
    for number, line in islice(lines, LINES_AT_ONCE_MAX):
        batch.append((number, line))
        size += len(line)
        if size > LINES_BYTES_MAX:
            break
    return batch
