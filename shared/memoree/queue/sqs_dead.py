"""The dead-letter queue of an SQS FIFO queue: looked through by receiving, and giving back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import replace

from memoree.queue import DeadLetter, Message, OutgoingMessage
from memoree.queue.sqs import BATCH_ENTRIES_MAX, SqsEndpoint, SqsQueue

LOOK_SECONDS = 60.0
"""How long letters stay hidden that are being looked through; they are given back at the end."""
EXHAUSTED = "received more often than the queue allows, without an acknowledgement"


class SqsDeadLetters:
    """`DeadLetterBox` over the dead-letter queue `url`. Belongs to one event loop."""

    def __init__(self, url: str, *, endpoint: SqsEndpoint) -> None:
        self._queue = SqsQueue(url, endpoint=endpoint)

    async def bury(self, message: Message, *, body: str, reason: str) -> None:
        # A group of its own: letters of one group hide each other while they are looked at.
        await self._queue.send(OutgoingMessage(body, group=message.message_id, dedup_id=message.message_id))

    async def dead_letters(self) -> AsyncGenerator[DeadLetter]:
        async with aclosing(self._look()) as look:
            async for received in look:
                for message in received:
                    yield _letter(message)

    async def find_dead(self, message_ids: Collection[str]) -> list[DeadLetter]:
        found: dict[str, DeadLetter] = {}
        async with aclosing(self._look()) as look:
            async for received in look:
                found |= {each.message_id: _letter(each) for each in received if each.message_id in message_ids}
                if len(found) == len(message_ids):
                    break
        return list(found.values())

    async def remove_dead(self, message_ids: Collection[str]) -> int:
        wanted = set(message_ids)
        async with aclosing(self._look()) as look:
            async for received in look:
                found = [message for message in received if message.message_id in wanted]
                await self._queue.ack(found)
                wanted -= {message.message_id for message in found}
                if not wanted:
                    break
        return len(set(message_ids)) - len(wanted)

    async def close(self) -> None:
        await self._queue.close()

    async def _look(self) -> AsyncGenerator[list[Message]]:
        """The letters, ten at a time, until there are no others; given back when the look is closed, apart from those
        that were acknowledged."""
        held: dict[str, Message] = {}
        try:
            while received := await self._queue.receive(
                max_messages=BATCH_ENTRIES_MAX, wait_seconds=0, visibility_seconds=LOOK_SECONDS
            ):
                if all(message.message_id in held for message in received):
                    break  # the look takes so long that what came first comes again
                held |= {message.message_id: replace(message, body="") for message in received}
                yield received
        finally:
            await self._queue.set_visibility(list(held.values()), 0)


def _letter(message: Message) -> DeadLetter:
    return DeadLetter(
        sequence=0,
        message_id=message.message_id,
        group=message.group,
        body=message.body,
        receive_count=0,  # looking counts as receiving
        sent_at=message.sent_at,
        dead_at=message.sent_at,
        reason=EXHAUSTED,
    )
