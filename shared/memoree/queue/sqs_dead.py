"""The dead-letter queue of an SQS FIFO queue: looked through by receiving, and giving back."""

from __future__ import annotations

from collections.abc import Collection

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

    async def dead_letters(self, *, limit: int) -> list[DeadLetter]:
        letters = await self._received(limit)
        await self._queue.set_visibility(letters, 0)
        return sorted(map(_letter, letters), key=lambda letter: (letter.dead_at, letter.message_id))

    async def remove_dead(self, message_ids: Collection[str]) -> int:
        wanted = set(message_ids)
        removed = 0
        others: list[Message] = []
        while wanted:
            received = await self._queue.receive(
                max_messages=BATCH_ENTRIES_MAX, wait_seconds=0, visibility_seconds=LOOK_SECONDS
            )
            if not received:
                break
            found = [message for message in received if message.message_id in wanted]
            await self._queue.ack(found)
            wanted -= {message.message_id for message in found}
            removed += len(found)
            others += [message for message in received if message not in found]
        await self._queue.set_visibility(others, 0)
        return removed

    async def close(self) -> None:
        await self._queue.close()

    async def _received(self, limit: int) -> list[Message]:
        letters: list[Message] = []
        while len(letters) < limit:
            received = await self._queue.receive(
                max_messages=min(BATCH_ENTRIES_MAX, limit - len(letters)),
                wait_seconds=0,
                visibility_seconds=LOOK_SECONDS,
            )
            if not received:
                break
            letters += received
        return letters


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
