"""The one actor per tenant: it holds the reign, applies batches in order, and settles when idle (design §5.3)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from memoree import limits
from memoree.command import ClaimCheck
from memoree.crashpoints import reach
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectStoreError
from memoree.operations.registry import Mutation
from memoree.queue import RECEIVE_COUNT_MAX, CommandQueue, Message, QueueError
from memoree.replication import layout, tombstone
from memoree.replication.head import HeadFile, HeadLost
from memoree.replication.tombstone import TenantDeleted
from memoree.writer.environment import WriterEnvironment
from memoree.writer.reign import BatchFailed, LeaseHeld, Reign
from memoree.writer.staging import Staged, UnknownCommand, history_in, mark_try, stage

log = logging.getLogger(__name__)

LEASE_VISIBILITY_SECONDS = 0.3
UNKNOWN_BACK_OFF_SECONDS = limits.COMMAND_AGE_SECONDS_MAX / RECEIVE_COUNT_MAX
"""Of commands by a newer program: hidden for so long each time, none is dead before it is too old to be applied."""
OUTAGE_BACK_OFF_SECONDS_MIN = 0.3
OUTAGE_BACK_OFF_SECONDS_MAX = 1.1 * UNKNOWN_BACK_OFF_SECONDS
"""The same for as long as the store or the tenant cannot be used, however often it is tried at the beginning."""
OUTAGE_SHARE = 0.1
"""An outage is tried again after this share of the time that it has lasted."""
FAULT_BACK_OFF_SECONDS = (0.0, 0.3, 1.0, 3.0, 10.0)
"""After faults in a row that ended the reign: every new one costs a restore and an upload of the whole database."""

SCRUB_PAUSES_SECONDS = (0.2, 1.0, 3.0)
"""After which the queue's file is rewritten again, when others kept it busy."""


