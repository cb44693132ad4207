"""The command queue in a SQLite file of its own, shared by every process that opens it.

A send is durable (WAL, `synchronous=FULL`) when it returns. All work happens in one thread per `SqliteQueue`
(`sqlite_worker`), over the statements of `sqlite_store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from memoree.clock import Clock, utc_now
from memoree.queue import RECEIVE_COUNT_MAX, DeadLetter, Message, OutgoingMessage, QueueError, QueueStats
from memoree.queue.checks import check_outgoing
from memoree.queue.sqlite_store import (
    bury,
    dead_letters,
    enqueue,
    find_dead,
    remove,
    remove_dead,
    scrub,
    set_visible_at,
    stats,
    waiting_in,
)
from memoree.queue.sqlite_worker import Job, Receive, SqliteWorker

RECEIVE_MESSAGES_MAX = 1000
DEAD_LETTERS_PAGE = 100

Result = TypeVar("Result")


class SqliteQueue:
    """`CommandQueue` and `DeadLetterBox` over the file `path`, which is made when first used.

    A damaged, foreign or unwritable file is a `QueueError` of the call that meets it; later calls open the file anew.
    Groups take turns: one that was just served waits behind the others. A message received `receive_count_max`
    times without an `ack` becomes a dead letter at the next receive of its group.
    """

    def __init__(self, path: Path, *, clock: Clock = utc_now, receive_count_max: int = RECEIVE_COUNT_MAX) -> None:
        self._path = path.absolute()
        self._worker = SqliteWorker(self._path, clock, receive_count_max)

    async def send(self, message: OutgoingMessage) -> str:
        check_outgoing(message)
        return (await self._write(partial(_enqueue, [message]), durable=True))[0]

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> Sequence[str | QueueError]:
        refusals = [_refusal(message) for message in messages]
        sound = [message for message, refusal in zip(messages, refusals, strict=True) if refusal is None]
        try:
            ids = iter(await self._write(partial(_enqueue, sound), durable=True) if sound else [])
        except QueueError as error:
            return [refusal or error for refusal in refusals]
        return [refusal or next(ids) for refusal in refusals]

    async def receive(
        self,
        *,
        max_messages: int,
        wait_seconds: float,
        visibility_seconds: float,
        except_groups: Collection[str] = (),
    ) -> list[Message]:
        assert 1 <= max_messages <= RECEIVE_MESSAGES_MAX, max_messages
        receive = Receive(
            max_messages=max_messages,
            visibility_seconds=visibility_seconds,
            except_groups=except_groups,
            deadline=time.monotonic() + wait_seconds,
        )
        self._worker.submit(receive)
        try:
            return await asyncio.wrap_future(receive.future)
        except asyncio.CancelledError:
            if not receive.future.cancel():  # the thread is delivering, or has delivered, to nobody
                receive.future.add_done_callback(self._give_back)
            raise

    async def ack(self, messages: Sequence[Message]) -> None:
        receipts = [message.receipt for message in messages]
        if receipts:
            await self._write(lambda connection, _now: remove(connection, receipts))

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        receipts = [message.receipt for message in messages]
        if receipts:
            await self._write(lambda connection, now: set_visible_at(connection, receipts, now + seconds))

    async def stats(self) -> QueueStats:
        return await self._read(stats)

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        return await self._read(lambda connection, _now: waiting_in(connection, group, most))

    async def scrub(self) -> None:
        """Raises `QueueError` also while others keep the file busy."""
        await asyncio.to_thread(scrub, self._path)

    async def dead_letters(self) -> AsyncGenerator[DeadLetter]:
        after = 0
        while page := await self._read(partial(_dead_letters, after)):
            for letter in page:
                yield letter
            after = page[-1].sequence

    async def find_dead(self, message_ids: Collection[str]) -> list[DeadLetter]:
        return await self._read(lambda connection, _now: find_dead(connection, message_ids))

    async def bury(self, message: Message, *, body: str, reason: str) -> None:
        await self._write(lambda connection, now: bury(connection, message, body, reason, now), durable=True)

    async def remove_dead(self, message_ids: Collection[str]) -> int:
        return await self._write(lambda connection, _now: remove_dead(connection, message_ids), durable=True)

    async def close(self) -> None:
        """Finish the calls under way; a receive that still waits fails with `QueueError`."""
        await asyncio.wrap_future(self._worker.close())

    async def _write(self, run: Callable[[apsw.Connection, float], Result], *, durable: bool = False) -> Result:
        return await self._run(Job(run, writes=True, durable=durable))

    async def _read(self, run: Callable[[apsw.Connection, float], Result]) -> Result:
        return await self._run(Job(run, writes=False))

    async def _run(self, job: Job[Result]) -> Result:
        self._worker.submit(job)
        return await asyncio.wrap_future(job.future)

    def _give_back(self, delivered: Future[list[Message]]) -> None:
        if delivered.cancelled() or delivered.exception() is not None or not delivered.result():
            return
        receipts = [message.receipt for message in delivered.result()]
        release: Job[Any] = Job(lambda connection, now: set_visible_at(connection, receipts, now), writes=True)
        with contextlib.suppress(QueueError):  # closed meanwhile: their visibility timeout gives them back
            self._worker.submit(release)


def _enqueue(messages: Sequence[OutgoingMessage], connection: apsw.Connection, now: float) -> list[str]:
    return enqueue(connection, messages, now)


def _dead_letters(after_sequence: int, connection: apsw.Connection, _now: float) -> list[DeadLetter]:
    return dead_letters(connection, after_sequence, DEAD_LETTERS_PAGE)


def _refusal(message: OutgoingMessage) -> QueueError | None:
    try:
        check_outgoing(message)
    except QueueError as error:
        return error
    return None
