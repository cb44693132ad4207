"""A SQLite queue in a file of its own, for tests of what only it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memoree.queue import Message, OutgoingMessage
from memoree.queue.sqlite import SqliteQueue

LONG = 3600.0


class ManualClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def run(path: Path, scenario: Callable[[SqliteQueue], Awaitable[None]], **options: object) -> None:
    async def opened() -> None:
        queue = SqliteQueue(path, **options)  # type: ignore[arg-type]
        try:
            await scenario(queue)
        finally:
            await queue.close()

    asyncio.run(opened())


def message(dedup_id: str, *, group: str = "tenant-a", body: str = "body") -> OutgoingMessage:
    return OutgoingMessage(body=body, group=group, dedup_id=dedup_id)


async def receive(queue: SqliteQueue, max_messages: int = 10, wait_seconds: float = 0) -> list[Message]:
    return await queue.receive(max_messages=max_messages, wait_seconds=wait_seconds, visibility_seconds=LONG)
