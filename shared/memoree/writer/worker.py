"""The writer process: receives batches, hands each to its tenant's actor, keeps them hidden meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from memoree import limits
from memoree.objects import ObjectStoreError
from memoree.objects.selftest import prove_store
from memoree.queue import PATIENT_GROUPS, CommandQueue, Message, QueueError
from memoree.uploads import Uploads
from memoree.writer.environment import WriterEnvironment
from memoree.writer.outdated import migrate_outdated
from memoree.writer.tenant import TenantActor
from memoree.writer.uploads import UploadVerifier, sweep_all

HOUSEKEEPING_SECONDS = 1.0
QUEUE_RETRY_SECONDS = 0.5
LEASE_LOOK_SECONDS = 0.1
"""Between two looks at a lease that messages wait for: hardly any lease that is given up has to run out first."""
BATCHES_IN_HAND_MAX = 2 * limits.TENANTS_HELD_MAX
"""No more is received while so many batches wait for their tenant's turn."""
BACKLOG_LOOK_SECONDS = 15.0
"""Between two looks whether the queue can be rewritten without anybody waiting for it."""
UPLOADS_BACK_OFF_SECONDS = 5.0
"""For uploads received beyond those that may be in hand."""
RELEASE_SECONDS_MIN = 5.0
"""For settling at the end of a function's event, however late that is."""
ACTORS_KEPT_MAX = 2 * limits.TENANTS_HELD_MAX
"""A settled tenant keeps its database open, to be continued, for `LOCAL_COPY_IDLE_SECONDS_MAX`; beyond this many the
longest unused are closed."""

READY = "receiving commands"
"""What the log of a writer says once it does."""

log = logging.getLogger(__name__)


