"""The command queue as the rest of the program sees it: Amazon SQS FIFO semantics.

Messages of one group are delivered in order and one batch at a time: while any message of a group is in flight,
no later one of that group is delivered. Adapters: `memoree.queue.sqlite` and `memoree.queue.sqs`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from memoree.redaction import redacted

MESSAGE_BYTES_MAX = 256 * 1024
DEDUPLICATION_SECONDS = 300
PATIENT_GROUPS = "patient/"
"""Messages of groups whose names begin so may take long once they are delivered, and nobody need worry."""
RECEIVE_COUNT_MAX = 1000
"""Deliveries before a message goes to the dead-letter queue; poison is judged by the writer, long before."""


class QueueError(Exception):
    """The queue could not be reached, or refused; whether a send took effect is unknown. Its message is told to
    callers, whatever a library put into it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(message))


class MessageTooLarge(QueueError):
    """The body exceeds `MESSAGE_BYTES_MAX`."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    body: str
    group: str
    dedup_id: str


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery. `receipt` belongs to this delivery only; `sent_at` is epoch seconds by the queue's clock."""

    message_id: str
    body: str
    group: str
    receipt: str
    receive_count: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class QueueStats:
    """`waiting` counts deliverable and delayed messages, `in_flight` delivered and not yet acknowledged ones.
    `oldest_age_seconds` is the age of the oldest unacknowledged message, or `None` where the queue cannot tell; one of
    a patient group counts only until it is delivered."""

    waiting: int
    in_flight: int
    dead: int
    oldest_age_seconds: float | None


class CommandQueue(Protocol):
    """Every method may raise `QueueError`."""

    async def send(self, message: OutgoingMessage) -> str:
        """Durably enqueue; returns the message id. A repeat of `dedup_id` within five minutes is accepted,
        changes nothing and returns the id of the first. Raises `MessageTooLarge`."""

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> Sequence[str | QueueError]:
        """Per message, in order: its id or its failure. A failure keeps no later message from being sent."""

    async def receive(
        self,
        *,
        max_messages: int,
        wait_seconds: float,
        visibility_seconds: float,
        except_groups: Collection[str] = (),
    ) -> list[Message]:
        """Long poll: up to `max_messages`, empty after `wait_seconds`. Groups named in `except_groups` are not
        delivered (SQS cannot skip them: its adapter gives such messages back within 0.3 s, which counts as a
        delivery of theirs). A cancelled receive loses nothing: what it was about to get is delivered again."""

    async def ack(self, messages: Sequence[Message]) -> None:
        """Remove delivered messages for good. A stale receipt is ignored: one that a later delivery replaced, and
        for SQS already one whose visibility timeout has passed."""

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        """Extend the time a delivery stays hidden, or give it back (0). A stale receipt is ignored."""

    async def stats(self) -> QueueStats: ...

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        """How many messages of a group are not acknowledged, counted up to `most`; `None` where nobody can tell."""

    async def scrub(self) -> None:
        """Let nothing that was acknowledged be readable in the queue's own files. SQS keeps none that can be read."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up. `sequence` orders the letters of one queue, `dead_at` is epoch seconds, and `body`
    what was kept of it: the message's own body where the queue itself gave it up, for `reason`. `receive_count` is 0
    where the queue cannot tell."""

    sequence: int
    message_id: str
    group: str
    body: str
    receive_count: int
    sent_at: float
    dead_at: float
    reason: str


class DeadLetterBox(Protocol):
    """The dead letters of one queue. Every method may raise `QueueError`."""

    async def bury(self, message: Message, *, body: str, reason: str) -> None:
        """Durably keep `body` for a delivered message, which is still to be acknowledged. A repeat for the same message
        is allowed: a SQLite queue keeps the first, SQS one per five minutes. Raises `MessageTooLarge`."""

    def dead_letters(self) -> AsyncGenerator[DeadLetter]:
        """All dead letters, of which one may come twice; to be closed. A SQLite queue tells them in the order of their
        sending. SQS shows at most ten of a group that it gave up itself, and none that somebody else looks at."""

    async def find_dead(self, message_ids: Collection[str]) -> list[DeadLetter]:
        """Those of these dead letters that there are."""

    async def remove_dead(self, message_ids: Collection[str]) -> int:
        """Remove dead letters for good; how many there were."""

    async def close(self) -> None: ...
