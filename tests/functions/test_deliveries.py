"""What a function tells its event source: which messages of a batch must stay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from functions_support import sqs_event
from hypothesis import given
from hypothesis import strategies as st

from memoree.queue import Message, OutgoingMessage, QueueError
from memoree.queue.sqlite import SqliteQueue
from memoree.serverless.deliveries import Deliveries, batch_answer, messages_of


class Onward(SqliteQueue):
    """A queue that only notes what it is asked; it may be out of reach."""

    def __init__(self, *, broken: bool = False) -> None:
        self.hidden: dict[str, float] = {}
        self.sent: list[OutgoingMessage] = []
        self._broken = broken

    async def send(self, message: OutgoingMessage) -> str:
        self.sent.append(message)
        return "sent"

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        if self._broken:
            raise QueueError("out of reach")
        self.hidden |= {message.message_id: seconds for message in messages}


def deliveries_of(*groups: str) -> list[Message]:
    return [Message(f"m-{at}", "{}", group, f"r-{at}", 1, 0.0) for at, group in enumerate(groups)]


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.message_id for message in messages]


@pytest.mark.proves("operations-63")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=10))
def test_a_failure_keeps_every_later_message_of_its_group_and_no_other(batch: list[tuple[str, bool]]) -> None:
    messages = deliveries_of(*(group for group, _ in batch))
    deliveries = Deliveries(Onward())
    deliveries.begin(messages)
    asyncio.run(deliveries.ack([message for message, (_, acked) in zip(messages, batch, strict=True) if acked]))

    kept = asyncio.run(deliveries.end())

    for at, (message, (group, _)) in enumerate(zip(messages, batch, strict=True)):
        all_acked_so_far = all(acked for other, acked in batch[: at + 1] if other == group)
        assert (message in kept) == (not all_acked_so_far)
    assert ids(kept) == [each["itemIdentifier"] for each in batch_answer(kept)["batchItemFailures"]]


@pytest.mark.proves("operations-63")
def test_what_is_kept_returns_when_the_worker_asked_for_it_and_not_after_six_timeouts() -> None:
    messages = deliveries_of("a", "b", "a", "c")
    onward = Onward()
    deliveries = Deliveries(onward)
    deliveries.begin(messages)

    async def event() -> None:
        await deliveries.set_visibility([messages[0], messages[2]], 0.3)
        await deliveries.ack([messages[1]])
        assert onward.hidden == {}, "while the event lasts, nobody else may get them"
        await deliveries.end()

    asyncio.run(event())
    assert onward.hidden == {"m-0": 0.3, "m-2": 0.3, "m-3": 0.0}


def test_a_queue_out_of_reach_changes_nothing_about_what_is_kept() -> None:
    deliveries = Deliveries(Onward(broken=True))
    deliveries.begin(deliveries_of("a", "b"))
    assert ids(asyncio.run(deliveries.end())) == ["m-0", "m-1"]


def test_one_event_knows_nothing_of_the_one_before() -> None:
    first, second = deliveries_of("a"), deliveries_of("b", "a")
    deliveries = Deliveries(Onward())
    deliveries.begin(first)
    asyncio.run(deliveries.ack(first))
    deliveries.begin(second)
    assert ids(asyncio.run(deliveries.end())) == ["m-0", "m-1"]


def test_records_become_the_messages_that_were_sent_escapes_and_all() -> None:
    event = sqs_event([Message("m", "%0000|%0025", "t", "r", 3, 12.5)])
    attribute = {"stringValue": "1", "stringListValues": [], "binaryListValues": [], "dataType": "String"}
    event["Records"][0]["messageAttributes"] = {"escaped": attribute}
    assert messages_of(event) == [Message("m", "\0|%", "t", "r", 3, 12.5)]


@pytest.mark.parametrize("event", [{}, {"Records": "none"}, {"Records": [{"eventSource": "aws:s3"}]}])
def test_another_kind_of_event_is_no_empty_batch(event: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="SQS"):
        messages_of(event)