class WriterWorker:
    """`run` until its event is set, then settle every tenant.

    `supervised`: a supervisor proved the store already, and reaps one writer before it starts the next."""

    def __init__(self, environment: WriterEnvironment, queue: CommandQueue, *, supervised: bool = False) -> None:
        self._environment = environment
        self._queue = queue
        self._supervised = supervised
        self._actors: dict[str, TenantActor] = {}
        self._in_hand: dict[asyncio.Task[None], Sequence[Message]] = {}
        self._turns = asyncio.Semaphore(environment.tenants_held_max)
        self._admitted: dict[str, int] = {}
        """How many batches of a tenant have their turn, which may take a lease at any moment."""
        self._admitting = asyncio.Lock()
        self._settling: asyncio.Task[None] | None = None
        self._uploads = Uploads(environment.store, environment.clock, through_service=False)
        self._verifier = UploadVerifier(environment.store, self._uploads, queue)
        self._verifying: dict[asyncio.Task[None], Sequence[Message]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Prove the store, then serve. Raises `CONFIG_ERROR` when the store breaks a promise the fence needs."""
        if not self._supervised:
            await prove_store(self._environment.store)
        log.info(READY)
        housekeeping = asyncio.create_task(self._keep_house())
        sweeping = asyncio.create_task(self._sweep_uploads())
        migrating = asyncio.create_task(migrate_outdated(self._environment.store, self._migrate))
        scrubbing = asyncio.create_task(self._scrub_queue())
        watching = asyncio.create_task(self._watch_leases())
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                if len(self._in_hand) >= BATCHES_IN_HAND_MAX:
                    await asyncio.wait((*self._in_hand, stopping), return_when=asyncio.FIRST_COMPLETED)
                    continue
                receiving = asyncio.create_task(self._receive())
                await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    await asyncio.gather(receiving, return_exceptions=True)
                    break
                await self._dispatch(receiving.result())
        finally:
            for task in (stopping, sweeping, migrating, watching, scrubbing, *self._verifying):
                task.cancel()
            await asyncio.gather(*self._in_hand, *self._verifying, return_exceptions=True)
            housekeeping.cancel()
            settling = [self._settling] if self._settling is not None else []
            loops = (housekeeping, sweeping, migrating, watching, scrubbing)
            await asyncio.gather(*loops, *settling, return_exceptions=True)
            await asyncio.gather(*(actor.close() for actor in self._actors.values()), return_exceptions=True)

    async def serve(self, messages: Sequence[Message], seconds: float) -> None:
        """One delivery in place of `run`, for a function: when this returns, no lease is held. What is undecided after
        `seconds` is given up and not acknowledged, and the reign it belonged to is ended."""
        deadline = time.monotonic() + seconds
        await self._dispatch(messages)
        working = {*self._in_hand, *self._verifying}
        if working:
            _, late = await asyncio.wait(working, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
        await self._release_all(max(RELEASE_SECONDS_MIN, deadline - time.monotonic()))

    async def migrate(self, seconds: float) -> None:
        """What `run` begins with, for a function: migrate what an older program left. Raises `TimeoutError` when that
        takes longer; no lease is held then."""
        try:
            async with asyncio.timeout(seconds):
                await migrate_outdated(self._environment.store, self._migrate)
        finally:
            await self._release_all(RELEASE_SECONDS_MIN)

    async def close(self) -> None:
        """After `serve`: keep nothing that could be continued."""
        await asyncio.gather(*(actor.close() for actor in self._actors.values()), return_exceptions=True)

    async def _release_all(self, seconds: float) -> None:
        """Settle every tenant, so that it may be continued; a reign that does not settle in time is ended."""
        await asyncio.gather(*(self._release(actor, seconds) for actor in self._idle_holders()))
        await self._close_unused()

    async def _release(self, actor: TenantActor, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await actor.settle()
        except TimeoutError:
            log.warning("tenant %s: not settled within %.1f s; its reign is ended", actor.tenant, seconds)
            await actor.abandon()

    async def _receive(self) -> list[Message]:
        now = time.monotonic()
        blocked = [tenant for tenant, actor in self._actors.items() if actor.blocked_until > now]
        wait = min(
            (
                LEASE_LOOK_SECONDS if self._actors[tenant].waits_for_lease else self._actors[tenant].blocked_until - now
                for tenant in blocked
            ),
            default=limits.RECEIVE_WAIT_SECONDS,
        )
        try:
            return await self._queue.receive(
                max_messages=limits.BATCH_COMMANDS_MAX,
                wait_seconds=min(wait, limits.RECEIVE_WAIT_SECONDS),
                visibility_seconds=self._environment.timings.visibility,
                except_groups=blocked,
            )
        except QueueError as error:
            log.warning("the queue does not answer: %s", error)
            await asyncio.sleep(QUEUE_RETRY_SECONDS)
            return []

    async def _dispatch(self, messages: Sequence[Message]) -> None:
        batches: dict[str, list[Message]] = defaultdict(list)
        for message in messages:
            if message.group.startswith(PATIENT_GROUPS):
                await self._take_upload(message)
            else:
                batches[message.group].append(message)
        for tenant, batch in batches.items():
            task = asyncio.create_task(self._serve(tenant, batch))
            self._in_hand[task] = batch
            task.add_done_callback(self._in_hand.pop)

    async def _take_upload(self, message: Message) -> None:
        if len(self._verifying) >= limits.UPLOADS_IN_HAND_MAX:
            await self._set_visibility([message], UPLOADS_BACK_OFF_SECONDS)
            return
        task = asyncio.create_task(self._verify(message))
        self._verifying[task] = [message]
        task.add_done_callback(self._verifying.pop)

    async def _verify(self, message: Message) -> None:
        try:
            await self._verifier.serve(message)
        except QueueError as error:
            log.warning("the queue does not answer; an upload's message will return: %s", error)
        except Exception:
            log.exception("the verification of an upload failed; its message will return")

    async def _serve(self, tenant: str, batch: Sequence[Message]) -> None:
        try:
            async with self._turn_of(tenant) as actor:
                await actor.serve(batch)
        except QueueError as error:
            log.warning("tenant %s: the queue does not answer; its messages will return: %s", tenant, error)
        except Exception:
            log.exception("tenant %s: a batch was given up; its messages will return", tenant)

    async def _migrate(self, tenant: str) -> None:
        async with self._turn_of(tenant) as actor:
            await actor.migrate()

    @asynccontextmanager
    async def _turn_of(self, tenant: str) -> AsyncIterator[TenantActor]:
        """The tenant's actor, which may take a lease meanwhile."""
        async with self._turns:
            self._admitted[tenant] = self._admitted.get(tenant, 0) + 1
            try:
                yield await self._actor_with_room(tenant)
            finally:
                self._admitted[tenant] -= 1
                if not self._admitted[tenant]:
                    del self._admitted[tenant]

    async def _actor_with_room(self, tenant: str) -> TenantActor:
        """The tenant's actor, once there is room for its lease: the longest idle ones are settled for it."""
        async with self._admitting:
            actor = self._actors.get(tenant)
            if actor is None:
                actor = TenantActor(tenant, self._environment, self._queue, unleased=self._supervised)
                self._actors[tenant] = actor
            taken = self._admitted.keys() | {name for name, other in self._actors.items() if other.holds_lease}
            for other in self._idle_holders()[: max(0, len(taken) - self._environment.tenants_held_max)]:
                await other.settle()
            return actor

    async def _keep_house(self) -> None:
        """Once a second: hide messages in hand for longer, settle idle tenants, close those long unused."""
        timings = self._environment.timings
        extended_at = time.monotonic()
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            if time.monotonic() - extended_at >= timings.visibility / 3:
                extended_at = time.monotonic()
                await self._extend_in_hand(timings.visibility)
            if self._settling is None or self._settling.done():
                # Beside this loop: settling waits for the store, and messages in hand must stay hidden meanwhile.
                self._settling = asyncio.create_task(self._settle_idle(timings.settle_after_idle))

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(LEASE_LOOK_SECONDS)
            await asyncio.gather(*(actor.look_at_lease() for actor in self._actors.values() if actor.waits_for_lease))

    async def _scrub_queue(self) -> None:
        """Of what a writer acknowledged and did not live to scrub. Later, where there is a backlog."""
        while True:
            try:
                stats = await self._queue.stats()
                if not stats.waiting + stats.in_flight:
                    return await self._queue.scrub()
            except QueueError as error:
                log.info("the queue is not rewritten yet: %s", error)
            await asyncio.sleep(BACKLOG_LOOK_SECONDS)

    async def _extend_in_hand(self, seconds: float) -> None:
        for messages in [*self._in_hand.values(), *self._verifying.values()]:
            await self._set_visibility(messages, seconds)

    async def _set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        try:
            await self._queue.set_visibility(messages, seconds)
        except QueueError as error:
            log.warning("cannot keep %d messages hidden: %s", len(messages), error)

    async def _sweep_uploads(self) -> None:
        """At once, and then once an hour."""
        environment = self._environment
        while True:
            try:
                await sweep_all(environment.store, self._uploads, environment.clock())
            except ObjectStoreError as error:
                log.warning("expired uploads could not be swept: %s", error)
            except Exception:
                log.exception("expired uploads could not be swept")
            await asyncio.sleep(limits.UPLOAD_SWEEP_SECONDS)

    async def _settle_idle(self, after_seconds: float) -> None:
        deadline = time.monotonic() - after_seconds
        for actor in self._idle_holders():
            if actor.idle_since < deadline:
                await actor.settle()
        await self._close_unused()

    async def _close_unused(self) -> None:
        now = time.monotonic()
        unused = sorted(
            (
                actor
                for actor in self._actors.values()
                if actor.tenant not in self._admitted and not actor.holds_lease and actor.blocked_until <= now
            ),
            key=lambda actor: actor.used_at,
        )
        too_many = len(self._actors) - ACTORS_KEPT_MAX
        for place, actor in enumerate(unused):
            is_stale = now - actor.used_at > limits.LOCAL_COPY_IDLE_SECONDS_MAX
            if (place < too_many or is_stale) and actor.tenant not in self._admitted:
                del self._actors[actor.tenant]
                await actor.close()

    def _idle_holders(self) -> list[TenantActor]:
        """Those that hold a lease and have nothing to do, longest idle first."""
        idle = (actor for actor in self._actors.values() if actor.holds_lease and actor.tenant not in self._admitted)
        return sorted(idle, key=lambda actor: actor.idle_since)
