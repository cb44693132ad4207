"""How often a message was tried in vain: counted in the store, so that one that kills the process is counted too.

What the queue counts are deliveries, and a worker that dies gives back hundreds of messages that did nothing wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from memoree import limits
from memoree.objects import ObjectStore, ObjectStoreError, PreconditionFailed
from memoree.queue import QueueError
from memoree.replication import layout

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.2, 15.0
LAST_SECONDS_MAX = 1.0
"""For what a cancelled task still has to do."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Tries:
    """Of one message of one tenant. A first try costs nothing; only once one has failed, or a worker may have died of
    it (`suspect`), each leaves its mark in the store before it begins. Every method but `interrupted` waits for as long
    as the store does not answer."""

    def __init__(self, store: ObjectStore, tenant: str, message_id: str, *, suspect: bool) -> None:
        self._store = store
        self._tenant = tenant
        self._message_id = message_id
        self._marked = suspect
        self._number = 1
        self._open = False
        """Whether the mark of `_number` stands for a try that has not ended."""

    async def begin(self) -> int | None:
        """Which try now begins; `None` when the message has had them all."""
        if not self._marked:
            return 1
        beginning = asyncio.create_task(self._begin())
        try:
            return await asyncio.shield(beginning)
        finally:
            await _within(LAST_SECONDS_MAX, beginning)  # a mark that is half made could not be taken back

    async def failed(self) -> None:
        """Counts the try that began."""
        counted, self._open, self._marked = self._open, False, True
        if not counted:
            await insisting(self._mark)

    async def take_back(self) -> None:
        """Does not count the try that began: the message was not at fault, or is out of reach of another's fault."""
        if self._open:
            await self._unmark(self._number)
            self._open = False

    async def interrupted(self) -> None:
        """As `take_back`, for a task that is cancelled: nobody waits long for it, or cancels this."""
        await _within(LAST_SECONDS_MAX, asyncio.create_task(self.take_back()))

    async def forget(self) -> None:
        """The message is decided."""
        if self._marked:
            for number in range(self._number, 0, -1):
                await self._unmark(number)
            self._open = False

    async def _begin(self) -> int | None:
        number = await insisting(self._mark)
        self._number, self._open = number or limits.INGEST_TRIES_MAX, number is not None
        return number

    async def _mark(self) -> int | None:
        for number in range(1, limits.INGEST_TRIES_MAX + 1):
            try:
                await self._store.put(self._key(number), b"", if_absent=True)
            except PreconditionFailed:
                continue
            return number
        return None

    async def _unmark(self, number: int) -> None:
        await insisting(lambda: self._store.delete(self._key(number)))

    def _key(self, number: int) -> str:
        return layout.ingest_try_key(self._tenant, self._message_id, number)


async def insisting(work: Callable[[], Awaitable[Result]]) -> Result:
    """What must be done before anything else can be, as often as it takes."""
    pause = RETRY_SECONDS_MIN
    while True:
        try:
            return await work()
        except (ObjectStoreError, QueueError) as error:
            log.warning("the store or the queue does not answer: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, RETRY_SECONDS_MAX)


async def _within(seconds: float, task: asyncio.Task[object]) -> None:
    """Returns when the task has ended, or was ended because it took too long."""
    await asyncio.wait((task,), timeout=seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