class TenantActor:
    """Serves one tenant's deliveries, one batch at a time."""

    def __init__(self, tenant: str, environment: WriterEnvironment, queue: CommandQueue, *, unleased: bool) -> None:
        self.tenant = tenant
        self._environment = environment
        self._queue = queue
        self._unleased = unleased
        self._reign: Reign | None = None
        self._reaped_owner: str | None = None
        """Of the last reign this actor ended: its lease is not waited for."""
        self._faults = 0
        self._outage_since: float | None = None
        self._turn = asyncio.Lock()
        self.used_at = time.monotonic()
        self.blocked_until = 0.0
        """Monotonic time before which this tenant's messages are not worth receiving."""
        self._lease_is_held = False
        """Whether that is for another's lease, which may also be released before."""

    @property
    def idle_since(self) -> float:
        """Monotonic time of the last use of a reign that holds a lease; infinity when there is none."""
        if self._reign is None or self._reign.settled:
            return float("inf")
        return self._reign.used_at

    @property
    def holds_lease(self) -> bool:
        return self._reign is not None and not self._reign.settled

    @property
    def waits_for_lease(self) -> bool:
        return self._lease_is_held and self.blocked_until > time.monotonic()

    async def look_at_lease(self) -> None:
        """Whether what this tenant waits for was released, or its owner is gone: then it waits no longer."""
        try:
            reading = await HeadFile(self._environment.store, layout.tenant_prefix(self.tenant)).read()
        except (ObjectStoreError, MemoreeError) as error:
            log.info("tenant %s: no look at the lease that it waits for: %s", self.tenant, error)
            return
        if reading is None or not reading.lease_seconds_left(self._environment.timings.lease_ttl):
            self.blocked_until = 0.0

    async def serve(self, messages: Sequence[Message]) -> None:
        """Apply, cover and acknowledge; or give the messages back and say for how long. Raises `QueueError`, which
        leaves the messages to return by themselves."""
        async with self._turn:
            try:
                staged = await self._apply(messages)
            except LeaseHeld as held:
                await self._give_back(messages, held.seconds, held)
                self._lease_is_held = True
            except HeadLost as lost:
                await self._end_reign()
                await self._give_back(messages, 0.0, lost)
            except TenantDeleted as gone:
                log.warning("tenant %s: %d messages are dropped: %s", self.tenant, len(messages), gone)
                await self._queue.ack(messages)
            except BatchFailed as failed:
                log.exception("tenant %s: a batch was rolled back", self.tenant)
                await self._give_back(messages, 0.0, failed)
            except ObjectStoreError as error:
                await self._sit_out(messages, error)
            except UnknownCommand as error:
                log.error("tenant %s waits for a newer writer: %s", self.tenant, error)
                await self._queue.set_visibility(messages, UNKNOWN_BACK_OFF_SECONDS)
            except MemoreeError as error:
                log.error("tenant %s cannot be written: %s", self.tenant, error)
                await self._end_reign()
                await self._sit_out(messages, error)
            except asyncio.CancelledError:
                await self._end_reign()  # whatever was under way is undecided
                raise
            except Exception as error:
                log.exception("tenant %s: a batch failed and is abandoned", self.tenant)
                await self._end_reign()
                await self._give_back(messages, self._fault_back_off(), error)
            else:
                self._faults = 0
                self._outage_since = None
                self.used_at = time.monotonic()
                await self._queue.ack(messages)
                reach("acked")
                await self._remove_parked(staged.parked)
                if _may_have_erased(staged):
                    await self._scrub_queue()

    async def migrate(self) -> None:
        """Hold the tenant's reign: beginning one brings its database to this program's schema. Raises `LeaseHeld`,
        `HeadLost`, `ObjectStoreError`, and `MemoreeError` for damage."""
        async with self._turn:
            await self._held_reign()

    async def _apply(self, messages: Sequence[Message]) -> Staged:
        """When this returns, every command of the messages is decided and covered. Raises `TenantDeleted` when none of
        them is for the tenant as it may be founded anew; nothing of them is left then."""
        reach("received")
        if not self.holds_lease:
            await self._require_not_deleted(messages)
        staged = await stage(self._environment.store, self.tenant, messages)
        reach("staged")
        if staged.commands or staged.refusals:
            await self._held_reign(max((command.history for command in staged.commands), default=0))
        for attempt_id, error in staged.refusals:
            reign = await self._held_reign()
            await reign.refuse(attempt_id, error)
        if any(message.receive_count > 1 for message in messages):
            await self._apply_one_by_one(staged)
        elif staged.commands:
            reign = await self._held_reign()
            await reign.commit(staged.commands, staged.blobs)
        if _may_have_erased(staged):
            await self._rewrite()
        return staged

    async def _require_not_deleted(self, messages: Sequence[Message]) -> None:
        """Before anything is staged, which may put a blob back. Raises `TenantDeleted`."""
        store = self._environment.store
        if await HeadFile(store, layout.tenant_prefix(self.tenant)).read() is not None:
            return
        buried = await tombstone.find(store, self.tenant)
        if buried is None or any(history_in(message) > buried.history for message in messages):
            return
        checks = (ClaimCheck.of(message.body) for message in messages)
        keys = [layout.parked_command_key(check.tenant, check.attempt_id) for check in checks if check is not None]
        await self._remove_parked(keys)
        raise TenantDeleted(f"it was deleted at {buried.deleted_at}")

    async def _rewrite(self) -> None:
        """After an erasure, begin a new epoch. Free pages, the log and Litestream's own files of this one hold what was
        erased, whatever is done to the rows (decision 0019); readers leave their copies for a new prefix. Before the
        messages are acknowledged: should it be broken off, they come again."""
        if await (await self._held_reign()).is_compact():
            return
        await self._end_reign()
        await self._held_reign()
        reach("rewritten")

    async def _scrub_queue(self) -> None:
        """The commands told what to erase, and earlier ones what it was."""
        for seconds in SCRUB_PAUSES_SECONDS:
            try:
                await self._queue.scrub()
            except QueueError as error:
                log.warning("tenant %s: what was acknowledged is still in the queue: %s", self.tenant, error)
                await asyncio.sleep(seconds)
            else:
                return

    async def _remove_parked(self, keys: Sequence[str]) -> None:
        """The commands are acknowledged, nobody reads them again; what is left is removed by lifecycle."""
        for key in keys:
            try:
                await self._environment.store.delete(key)
            except ObjectStoreError as error:
                log.info("tenant %s: %s stays until its lifecycle ends: %s", self.tenant, key, error)

    async def _apply_one_by_one(self, staged: Staged) -> None:
        """A redelivered batch may hold a command that kills the process: each gets a commit and a mark of its own.

        After three tries it is refused for good, so that it blocks nobody."""
        store = self._environment.store
        for command in staged.commands:
            reign = await self._held_reign()
            if reign.has_decided(command.attempt_id):
                await reign.commit([command], staged.blobs)
            elif (mark := await mark_try(store, self.tenant, command.attempt_id)) is None:
                await reign.refuse(command.attempt_id, _POISONED)
            else:
                try:
                    await reign.commit([command], staged.blobs)
                except ObjectStoreError:
                    await store.delete(mark)  # the store was at fault, not the command
                    raise

    async def _held_reign(self, asked_history: int = 0) -> Reign:
        """The reign in force: kept, continued after settling, or newly taken. Raises as `Reign.begin`."""
        if self._reign is not None and self._reign.settled:
            try:
                await self._reign.resume()
            except HeadLost:
                await self._end_reign()
        if self._reign is None:
            self._reign = await Reign.begin(
                self.tenant,
                self._environment,
                unleased=self._unleased,
                reaped_owner=self._reaped_owner,
                asked_history=asked_history,
            )
            self._unleased = False
        return self._reign

    async def settle(self) -> None:
        """Release the lease, if one is held; the epoch may be continued. A reign that cannot is ended."""
        async with self._turn:
            await self._settle()

    async def abandon(self) -> None:
        """Keep nothing, and leave the lease to run out."""
        async with self._turn:
            await self._end_reign()

    async def close(self) -> None:
        """Release the lease and keep nothing."""
        async with self._turn:
            await self._settle()
            await self._end_reign()

    async def _settle(self) -> None:
        if self._reign is None or self._reign.settled:
            return
        try:
            await self._reign.settle()
        except Exception as error:  # an unsettled reign is ended just as safely, its lease runs out by itself
            log.warning("tenant %s: not settled: %r", self.tenant, error)
            await self._end_reign()

    async def _end_reign(self) -> None:
        reign, self._reign = self._reign, None
        if reign is not None:
            self._reaped_owner = reign.head.owner
            await reign.abandon()

    def _fault_back_off(self) -> float:
        seconds = FAULT_BACK_OFF_SECONDS[min(self._faults, len(FAULT_BACK_OFF_SECONDS) - 1)]
        self._faults += 1
        return seconds

    async def _give_back(self, messages: Sequence[Message], seconds: float, why: BaseException) -> None:
        """Undecided messages return to the queue; until then this group is not asked for."""
        log.info("tenant %s: %d messages given back: %s", self.tenant, len(messages), why)
        self.blocked_until = time.monotonic() + seconds
        self._lease_is_held = False
        await self._queue.set_visibility(messages, min(seconds, LEASE_VISIBILITY_SECONDS))

    async def _sit_out(self, messages: Sequence[Message], why: BaseException) -> None:
        """Nothing can be decided now, and nobody knows until when. Every delivery counts: so the messages stay hidden
        until it is tried again."""
        now = time.monotonic()
        self._outage_since = since = now if self._outage_since is None else self._outage_since
        seconds = min(max(OUTAGE_BACK_OFF_SECONDS_MIN, OUTAGE_SHARE * (now - since)), OUTAGE_BACK_OFF_SECONDS_MAX)
        log.info("tenant %s: %d messages wait for %.1f s: %s", self.tenant, len(messages), seconds, why)
        self.blocked_until = now + seconds
        self._lease_is_held = False
        await self._queue.set_visibility(messages, seconds)


def _may_have_erased(staged: Staged) -> bool:
    operations = (command.call.operation for command in staged.commands)
    return any(isinstance(operation, Mutation) and operation.rewrites for operation in operations)


_POISONED = MemoreeError(
    Code.INTERNAL_ERROR, "the write failed every time it was tried and is given up; nothing was stored"
)
