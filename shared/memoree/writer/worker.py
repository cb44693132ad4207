"""The writer process: receives batches, hands each to its tenant's actor, keeps them hidden meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Sequence

from memoree import limits
from memoree.objects.selftest import prove_store
from memoree.queue import CommandQueue, Message, QueueError
from memoree.writer.environment import WriterEnvironment
from memoree.writer.tenant import TenantActor

HOUSEKEEPING_SECONDS = 1.0
QUEUE_RETRY_SECONDS = 0.5

log = logging.getLogger(__name__)


class WriterWorker:
    """`run` until its event is set, then settle every tenant.

    `supervised`: a supervisor proved the store already, and reaps one writer before it starts the next."""

    def __init__(self, environment: WriterEnvironment, queue: CommandQueue, *, supervised: bool = False) -> None:
        self._environment = environment
        self._queue = queue
        self._supervised = supervised
        self._actors: dict[str, TenantActor] = {}
        self._held: dict[str, Sequence[Message]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Prove the store, then serve. Raises `CONFIG_ERROR` when the store breaks a promise the fence needs."""
        if not self._supervised:
            await prove_store(self._environment.store)
        housekeeping = asyncio.create_task(self._keep_house())
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                receiving = asyncio.create_task(self._receive())
                await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    await asyncio.gather(receiving, return_exceptions=True)
                    break
                self._dispatch(receiving.result())
        finally:
            stopping.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            housekeeping.cancel()
            await asyncio.gather(*(actor.close() for actor in self._actors.values()), return_exceptions=True)

    async def _receive(self) -> list[Message]:
        now = time.monotonic()
        blocked = [tenant for tenant, actor in self._actors.items() if actor.blocked_until > now]
        wait = min(
            (self._actors[tenant].blocked_until - now for tenant in blocked), default=limits.RECEIVE_WAIT_SECONDS
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

    def _dispatch(self, messages: Sequence[Message]) -> None:
        batches: dict[str, list[Message]] = defaultdict(list)
        for message in messages:
            batches[message.group].append(message)
        for tenant, batch in batches.items():
            task = asyncio.create_task(self._serve(tenant, batch))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, tenant: str, batch: Sequence[Message]) -> None:
        actor = self._actors.get(tenant)
        if actor is None:
            actor = TenantActor(tenant, self._environment, self._queue, unleased=self._supervised)
            self._actors[tenant] = actor
        self._held[tenant] = batch
        try:
            await actor.serve(batch)
        except QueueError as error:
            log.warning("tenant %s: the queue does not answer; its messages will return: %s", tenant, error)
        finally:
            self._held.pop(tenant, None)

    async def _keep_house(self) -> None:
        """Once a second: hide held messages for longer, settle idle tenants and those beyond the bound."""
        timings = self._environment.timings
        extended_at = time.monotonic()
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            if time.monotonic() - extended_at >= timings.visibility / 3:
                extended_at = time.monotonic()
                await self._extend_held(timings.visibility)
            await self._settle_idle(timings.settle_after_idle)

    async def _extend_held(self, seconds: float) -> None:
        for messages in list(self._held.values()):
            try:
                await self._queue.set_visibility(messages, seconds)
            except QueueError as error:
                log.warning("cannot keep %d messages hidden: %s", len(messages), error)

    async def _settle_idle(self, after_seconds: float) -> None:
        holding = sorted(
            (actor for actor in self._actors.values() if actor.is_idle and actor.idle_since < float("inf")),
            key=lambda actor: actor.idle_since,
        )
        surplus = len(holding) - limits.TENANTS_HELD_MAX
        deadline = time.monotonic() - after_seconds
        for position, actor in enumerate(holding):
            if position < surplus or actor.idle_since < deadline:
                await actor.settle()
