"""Reads that go through the whole store, as `verify` and `backup.create` do, kept apart from all others.

They have threads of their own, so that ordinary reads, and writes whose outcome is read, never wait for them; each
tenant has one at a time, a process few; and one that nobody waits for any more ends early where it can.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import apsw

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.operations.view import MadeBackup, Upkeep, View

if TYPE_CHECKING:
    from memoree.objects.audit import BlobAudit, BlobFault, BlobRef

RETRY_AFTER_SECONDS = 5.0

Result = TypeVar("Result")


class Stop:
    """Asked for from the event loop, heeded in a thread."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def heed(self) -> None:
        """Raises the refusal that nobody will see, once it was asked for."""
        if self._asked.is_set():
            raise _stopped()

    @contextmanager
    def watching(self, view: View) -> Iterator[View]:
        """The view, whose statements and blobs come to an end once it was asked for. A copy of the store is finished
        all the same: who lost the reply finds it at the destination (machine protocol §4.37)."""
        assert view.upkeep is not None, "only services answer reads"
        view.db.set_progress_handler(self._asked.is_set, limits.LONG_READ_STEPS_PER_LOOK)
        try:
            yield replace(view, upkeep=_StoppableUpkeep(view.upkeep, self))
        except apsw.InterruptError as error:
            raise _stopped() from error
        finally:
            view.db.set_progress_handler(None)


class LongReads:
    """Of one process. Its methods are for one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(limits.LONG_READS_AT_ONCE_MAX, thread_name_prefix="long-read")
        self._under_way: dict[str, Stop] = {}

    async def run(self, tenant: str, begin: Callable[[Executor, Stop], Awaitable[Result]]) -> Result:
        """What `begin` starts in the executor; when the caller is cancelled it is stopped. Its place is free when it
        has ended, not before. Raises `TRANSPORT_ERROR`, retryable, when there is no place."""
        self._refuse_beyond_bounds(tenant)
        stop = Stop()
        running = asyncio.ensure_future(begin(self._threads, stop))
        self._under_way[tenant] = stop
        running.add_done_callback(lambda _: self._under_way.pop(tenant))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.ask()
            raise

    def _refuse_beyond_bounds(self, tenant: str) -> None:
        if tenant in self._under_way:
            why = "another read through the whole store is under way for this tenant"
        elif len(self._under_way) >= limits.LONG_READS_AT_ONCE_MAX:
            why = "too many reads through whole stores are under way"
        else:
            return
        raise MemoreeError(
            Code.TRANSPORT_ERROR, f"{why}; send it again in a while", retry_after_seconds=RETRY_AFTER_SECONDS
        )

    async def close(self) -> None:
        """Stop what is under way and wait for its end, which may need the event loop."""
        for stop in self._under_way.values():
            stop.ask()
        await asyncio.to_thread(self._threads.shutdown)


@dataclass(frozen=True, slots=True)
class _StoppableUpkeep:
    upkeep: Upkeep
    stop: Stop

    def blob_audit(self) -> BlobAudit:
        return _StoppableAudit(self.upkeep.blob_audit(), self.stop)

    def back_up(self, destination: str, *, commit_seq_min: int) -> MadeBackup:
        return self.upkeep.back_up(destination, commit_seq_min=commit_seq_min)


@dataclass(frozen=True, slots=True)
class _StoppableAudit:
    audit: BlobAudit
    stop: Stop

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        return self.audit.faults(self._until_stopped(referenced))

    def _until_stopped(self, referenced: Iterator[BlobRef]) -> Iterator[BlobRef]:
        for ref in referenced:
            self.stop.heed()
            yield ref


def _stopped() -> MemoreeError:
    return MemoreeError(Code.TRANSPORT_ERROR, "the read was stopped, since nobody waited for its answer")
