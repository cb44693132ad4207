"""One message until it is decided: applied, or a dead letter that says why not.

Three things can go wrong with a message. A refusal never changes, so it is final. An outage (the store, the queue or
the writer does not answer) is nobody's fault: the message waits, and it does not count. Anything else is a failure,
and so is the death of the worker: after five the message is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from weakref import WeakValueDictionary

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.ingest.dead import Retried
from memoree.ingest.message import Ingest, IngestMessage, UploadReference, Withdraw
from memoree.ingest.site import IngestSite
from memoree.ingest.submission import Outage, Submitter
from memoree.ingest.together import all_together
from memoree.ingest.tries import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN, Tries, insisting
from memoree.objects import ObjectStoreError
from memoree.queue import Message, QueueError

BATCHES_AT_ONCE_MAX = 8
"""Of one tenant: what another waits for keeps none from its turn."""

FAULTS = frozenset({Code.INTERNAL_ERROR, Code.INTEGRITY_ERROR, Code.CONFIG_ERROR})
"""Codes that say nothing about the message: it, or its tenant, or this program may be what is wrong."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered message that is well formed."""

    message: Message
    history: Retried
    content: IngestMessage

    @property
    def suspect(self) -> bool:
        """Whether a worker may have died of it."""
        return self.message.receive_count > 1

    @property
    def simple(self) -> bool:
        """Whether it may go with others."""
        content = self.content.content if isinstance(self.content, Ingest) else None
        return not (self.suspect or self.history.by_hand or isinstance(content, UploadReference))


class Failure(Exception):
    """A try went wrong, for a reason that may be the message."""


class Judge:
    """Decides messages, of which many may be under way at a time."""

    def __init__(self, site: IngestSite) -> None:
        self._site = site
        self._submitter = Submitter(site)
        self._in_flight_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._one_suspect = asyncio.Lock()
        self._one_suspect_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._batches_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def decide(self, delivery: Delivery) -> bool:
        """Whether it was applied; otherwise it is a dead letter. Cancelled, it counts no try."""
        tenant, message_id = delivery.content.tenant, delivery.message.message_id
        tries = Tries(self._site.tenancy(tenant).store, tenant, message_id, suspect=delivery.suspect)
        try:
            return await self._decide(delivery, tries)
        except asyncio.CancelledError:
            await tries.interrupted()
            raise

    async def decide_many(self, deliveries: Sequence[Delivery], decided: Callable[[Delivery], object]) -> None:
        """The same for `simple` deliveries of one source that are about different items: what can be applied at once
        is, and the others are decided one by one. `decided` is called for each once it is."""
        messages = [each.content for each in deliveries if isinstance(each.content, Ingest | Withdraw)]
        assert len(messages) == len(deliveries), "what is no item's message goes alone"
        left = dict(enumerate(deliveries))

        def applied(number: int) -> None:
            decided(left.pop(number))

        pending: dict[int, AttemptId] = {}
        async with self._batches_of.setdefault(messages[0].tenant, asyncio.Semaphore(BATCHES_AT_ONCE_MAX)):
            try:
                pending = await self._submitter.submit_many(messages, applied)
            except Exception as error:
                log.warning("%d messages are submitted one by one: %s: %s", len(left), type(error).__name__, error)

        async def decide_one(number: int, delivery: Delivery) -> None:
            # What is in the writer's queue already would be there once more if it were submitted again.
            attempt_id = pending.get(number)
            if attempt_id is None or not await self._submitter.is_applied(delivery.content.tenant, attempt_id):
                await self.decide(delivery)
            decided(delivery)

        await all_together([decide_one(number, delivery) for number, delivery in left.items()])

    async def bury(self, message: Message, history: Retried, error: MemoreeError, *, tries: int = 1) -> None:
        """Make it a dead letter, however long the queue does not answer."""
        log.warning("message %s becomes a dead letter: %s: %s", message.message_id, error.code, error.message)
        await insisting(lambda: self._site.dead.bury(message, history, error, tries=tries))

    async def _decide(self, delivery: Delivery, tries: Tries) -> bool:
        message = delivery.message
        reason = "the process that applied it ended each time"
        pause = RETRY_SECONDS_MIN
        number: int | None = None
        while True:
            try:
                async with AsyncExitStack() as turn:
                    await self._take(turn, delivery)
                    if (number := await tries.begin()) is None:
                        break
                    await self._apply(delivery, tries, turn)
            except MemoreeError as refusal:
                await self.bury(message, delivery.history, refusal, tries=number or 1)
                await tries.forget()
                return False
            except (Outage, ObjectStoreError, QueueError) as outage:
                log.warning("message %s waits: %s", message.message_id, outage)
                await tries.take_back()
                self._submitter.doubt(delivery.content.tenant)
            except Failure as failure:
                reason = str(failure)
                log.error("message %s failed: %s", message.message_id, reason)
                await tries.failed()
            else:
                await tries.forget()
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)
        given_up = MemoreeError(Code.INTERNAL_ERROR, f"given up after {limits.INGEST_TRIES_MAX} tries: {reason}")
        await self.bury(message, delivery.history, given_up, tries=limits.INGEST_TRIES_MAX)
        await tries.forget()
        return False

    async def _take(self, turn: AsyncExitStack, delivery: Delivery) -> None:
        """The right to try, until `turn` is closed; nobody keeps it who only waits. What a worker may have died of is
        tried one at a time, or each death would count against all of them; and of each tenant one is in that line, so
        that none stands behind all that another has there."""
        tenant = delivery.content.tenant
        if delivery.suspect:
            await turn.enter_async_context(self._one_suspect_of.setdefault(tenant, asyncio.Lock()))
            await turn.enter_async_context(self._one_suspect)
        in_flight = self._in_flight_of.setdefault(tenant, asyncio.Semaphore(limits.INGEST_IN_FLIGHT_MAX))
        await turn.enter_async_context(in_flight)

    async def _apply(self, delivery: Delivery, tries: Tries, turn: AsyncExitStack) -> None:
        """Raises the refusal, `Outage` or what an outage raises, and `Failure` for everything else."""

        async def waiting() -> None:
            await tries.take_back()
            await turn.aclose()

        try:
            if delivery.history.by_hand and await self._submitter.superseded(delivery.content):
                log.info("message %s came too late: its item has a later state", delivery.message.message_id)
            else:
                await self._submitter.submit(delivery.content, waiting)
        except (Outage, ObjectStoreError, QueueError):
            raise
        except MemoreeError as error:
            if error.retryable:
                raise Outage(error.message) from error
            if error.code not in FAULTS:
                raise
            await self._require_readable(delivery.content.tenant)
            raise Failure(f"{error.code}: {error.message}") from error
        except Exception as error:
            log.exception("message %s failed", delivery.message.message_id)
            raise Failure(f"{type(error).__name__}: {error}") from error

    async def _require_readable(self, tenant: str) -> None:
        """Raises `Outage` for a tenant whose every message would fail: it is damaged, or of a newer program."""
        try:
            await self._site.tenancy(tenant).snapshot(lambda _db: None)
        except MemoreeError as error:
            raise Outage(f"tenant {tenant} cannot be read: {error.message}") from error
