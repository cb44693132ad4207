"""Whether a tenant's writes pile up, as an api process tells it (MemoryProtocol §5, `queue_lag_warn`)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from memoree import limits
from memoree.assembly import replicated_service
from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.reader.service import ReplicatedService
from memoree.settings import StackSettings

BATCH = 10
Scenario = Callable[[ReplicatedService, SqliteQueue], Awaitable[None]]


def play(directory: Path, scenario: Scenario) -> None:
    """With a service that has no store: the queue is all that is asked."""
    settings = StackSettings(
        bucket="none",
        endpoint_url="http://127.0.0.1:9",
        access_key_id="none",
        secret_access_key="none",
        queue_url=f"sqlite://{directory / 'queue.sqlite3'}",
        runtime_dir=directory / "runtime",
    )

    async def run() -> None:
        queue = SqliteQueue(directory / "queue.sqlite3")
        try:
            async with replicated_service(settings, authorization=False) as service:
                await scenario(service, queue)
        finally:
            await queue.close()

    asyncio.run(run())


async def fill(queue: SqliteQueue, tenant: str, count: int) -> None:
    messages = [OutgoingMessage("{}", group=tenant, dedup_id=uuid.uuid4().hex) for _ in range(count)]
    for start in range(0, count, BATCH):
        await queue.send_batch(messages[start : start + BATCH])


@pytest.mark.proves("memoryprotocol-32")
def test_more_than_a_thousand_of_the_tenants_writes_are_a_lag(tmp_path: Path) -> None:
    async def scenario(service: ReplicatedService, queue: SqliteQueue) -> None:
        await fill(queue, "another", 1001)
        await fill(queue, "mine", 1000)
        assert await service.queue_lag("mine") is False
        await fill(queue, "mine", 1)
        assert await service.queue_lag("mine") is True
        assert await service.queue_lag("another") is True
        assert await service.queue_lag("nobody") is False

    play(tmp_path, scenario)


def test_a_write_that_is_being_decided_counts_and_a_decided_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUE_LAG_COMMANDS", 1)

    async def scenario(service: ReplicatedService, queue: SqliteQueue) -> None:
        await fill(queue, "mine", 2)
        delivered = await queue.receive(max_messages=1, wait_seconds=0, visibility_seconds=60)
        assert await service.queue_lag("mine") is True
        await queue.ack(delivered)
        assert await service.queue_lag("mine") is False

    play(tmp_path, scenario)


def test_a_queue_that_does_not_answer_is_no_lag_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite3").mkdir()

    async def scenario(service: ReplicatedService, queue: SqliteQueue) -> None:
        assert await service.queue_lag("mine") is False

    play(tmp_path, scenario)
