"""What every command queue promises, over SQLite and over SQS (ministack)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest

from memoree.queue import (
    MESSAGE_BYTES_MAX,
    CommandQueue,
    Message,
    MessageTooLarge,
    OutgoingMessage,
    QueueError,
)

WithQueue = Callable[..., None]

LONG = 30.0
"""Visibility that no test outlives."""


def message(dedup_id: str, *, group: str = "tenant-a", body: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(body=body if body is not None else f"body of {dedup_id}", group=group, dedup_id=dedup_id)


async def receive(
    queue: CommandQueue,
    *,
    max_messages: int = 10,
    wait_seconds: float = 0,
    visibility_seconds: float = LONG,
    except_groups: Collection[str] = (),
) -> list[Message]:
    return await queue.receive(
        max_messages=max_messages,
        wait_seconds=wait_seconds,
        visibility_seconds=visibility_seconds,
        except_groups=except_groups,
    )


def bodies(messages: Collection[Message]) -> list[str]:
    return [received.body for received in messages]


def test_a_sent_message_is_received_as_it_was_sent(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        before = time.time()
        message_id = await queue.send(message("a", group="tenant.one_2", body='{"text": "ü"}'))
        [received] = await receive(queue)
        assert received.message_id == message_id
        assert received.body == '{"text": "ü"}'
        assert received.group == "tenant.one_2"
        assert received.receive_count == 1
        assert before - 1 <= received.sent_at <= time.time() + 1

    with_queue(scenario)


def test_messages_of_a_group_come_in_the_order_of_their_sending(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        for number in range(5):
            await queue.send(message(f"m{number}"))
        assert bodies(await receive(queue)) == [f"body of m{number}" for number in range(5)]

    with_queue(scenario)


def test_a_batch_longer_than_one_request_keeps_its_order(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        outcomes = await queue.send_batch([message(f"m{number:02}") for number in range(25)])
        assert len(set(outcomes)) == 25
        seen: list[Message] = []
        while batch := await receive(queue):
            seen += batch
            await queue.ack(batch)
        assert [received.message_id for received in seen] == outcomes
        assert bodies(seen) == [f"body of m{number:02}" for number in range(25)]

    with_queue(scenario)


def test_a_group_in_flight_is_locked_and_others_are_not(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message("a1"), message("a2"), message("b1", group="tenant-b")])
        first = await receive(queue, max_messages=1)
        second = await receive(queue)
        assert {m.group for m in (*first, *second)} == {"tenant-a", "tenant-b"}
        assert {m.group for m in first}.isdisjoint({m.group for m in second})
        assert await receive(queue) == []

    with_queue(scenario)


def test_acknowledging_lets_the_rest_of_the_group_follow(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message("a1"), message("a2")])
        await queue.ack(await receive(queue, max_messages=1))
        assert bodies(await receive(queue)) == ["body of a2"]

    with_queue(scenario)


def test_a_group_stays_locked_until_every_delivery_is_acknowledged(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message("a1"), message("a2"), message("a3")])
        first, second = await receive(queue, max_messages=2)
        await queue.ack([first])
        assert await receive(queue) == []
        await queue.ack([second])
        assert bodies(await receive(queue)) == ["body of a3"]

    with_queue(scenario)


def test_messages_given_back_come_again_in_order_and_counted(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message("a1"), message("a2"), message("a3")])
        await queue.set_visibility(await receive(queue, max_messages=2), 0)
        again = await receive(queue, wait_seconds=2)
        assert bodies(again) == ["body of a1", "body of a2", "body of a3"]
        assert [m.receive_count for m in again] == [2, 2, 1]

    with_queue(scenario)


def test_a_message_comes_again_when_its_visibility_timeout_ends(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send(message("a1"))
        [first] = await receive(queue, visibility_seconds=1)
        assert await receive(queue) == []
        [again] = await receive(queue, wait_seconds=5)
        assert (again.message_id, again.receive_count) == (first.message_id, 2)
        assert again.receipt != first.receipt

    with_queue(scenario)


def test_extending_the_visibility_keeps_a_message_hidden(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send(message("a1"))
        held = await receive(queue, visibility_seconds=1)
        await queue.set_visibility(held, LONG)
        assert await receive(queue, wait_seconds=2) == []
        await queue.ack(held)
        assert (await queue.stats()).in_flight == 0

    with_queue(scenario)


def test_a_stale_receipt_neither_removes_nor_releases(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send(message("a1"))
        stale = await receive(queue)
        await queue.set_visibility(stale, 0)
        current = await receive(queue, wait_seconds=2)
        await queue.ack(stale)
        await queue.set_visibility(stale, 0)
        assert await receive(queue) == []
        await queue.set_visibility(current, 0)
        assert bodies(await receive(queue, wait_seconds=2)) == ["body of a1"]

    with_queue(scenario)


def test_acknowledging_twice_is_no_error(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send(message("a1"))
        received = await receive(queue)
        await queue.ack(received)
        await queue.ack(received)
        await queue.ack([])
        await queue.set_visibility([], 0)

    with_queue(scenario)


def test_a_repeated_deduplication_id_changes_nothing(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        first = await queue.send(message("a1", body="one"))
        assert await queue.send(message("a1", body="two")) == first
        assert bodies(await receive(queue)) == ["one"]

    with_queue(scenario)


def test_deduplication_outlives_the_message(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        first = await queue.send(message("a1"))
        await queue.ack(await receive(queue))
        assert await queue.send(message("a1")) == first
        assert await receive(queue) == []

    with_queue(scenario)


def test_a_repeat_inside_one_batch_is_one_message(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        first, second, other = await queue.send_batch([message("a1"), message("a1"), message("a2")])
        assert first == second != other
        assert bodies(await receive(queue)) == ["body of a1", "body of a2"]

    with_queue(scenario)


def test_a_batch_reports_what_became_of_each_message(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        large = "x" * (MESSAGE_BYTES_MAX + 1)
        outcomes = await queue.send_batch(
            [message("a1"), message("a2", body=large), message("a3", group="no spaces"), message("a4")]
        )
        assert isinstance(outcomes[1], MessageTooLarge)
        assert isinstance(outcomes[2], QueueError)
        received = await receive(queue)
        assert [m.message_id for m in received] == [outcomes[0], outcomes[3]]
        assert await queue.send_batch([]) == []

    with_queue(scenario)


def test_the_largest_message_passes_and_one_byte_more_does_not(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        largest = "ü" * (MESSAGE_BYTES_MAX // 2)
        await queue.send_batch([message(f"a{number}", body=largest) for number in range(3)])
        assert bodies(await receive(queue)) == [largest] * 3
        with pytest.raises(MessageTooLarge, match="262145"):
            await queue.send(message("b", body=largest + "x"))

    with_queue(scenario)


@pytest.mark.parametrize(
    "refused",
    [
        message("a1", body=""),
        message("a1", body="\ud800"),
        message("a1", group=""),
        message("a1", group="x" * 129),
        message("a1", group="ü"),
        message(""),
        message("with space"),
    ],
    ids=[
        "empty-body",
        "lone-surrogate",
        "no-group",
        "long-group",
        "group-not-ascii",
        "no-id",
        "id-with-space",
    ],
)
def test_an_unusable_message_is_refused_and_not_stored(with_queue: WithQueue, refused: OutgoingMessage) -> None:
    async def scenario(queue: CommandQueue) -> None:
        with pytest.raises(QueueError):
            await queue.send(refused)
        assert (await queue.stats()).waiting == 0

    with_queue(scenario)


@pytest.mark.parametrize("body", ["\0", "100 %ffff \uffff\ufffe", "\x1b[0m", "\t\r\n", "😀 \U0010ffff", "%0041"])
def test_every_character_survives(with_queue: WithQueue, body: str) -> None:
    async def scenario(queue: CommandQueue) -> None:
        [outcome] = await queue.send_batch([message("a1", body=body)])
        await queue.send(message("a2", body=body))
        received = await receive(queue)
        assert received[0].message_id == outcome
        assert bodies(received) == [body, body]

    with_queue(scenario)


def test_a_waiting_receive_gets_what_is_sent_meanwhile(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.stats()  # connected
        waiting = asyncio.create_task(receive(queue, wait_seconds=10))
        await asyncio.sleep(0)
        started = time.monotonic()
        await queue.send(message("a1"))
        assert bodies(await waiting) == ["body of a1"]
        assert time.monotonic() - started < 3

    with_queue(scenario)


@pytest.mark.parametrize("wait_seconds", [0, 0.3, 1, 1.3])
def test_an_empty_receive_waits_as_long_as_asked(with_queue: WithQueue, wait_seconds: float) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.stats()  # connected
        started = time.monotonic()
        assert await receive(queue, wait_seconds=wait_seconds) == []
        assert wait_seconds - 0.02 <= time.monotonic() - started < wait_seconds + 1

    with_queue(scenario)


def test_a_receive_takes_as_many_as_wait_up_to_the_most(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message(f"m{number}", group=f"group-{number}") for number in range(25)])
        first = await receive(queue, max_messages=23)
        assert len(first) == 23
        second = await receive(queue, max_messages=23)
        assert len(second) == 2
        await queue.ack([*first, *second])
        assert (await queue.stats()).in_flight == 0

    with_queue(scenario)


def test_excepted_groups_are_left_for_others(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message("a1"), message("a2"), message("b1", group="tenant-b")])
        received = await receive(queue, except_groups={"tenant-a"})
        assert bodies(received) == ["body of b1"]
        assert await receive(queue, wait_seconds=1, except_groups={"tenant-a"}) == []
        assert bodies(await receive(queue, wait_seconds=2)) == ["body of a1", "body of a2"]

    with_queue(scenario)


def test_a_message_received_too_often_becomes_a_dead_letter(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message("a1"), message("a2")])
        for count in (1, 2):
            [poison] = await receive(queue, max_messages=1, wait_seconds=2)
            assert (poison.body, poison.receive_count) == ("body of a1", count)
            await queue.set_visibility([poison], 0)
        assert bodies(await receive(queue, wait_seconds=2)) == ["body of a2"]
        assert (await queue.stats()).dead == 1

    with_queue(scenario, receive_count_max=2)


def test_stats_tell_waiting_from_in_flight(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.send_batch([message(f"m{number}") for number in range(5)])
        held = await receive(queue, max_messages=2)
        counted = await queue.stats()
        assert (counted.waiting, counted.in_flight, counted.dead) == (3, 2, 0)
        await queue.ack(held)
        counted = await queue.stats()
        assert (counted.waiting, counted.in_flight, counted.dead) == (3, 0, 0)

    with_queue(scenario)


def test_a_cancelled_receive_loses_no_message(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        for round_number in range(3):
            waiting = asyncio.create_task(receive(queue, wait_seconds=10, visibility_seconds=1))
            await asyncio.sleep(0)
            await queue.send(message(f"m{round_number}"))
            waiting.cancel()
            await asyncio.wait([waiting])
            received = waiting.result() if not waiting.cancelled() else await receive(queue, wait_seconds=5)
            assert bodies(received) == [f"body of m{round_number}"]
            await queue.ack(received)

    with_queue(scenario)


def test_closing_fails_a_waiting_receive_and_every_later_call(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        await queue.stats()  # connected
        waiting = asyncio.create_task(receive(queue, wait_seconds=20))
        await queue.stats()  # a round trip later the receive is under way
        await queue.close()
        with pytest.raises(QueueError):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(QueueError, match="closed"):
            await queue.send(message("a1"))
        with pytest.raises(QueueError, match="closed"):
            await receive(queue)

    with_queue(scenario)


def test_messages_outlive_the_queue_object(backend: Any) -> None:
    async def scenario() -> None:
        first = await backend.open()
        message_id = await first.send(message("a1"))
        await first.close()
        second = await backend.open()
        [received] = await receive(second)
        await second.close()
        assert received.message_id == message_id

    asyncio.run(scenario())


def test_competing_consumers_share_the_work_and_keep_the_order(with_queue: WithQueue) -> None:
    async def scenario(queue: CommandQueue) -> None:
        sent = [message(f"{group}-{number:02}", group=f"g{group}") for number in range(8) for group in range(5)]
        await queue.send_batch(sent)
        seen: list[Message] = []

        async def consume() -> None:
            while batch := await receive(queue, max_messages=3, wait_seconds=0.5):
                seen.extend(batch)
                await asyncio.sleep(0.001)
                await queue.ack(batch)

        await asyncio.gather(*[consume() for _ in range(4)])
        assert sorted(bodies(seen)) == sorted(m.body for m in sent)
        for group in range(5):
            of_group = [m.body for m in seen if m.group == f"g{group}"]
            assert of_group == sorted(of_group)

    with_queue(scenario)
