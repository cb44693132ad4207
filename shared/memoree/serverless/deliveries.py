"""One SQS event as a queue: what the function acknowledges is what the event source may delete.

The event source deletes every message of a batch that is not named in `batchItemFailures`. A message that is named
returns when its visibility timeout ends, which must be six times the function's timeout; so what a worker gives back
is made visible at the time the worker asked for, once the event is over and the tenant's lease released.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memoree.queue import CommandQueue, Message, OutgoingMessage, QueueError, QueueStats

if TYPE_CHECKING:
    from types_aiobotocore_sqs.type_defs import MessageAttributeValueOutputTypeDef, MessageTypeDef

log = logging.getLogger(__name__)


class Deliveries:
    """`CommandQueue` over the deliveries of one event after the other. What is sent goes to the real queue, `onward`,
    which belongs to whoever made this. Nothing is received: `begin` brings what there is."""

    def __init__(self, onward: CommandQueue) -> None:
        self._onward = onward
        self._messages: Sequence[Message] = ()
        self._acked: set[str] = set()
        self._visible_after: dict[str, float] = {}
        """Seconds, by receipt, of what was given back."""

    def begin(self, messages: Sequence[Message]) -> None:
        """An event's deliveries; whatever was left of the last one is forgotten."""
        self._messages = messages
        self._acked.clear()
        self._visible_after.clear()

    async def end(self) -> list[Message]:
        """What the event source must keep: of each group, the first message that was not acknowledged and every later
        one, so that none overtakes another. They are given back to the queue; where that fails they return by
        themselves."""
        kept = self._kept()
        by_seconds: dict[float, list[Message]] = defaultdict(list)
        for message in kept:
            by_seconds[self._visible_after.get(message.receipt, 0.0)].append(message)
        for seconds, messages in by_seconds.items():
            try:
                await self._onward.set_visibility(messages, seconds)
            except QueueError as error:
                log.warning("%d messages return only when they would by themselves: %s", len(messages), error)
        self.begin(())
        return kept

    def _kept(self) -> list[Message]:
        failed_groups: set[str] = set()
        kept = []
        for message in self._messages:
            if message.receipt not in self._acked or message.group in failed_groups:
                failed_groups.add(message.group)
                kept.append(message)
        return kept

    # --- CommandQueue -------------------------------------------------------------------------------------------

    async def send(self, message: OutgoingMessage) -> str:
        return await self._onward.send(message)

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> Sequence[str | QueueError]:
        return await self._onward.send_batch(messages)

    async def receive(
        self,
        *,
        max_messages: int,
        wait_seconds: float,
        visibility_seconds: float,
        except_groups: Collection[str] = (),
    ) -> list[Message]:
        raise QueueError("a function is given its messages; it receives none")

    async def ack(self, messages: Sequence[Message]) -> None:
        self._acked.update(message.receipt for message in messages)

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        self._visible_after.update({message.receipt: seconds for message in messages})

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        """An event tells only what it brings."""
        return None

    async def stats(self) -> QueueStats:
        return await self._onward.stats()

    async def scrub(self) -> None:
        """The real queue's files are not this one's."""

    async def close(self) -> None:
        """The real queue stays open: it is not this one's."""


def messages_of(event: Mapping[str, Any]) -> list[Message]:
    """The deliveries of an event of SQS, in its order. Raises `ValueError` for another kind of event."""
    from memoree.queue.sqs import delivered  # with it comes the SDK, which importing a handler need not wait for

    records = event.get("Records")
    if not isinstance(records, list) or not all(record.get("eventSource") == "aws:sqs" for record in records):
        raise ValueError("not an event of SQS: there are no records of it")
    return [delivered(_as_received(record)) for record in records]


def batch_answer(kept: Iterable[Message]) -> dict[str, Any]:
    """The answer of a function whose event source has `ReportBatchItemFailures`."""
    return {"batchItemFailures": [{"itemIdentifier": message.message_id} for message in kept]}


def _as_received(record: Mapping[str, Any]) -> MessageTypeDef:
    """A record as `ReceiveMessage` would have answered it: the same members, spelt otherwise."""
    attributes: dict[str, MessageAttributeValueOutputTypeDef] = {
        name: {"DataType": found["dataType"], "StringValue": found.get("stringValue", "")}
        for name, found in record.get("messageAttributes", {}).items()
    }
    return {
        "MessageId": record["messageId"],
        "ReceiptHandle": record["receiptHandle"],
        "Body": record["body"],
        "Attributes": record["attributes"],
        "MessageAttributes": attributes,
    }
