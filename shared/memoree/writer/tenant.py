"""The one actor per tenant: it holds the reign, applies batches in order, and settles when idle (design §5.3)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from memoree.crashpoints import reach
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectStoreError
from memoree.queue import CommandQueue, Message
from memoree.replication.head import HeadLost
from memoree.writer.environment import WriterEnvironment
from memoree.writer.reign import LeaseHeld, Reign
from memoree.writer.staging import Staged, UnknownCommand, mark_try, stage

log = logging.getLogger(__name__)

STORE_BACK_OFF_SECONDS = 0.3
DAMAGE_BACK_OFF_SECONDS = 5.0


class TenantActor:
    """Serves one tenant's deliveries, one batch at a time."""

    def __init__(self, tenant: str, environment: WriterEnvironment, queue: CommandQueue, *, unleased: bool) -> None:
        self.tenant = tenant
        self._environment = environment
        self._queue = queue
        self._unleased = unleased
        self._reign: Reign | None = None
        self._turn = asyncio.Lock()
        self.blocked_until = 0.0
        """Monotonic time before which this tenant's messages are not worth receiving."""

    @property
    def is_idle(self) -> bool:
        return not self._turn.locked()

    @property
    def idle_since(self) -> float:
        """Monotonic time of the last use of a reign that holds a lease; infinity when there is none."""
        if self._reign is None or self._reign.settled:
            return float("inf")
        return self._reign.used_at

    async def serve(self, messages: Sequence[Message]) -> None:
        """Apply, cover and acknowledge; or give the messages back and say for how long."""
        async with self._turn:
            try:
                await self._serve(messages)
            except LeaseHeld as held:
                await self._give_back(messages, held.seconds, held)
            except HeadLost as lost:
                await self._end_reign()
                await self._give_back(messages, 0.0, lost)
            except ObjectStoreError as error:
                await self._give_back(messages, STORE_BACK_OFF_SECONDS, error)
            except (MemoreeError, UnknownCommand) as error:
                log.error("tenant %s cannot be written: %s", self.tenant, error)
                await self._end_reign()
                await self._give_back(messages, DAMAGE_BACK_OFF_SECONDS, error)
            except Exception as error:
                log.exception("tenant %s: a batch failed and is abandoned", self.tenant)
                await self._end_reign()
                await self._give_back(messages, 0.0, error)

    async def _serve(self, messages: Sequence[Message]) -> None:
        reach("received")
        staged = await stage(self._environment.store, self.tenant, messages)
        reach("staged")
        if any(message.receive_count > 1 for message in messages):
            await self._apply_one_by_one(staged)
        elif staged.commands:
            reign = await self._held_reign()
            await reign.commit(staged.commands, staged.blobs)
        await self._queue.ack(messages)
        reach("acked")
        for key in staged.parked:
            await self._environment.store.delete(key)

    async def _apply_one_by_one(self, staged: Staged) -> None:
        """A redelivered batch may hold a command that kills the process: each gets a commit and a mark of its own.

        After three tries it is refused for good, so that it blocks nobody."""
        for command in staged.commands:
            reign = await self._held_reign()
            if reign.has_decided(command.attempt_id) or await mark_try(
                self._environment.store, self.tenant, command.attempt_id
            ):
                await reign.commit([command], staged.blobs)
            else:
                await reign.refuse(command, _POISONED)

    async def _held_reign(self) -> Reign:
        """The reign in force: kept, continued after settling, or newly taken."""
        if self._reign is not None and self._reign.settled:
            try:
                await self._reign.resume()
            except HeadLost:
                await self._end_reign()
        if self._reign is None:
            self._reign = await Reign.begin(self.tenant, self._environment, unleased=self._unleased)
            self._unleased = False
        return self._reign

    async def settle(self) -> None:
        """Release the lease, if one is held; the epoch may be continued."""
        async with self._turn:
            if self._reign is None or self._reign.settled:
                return
            try:
                await self._reign.settle()
            except HeadLost:
                await self._end_reign()

    async def close(self) -> None:
        await self.settle()
        async with self._turn:
            await self._end_reign()

    async def _end_reign(self) -> None:
        reign, self._reign = self._reign, None
        if reign is not None:
            await reign.abandon()

    async def _give_back(self, messages: Sequence[Message], seconds: float, why: BaseException) -> None:
        """Undecided messages return to the queue; until then this group is not asked for."""
        log.info("tenant %s: %d messages given back: %s", self.tenant, len(messages), why)
        self.blocked_until = time.monotonic() + seconds
        await self._queue.set_visibility(messages, min(seconds, STORE_BACK_OFF_SECONDS))


_POISONED = MemoreeError(
    Code.INTERNAL_ERROR, "the write failed every time it was tried and is given up; nothing was stored"
)
