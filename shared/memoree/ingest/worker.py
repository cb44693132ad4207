"""The worker of the ingest queue: receives, keeps order where it matters, acknowledges what is decided.

Messages about one item are submitted one after the other; those about different items commute and go to the writer
together, so that its group commits fill. A `register` or `checkpoint` waits for everything before it in its group, and
everything after it waits for it. A message that becomes a dead letter is decided like any other, and what comes after
it goes on: every delivery of an item carries its whole state, so that none needs the one before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.ingest.dead import Retried
from memoree.ingest.judge import Delivery, Judge
from memoree.ingest.message import IngestMessage, from_body, item_of
from memoree.ingest.site import IngestSite
from memoree.ingest.together import all_together
from memoree.queue import CommandQueue, Message, QueueError

RECEIVE_MESSAGES_MAX = 1000
BATCH_MESSAGES = 200
"""Submitted together; while the writer applies the first of them, the next are made ready."""
ACKNOWLEDGE_SECONDS = 0.005
"""From a decision to its acknowledgement, so that those that come together are acknowledged together."""
SHORT_WAIT_SECONDS = 0.02
"""Of a worker that is to end once nothing is left."""
QUEUE_RETRY_SECONDS = 0.5
FINISH_SECONDS = 1.0
"""For what is under way when it is time to stop; what is given back instead is looked at with suspicion."""

Decided = Callable[[Message], object]

log = logging.getLogger(__name__)


class IngestWorker:
    """`serve` decides the messages it is given; `run` those of a queue, until it is told to stop."""

    def __init__(self, site: IngestSite, *, visibility_seconds: float = limits.INGEST_VISIBILITY_SECONDS) -> None:
        """`visibility_seconds`: how soon what it had in hand is delivered to another once it is dead."""
        self.site = site
        self._visibility_seconds = visibility_seconds
        self._judge = Judge(site)

    async def serve(self, messages: Sequence[Message], *, seconds_max: float) -> list[Message]:
        """Decide messages of one delivery, and return those that could not be within the time, to be delivered again:
        the store or the writer is down. All others are applied and covered by head, or dead letters, and may be
        acknowledged. Nothing goes on after the return."""
        undecided = {message.receipt: message for message in messages}
        deciding = asyncio.create_task(self._decide_all(messages, lambda message: undecided.pop(message.receipt)))
        try:
            await asyncio.wait((deciding,), timeout=seconds_max)
        finally:
            deciding.cancel()
            (outcome,) = await asyncio.gather(deciding, return_exceptions=True)
        if isinstance(outcome, BaseExceptionGroup):
            log.error("%d messages were given up by this worker, and will return", len(undecided), exc_info=outcome)
        return list(undecided.values())

    async def run(self, queue: CommandQueue, stop: asyncio.Event, *, no_more: asyncio.Event | None = None) -> None:
        """Until `stop` is set; then what is undecided goes back to the queue. Or, once `no_more` is set, until nothing
        is left."""
        await _Run(queue, stop, no_more, self._visibility_seconds, self._decide_all).serve()

    async def _decide_all(self, messages: Sequence[Message], decided: Decided) -> None:
        """`decided` is called for each message once it is."""
        groups: dict[str, list[Message]] = defaultdict(list)
        for message in messages:
            groups[message.group].append(message)
        await all_together(self._decide_group(group, decided) for group in groups.values())

    async def _decide_group(self, messages: Sequence[Message], decided: Decided) -> None:
        chains: dict[str, list[Delivery]] = defaultdict(list)

        async def finish() -> None:
            simple = [chain[0] for chain in chains.values() if len(chain) == 1 and chain[0].simple]
            others = [chain for chain in chains.values() if len(chain) > 1 or not chain[0].simple]
            batches = [simple[first : first + BATCH_MESSAGES] for first in range(0, len(simple), BATCH_MESSAGES)]
            chains.clear()
            await all_together(
                [
                    *(self._judge.decide_many(batch, lambda delivery: decided(delivery.message)) for batch in batches),
                    *(self._decide_chain(chain, decided) for chain in others),
                ]
            )

        for message in messages:
            delivery = await self._read(message)
            if delivery is None:
                decided(message)
            elif (item := item_of(delivery.content)) is not None:
                chains[item].append(delivery)
            else:
                await finish()
                await self._decide_chain([delivery], decided)
        await finish()

    async def _decide_chain(self, chain: Sequence[Delivery], decided: Decided) -> None:
        """One after the other. A message that repeats what was just applied asks for nothing more."""
        applied: IngestMessage | None = None
        for delivery in chain:
            if delivery.content != applied:
                applied = delivery.content if await self._judge.decide(delivery) else None
            decided(delivery.message)

    async def _read(self, message: Message) -> Delivery | None:
        """`None` for what is no message, and a dead letter by now."""
        history = Retried(message.body)
        try:
            history = Retried.of(message.body)
            return Delivery(message, history, from_body(history.body))
        except MemoreeError as error:
            await self._judge.bury(message, history, error)
        except Exception as error:  # whatever it is made of, it would be the same at every reading
            log.exception("message %s cannot be read", message.message_id)
            unreadable = MemoreeError(Code.INTERNAL_ERROR, f"it cannot be read: {type(error).__name__}: {error}")
            await self._judge.bury(message, history, unreadable)
        return None


class _Run:
    """One worker at one queue: what it has in hand stays hidden, what is decided is acknowledged, in groups."""

    def __init__(
        self,
        queue: CommandQueue,
        stop: asyncio.Event,
        no_more: asyncio.Event | None,
        visibility_seconds: float,
        decide_all: Callable[[Sequence[Message], Decided], Coroutine[object, object, None]],
    ) -> None:
        self._queue = queue
        self._stop = stop
        self._no_more = no_more
        self._visibility_seconds = visibility_seconds
        self._decide_all = decide_all
        self._in_hand: dict[str, Message] = {}
        """By receipt; including those decided and not acknowledged yet."""
        self._decided: list[Message] = []
        self._working: set[asyncio.Task[None]] = set()
        self._progress = asyncio.Event()
        self._something_decided = asyncio.Event()

    async def serve(self) -> None:
        keeping = asyncio.create_task(self._keep_in_hand())
        acknowledging = asyncio.create_task(self._acknowledge_on_and_on())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            while not self._stop.is_set():
                room = limits.INGEST_MESSAGES_IN_HAND_MAX - len(self._in_hand)
                if room <= 0:
                    self._progress.clear()
                    await _first(asyncio.create_task(self._progress.wait()), stopping)
                    continue
                receiving = asyncio.create_task(self._receive(min(room, RECEIVE_MESSAGES_MAX)))
                if not await _first(receiving, stopping):
                    break
                if messages := receiving.result():
                    self._take(messages)
                elif self._no_more is not None and self._no_more.is_set() and await self._is_empty():
                    break
            if self._working:
                await asyncio.wait(self._working, timeout=FINISH_SECONDS)
        finally:
            stopping.cancel()
            for task in (*self._working, keeping, acknowledging):
                task.cancel()
            await asyncio.gather(stopping, keeping, acknowledging, *self._working, return_exceptions=True)
            await self._leave()

    async def _receive(self, messages_max: int) -> list[Message]:
        try:
            return await self._queue.receive(
                max_messages=messages_max,
                wait_seconds=limits.RECEIVE_WAIT_SECONDS if self._no_more is None else SHORT_WAIT_SECONDS,
                visibility_seconds=self._visibility_seconds,
            )
        except QueueError as error:
            log.warning("the queue does not answer: %s", error)
            await asyncio.sleep(QUEUE_RETRY_SECONDS)
            return []

    async def _is_empty(self) -> bool:
        try:
            stats = await self._queue.stats()
        except QueueError as error:
            log.warning("the queue does not answer: %s", error)
            return False
        return stats.waiting + stats.in_flight == 0

    def _take(self, messages: Sequence[Message]) -> None:
        self._in_hand |= {message.receipt: message for message in messages}
        task = asyncio.create_task(self._work(messages))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, messages: Sequence[Message]) -> None:
        undecided = {message.receipt for message in messages}

        def decided(message: Message) -> None:
            undecided.discard(message.receipt)
            self._decided.append(message)
            self._something_decided.set()

        try:
            await self._decide_all(messages, decided)
        except BaseExceptionGroup:
            log.exception("%d messages were given up by this worker, and will return", len(undecided))
            for receipt in undecided:
                del self._in_hand[receipt]
            self._progress.set()

    async def _acknowledge_on_and_on(self) -> None:
        while True:
            await self._something_decided.wait()
            await asyncio.sleep(ACKNOWLEDGE_SECONDS)
            self._something_decided.clear()
            if not await self._acknowledge():
                await asyncio.sleep(QUEUE_RETRY_SECONDS)
                self._something_decided.set()

    async def _acknowledge(self) -> bool:
        """Whether everything decided was acknowledged."""
        batch = self._decided[:]
        try:
            await self._queue.ack(batch)
        except QueueError as error:
            log.warning("%d decided messages could not be acknowledged: %s", len(batch), error)
            return False
        del self._decided[: len(batch)]
        for message in batch:
            del self._in_hand[message.receipt]
        self._progress.set()
        return True

    async def _keep_in_hand(self) -> None:
        """Hide what is in hand for longer, well before its time is up."""
        while True:
            await asyncio.sleep(self._visibility_seconds / 3)
            await self._set_visibility(self._visibility_seconds)

    async def _leave(self) -> None:
        await self._acknowledge()
        await self._set_visibility(0)

    async def _set_visibility(self, seconds: float) -> None:
        try:
            await self._queue.set_visibility(list(self._in_hand.values()), seconds)
        except QueueError as error:
            log.warning("cannot set the visibility of %d messages: %s", len(self._in_hand), error)


async def _first(task: asyncio.Task[object], stopping: asyncio.Task[object]) -> bool:
    """Whether the task ended before the signal to stop came; otherwise it is cancelled."""
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return True
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return False
