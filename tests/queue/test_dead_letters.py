"""Dead letters that a consumer writes itself, over SQLite and over SQS (ministack)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from memoree.clock import utc_now
from memoree.ingest.dead import DeadLetters
from memoree.queue import CommandQueue, DeadLetter, DeadLetterBox, Message, OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.queue.sqs import SqsQueue
from memoree.queue.sqs_dead import SqsDeadLetters
from memoree.queue.sqs_setup import ensure_queues

Scenario = Callable[[CommandQueue, DeadLetterBox], Awaitable[None]]
WithBox = Callable[..., None]


@pytest.fixture(params=["sqlite", pytest.param("sqs", marks=pytest.mark.xdist_group("ministack"))])
def with_box(request: pytest.FixtureRequest, tmp_path: Path) -> WithBox:
    """Runs a scenario, an async function of a queue and its dead letters."""

    @asynccontextmanager
    async def opened(receive_count_max: int) -> AsyncIterator[tuple[CommandQueue, DeadLetterBox]]:
        if request.param == "sqlite":
            queue = SqliteQueue(tmp_path / "queue.db", receive_count_max=receive_count_max)
            try:
                yield queue, queue
            finally:
                await queue.close()
            return
        endpoint = request.getfixturevalue("sqs_endpoint")
        name = f"ingest-{uuid.uuid4().hex[:12]}"
        urls = await ensure_queues(name, endpoint=endpoint, receive_count_max=receive_count_max)
        sqs, dead = (
            SqsQueue(urls.url, urls.dead_letter_url, endpoint=endpoint),
            SqsDeadLetters(urls[1], endpoint=endpoint),
        )
        try:
            yield sqs, dead
        finally:
            await sqs.close()
            await dead.close()

    def run(scenario: Scenario, *, receive_count_max: int = 1000) -> None:
        async def whole() -> None:
            async with opened(receive_count_max) as (queue, box):
                await scenario(queue, box)

        asyncio.run(whole())

    return run


async def listed(box: DeadLetterBox) -> list[DeadLetter]:
    """In one order, which SQS has none of."""
    async with aclosing(box.dead_letters()) as letters:
        return sorted([letter async for letter in letters], key=lambda letter: letter.body)


async def delivered(queue: CommandQueue, count: int, *, visibility_seconds: float = 30) -> list[Message]:
    for number in range(count):
        await queue.send(OutgoingMessage(f"body {number}", group="source-a", dedup_id=uuid.uuid4().hex))
    return await queue.receive(max_messages=10, wait_seconds=1, visibility_seconds=visibility_seconds)


def test_a_buried_message_is_listed_until_it_is_removed(with_box: WithBox) -> None:
    async def scenario(queue: CommandQueue, box: DeadLetterBox) -> None:
        messages = await delivered(queue, 3)
        for message in messages:
            await box.bury(message, body=f"letter of {message.body}", reason="no")
        await queue.ack(messages)
        letters = await listed(box)
        assert sorted(letter.body for letter in letters) == [f"letter of body {number}" for number in range(3)]
        assert await listed(box) == letters, "looking changes nothing"
        assert await box.remove_dead([letters[1].message_id, "unknown"]) == 1
        assert await listed(box) == [letters[0], letters[2]]
        assert await box.find_dead([letters[2].message_id, letters[1].message_id]) == [letters[2]]
        assert (await queue.stats()).dead == 2

    with_box(scenario)


def test_burying_twice_leaves_one_letter(with_box: WithBox) -> None:
    async def scenario(queue: CommandQueue, box: DeadLetterBox) -> None:
        [message] = await delivered(queue, 1)
        for body in ("first", "second"):
            await box.bury(message, body=body, reason="no")
        assert [letter.body for letter in await listed(box)] == ["first"]

    with_box(scenario)


def test_what_the_queue_gave_up_itself_is_listed_too(with_box: WithBox) -> None:
    async def scenario(queue: CommandQueue, box: DeadLetterBox) -> None:
        [message] = await delivered(queue, 1)
        await queue.set_visibility([message], 0)
        assert await queue.receive(max_messages=10, wait_seconds=0.5, visibility_seconds=1) == []
        [letter] = await listed(box)
        assert letter.body == "body 0"
        assert letter.reason.startswith("received")

    with_box(scenario, receive_count_max=1)


def test_more_than_a_queue_shows_at_a_time_is_dropped_at_once(with_box: WithBox) -> None:
    async def scenario(queue: CommandQueue, box: DeadLetterBox) -> None:
        for count in (10, 3):
            await queue.set_visibility(await delivered(queue, count), 0)
            assert await queue.receive(max_messages=10, wait_seconds=0.5, visibility_seconds=1) == []
        assert await DeadLetters(box, queue, utc_now).drop_all() == 13
        assert await listed(box) == []

    with_box(scenario, receive_count_max=1)
