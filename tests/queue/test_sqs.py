"""What only the SQS adapter has: requests that fail in part or altogether, and queues to be made."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import orjson
import pytest

from memoree.queue import MESSAGE_BYTES_MAX, Message, MessageTooLarge, OutgoingMessage, QueueError
from memoree.queue.sqs import EXCLUDED_HOLD_SECONDS_MAX, SqsEndpoint, SqsQueue
from memoree.queue.sqs_setup import QueueUrls, ensure_queues

pytestmark = pytest.mark.xdist_group("ministack")


def message(dedup_id: str, body: str = "body") -> OutgoingMessage:
    return OutgoingMessage(body=body, group="tenant-a", dedup_id=dedup_id)


async def receive(queue: SqsQueue, *, except_groups: tuple[str, ...] = ()) -> list[Message]:
    return await queue.receive(max_messages=10, wait_seconds=1, visibility_seconds=30, except_groups=except_groups)


def run(endpoint: SqsEndpoint, scenario: Callable[[SqsQueue, QueueUrls], Awaitable[None]]) -> None:
    async def opened() -> None:
        urls = await ensure_queues(f"commands-{uuid.uuid4().hex[:12]}", endpoint=endpoint)
        queue = SqsQueue(urls.url, urls.dead_letter_url, endpoint=endpoint)
        try:
            await scenario(queue, urls)
        finally:
            await queue.close()

    asyncio.run(opened())


async def limit_message_size(endpoint: SqsEndpoint, url: str, size_bytes: int) -> None:
    async with AsyncExitStack() as stack:
        client = await endpoint.connect(stack)
        await client.set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": str(size_bytes)})


async def attributes(endpoint: SqsEndpoint, url: str) -> dict[str, str]:
    async with AsyncExitStack() as stack:
        client = await endpoint.connect(stack)
        answer = await client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        return {str(name): value for name, value in answer["Attributes"].items()}


def test_what_the_server_refuses_of_a_batch_is_reported_per_message(sqs_endpoint: SqsEndpoint) -> None:
    async def scenario(queue: SqsQueue, urls: QueueUrls) -> None:
        await limit_message_size(sqs_endpoint, urls.url, 1024)
        outcomes = await queue.send_batch([message("a"), message("b", "x" * 2000), message("c")])
        assert isinstance(outcomes[1], MessageTooLarge)
        assert [m.message_id for m in await receive(queue)] == [outcomes[0], outcomes[2]]

    run(sqs_endpoint, scenario)


def test_a_server_that_cannot_be_reached_is_an_error_of_every_call() -> None:
    nowhere = SqsEndpoint(
        endpoint_url="http://127.0.0.1:9", region="us-east-1", access_key_id="test", secret_access_key="test"
    )

    async def scenario() -> None:
        queue = SqsQueue("http://127.0.0.1:9/000000000000/commands.fifo", endpoint=nowhere)
        held = [Message("id", "body", "tenant-a", "receipt", 1, 0.0)]
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: queue.send(message("a")),
            lambda: receive(queue),
            lambda: queue.ack(held),
            lambda: queue.set_visibility(held, 0),
            queue.stats,
        ]
        failures = await asyncio.gather(*[call() for call in calls], return_exceptions=True)
        assert [type(failure) for failure in failures] == [QueueError] * len(calls)
        outcomes = await queue.send_batch([message("a"), message("b")])
        assert [type(outcome) for outcome in outcomes] == [QueueError] * 2
        await queue.close()

    asyncio.run(scenario())


def test_a_queue_that_does_not_exist_is_an_error(sqs_endpoint: SqsEndpoint) -> None:
    async def scenario() -> None:
        queue = SqsQueue(f"{sqs_endpoint.endpoint_url}/000000000000/missing.fifo", endpoint=sqs_endpoint)
        with pytest.raises(QueueError, match="send"):
            await queue.send(message("a"))
        with pytest.raises(QueueError, match="receive"):
            await receive(queue)
        await queue.close()

    asyncio.run(scenario())


def test_a_full_answer_is_followed_by_another_request(sqs_endpoint: SqsEndpoint) -> None:
    async def scenario(queue: SqsQueue, _urls: QueueUrls) -> None:
        sent = [OutgoingMessage("body", f"group-{number}", str(number)) for number in range(35)]
        await queue.send_batch(sent)
        received = await queue.receive(max_messages=200, wait_seconds=0, visibility_seconds=30)
        assert len(received) == 35
        await queue.set_visibility(received, 0)
        again = await queue.receive(max_messages=200, wait_seconds=1, visibility_seconds=30)
        assert len(again) == 35
        await queue.ack(again)
        counted = await queue.stats()
        assert (counted.waiting, counted.in_flight) == (0, 0)

    run(sqs_endpoint, scenario)


def test_an_excepted_group_is_not_asked_for_in_a_hot_loop(sqs_endpoint: SqsEndpoint) -> None:
    async def scenario(queue: SqsQueue, _urls: QueueUrls) -> None:
        await queue.send(message("a"))
        for _ in range(2):
            assert await receive(queue, except_groups=("tenant-a",)) == []
        [received] = await receive(queue)
        deliveries_at_most = 1 + 2 * (1 / (EXCLUDED_HOLD_SECONDS_MAX / 2)) * 3
        assert 2 <= received.receive_count <= deliveries_at_most

    run(sqs_endpoint, scenario)


def test_queues_are_made_once_and_brought_in_line_later(sqs_endpoint: SqsEndpoint) -> None:
    async def scenario() -> None:
        name = f"commands-{uuid.uuid4().hex[:12]}"
        first, second = await asyncio.gather(
            ensure_queues(name, endpoint=sqs_endpoint), ensure_queues(name, endpoint=sqs_endpoint)
        )
        assert first == second
        await ensure_queues(name, endpoint=sqs_endpoint, receive_count_max=7)
        made = await attributes(sqs_endpoint, first.url)
        dead = await attributes(sqs_endpoint, first.dead_letter_url)
        assert made["FifoQueue"] == dead["FifoQueue"] == "true"
        assert made["MaximumMessageSize"] == dead["MaximumMessageSize"] == str(MESSAGE_BYTES_MAX)
        redrive = orjson.loads(made["RedrivePolicy"])
        assert redrive["deadLetterTargetArn"] == dead["QueueArn"]
        assert int(redrive["maxReceiveCount"]) == 7

    asyncio.run(scenario())


def test_secrets_are_not_shown() -> None:
    endpoint = SqsEndpoint(
        region="us-east-1", access_key_id="id", secret_access_key="hidden-1", session_token="hidden-2"
    )
    assert "hidden" not in repr(endpoint)
