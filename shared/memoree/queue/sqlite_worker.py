"""The thread that owns a SQLite queue's connection.

Whatever waits when the thread comes round shares one transaction, so that many senders pay for one fsync. Only sends
wait for the disk: a delivery or an acknowledgement that a power cut takes back is a redelivery, which is allowed for
anyway, and the next send makes them durable with itself. A receive
that finds nothing stays with the thread, which tries again when it is rung, and at every poll for what nobody rings
for: a visibility timeout that ends, a process that died between its commit and its ring.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from memoree.clock import Clock
from memoree.queue import Message, QueueError
from memoree.queue.sqlite_store import deliver, has_deliverable, open_database, set_visible_at
from memoree.queue.wakeup import Wakeup

POLL_SECONDS = 0.020
PENDING_MAX = 4096
"""Calls waiting for the thread; more are refused, so that a stuck disk shows as errors and not as memory."""

JOBS_PER_COMMIT_MAX = 500

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class Job(Generic[Result]):
    """A function of the connection and the time now, and the future of what it returns. `durable`: what it writes
    must be on disk before it is answered."""

    run: Callable[[apsw.Connection, float], Result]
    writes: bool
    durable: bool = False
    future: Future[Result] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Receive:
    """A receive that waits until `deadline` on the monotonic clock."""

    max_messages: int
    visibility_seconds: float
    except_groups: Collection[str]
    deadline: float
    future: Future[list[Message]] = field(default_factory=Future)


class SqliteWorker:
    """`submit` may be called from any thread. Every failure reaches a future as `QueueError`; none ends the thread."""

    def __init__(self, path: Path, clock: Clock, receive_count_max: int) -> None:
        self._path = path
        self._clock = clock
        self._receive_count_max = receive_count_max
        self._lock = threading.Lock()
        self._pending: list[Job[Any] | Receive] = []
        self._closing = False
        self._wakeup: Wakeup | None = None
        self._stopped: Future[None] = Future()
        self._stopped.set_running_or_notify_cancel()  # whoever stops waiting for the end must not cancel it
        # Only the thread touches what follows.
        self._waiting: list[Receive] = []
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def submit(self, request: Job[Any] | Receive) -> None:
        """Hand over to the thread, which starts with the first call. Raises `QueueError` when closed or overloaded."""
        with self._lock:
            if self._closing:
                raise QueueError("the queue is closed")
            if len(self._pending) >= PENDING_MAX:
                raise QueueError(f"{PENDING_MAX} calls are waiting for the queue's disk already")
            wakeup = self._started()
            self._pending.append(request)
            wakeup.ring()

    def close(self) -> Future[None]:
        """Let the thread finish what it was given, then end; waiting receives fail. The future says when."""
        with self._lock:
            if not self._closing:
                self._closing = True
                if self._wakeup is None:
                    self._stopped.set_result(None)
                else:
                    self._wakeup.ring()
        return self._stopped

    def _started(self) -> Wakeup:
        if self._wakeup is None:
            try:
                wakeup = Wakeup(self._path.with_name(f"{self._path.name}-wake"))
                name = f"queue {self._path.name}"
                threading.Thread(target=self._run, args=(wakeup,), name=name, daemon=True).start()
            except (OSError, RuntimeError) as error:  # out of descriptors, or of threads
                raise QueueError(f"{self._path}: the queue cannot start: {error}") from error
            self._wakeup = wakeup
        return self._wakeup

    def _run(self, wakeup: Wakeup) -> None:
        while (requests := self._next_requests(wakeup)) is not None:
            self._serve(wakeup, requests)
        for receive in self._waiting:
            _fail(receive.future, QueueError("the queue is closed"))
        self._drop_connection()
        wakeup.close()
        self._stopped.set_result(None)

    def _next_requests(self, wakeup: Wakeup) -> list[Job[Any] | Receive] | None:
        """What to do now, perhaps nothing but the waiting receives; `None` when closed and all is done."""
        if not self._pending and not self._closing:
            wakeup.wait(self._patience_seconds())
        with self._lock:
            requests = self._pending[:JOBS_PER_COMMIT_MAX]
            del self._pending[:JOBS_PER_COMMIT_MAX]
            return None if self._closing and not requests else requests

    def _patience_seconds(self) -> float | None:
        if not self._waiting:
            return None
        nearest = min(receive.deadline for receive in self._waiting)
        return max(0.0, min(POLL_SECONDS, nearest - time.monotonic()))

    def _serve(self, wakeup: Wakeup, requests: list[Job[Any] | Receive]) -> None:
        jobs = [r for r in requests if isinstance(r, Job) and r.future.set_running_or_notify_cancel()]
        arrived = [r for r in requests if isinstance(r, Receive)]
        self._waiting = [r for r in self._waiting + arrived if not r.future.cancelled()]
        try:
            if arrived:
                wakeup.listen()
            self._run_jobs(wakeup, jobs)
        except Exception as error:  # a bug too must reach the callers, and must not end the thread
            failure = _queue_error(self._path, error)
            for job in jobs:
                _fail(job.future, failure)
            for receive in self._waiting:
                _fail(receive.future, failure)
            self._waiting = []
            if not isinstance(error, apsw.BusyError):
                self._drop_connection()
        self._dismiss_overdue()

    def _run_jobs(self, wakeup: Wakeup, jobs: list[Job[Any]]) -> None:
        connection = self._opened()
        now = self._clock().timestamp()
        for job in jobs:
            if not job.writes:
                job.future.set_result(job.run(connection, now))
        writes = [job for job in jobs if job.writes]
        if writes or any(has_deliverable(connection, r.except_groups, now) for r in self._waiting):
            self._commit(connection, writes, now)
            if writes:
                wakeup.ring_others()

    def _commit(self, connection: apsw.Connection, writes: list[Job[Any]], now: float) -> None:
        """Run the writes, then the waiting receives, in one transaction; answer only once it is as durable as the
        writes ask for."""
        with _transaction(connection, durable=any(job.durable for job in writes)):
            results = [job.run(connection, now) for job in writes]
            deliveries = [(receive, self._deliver(connection, receive, now)) for receive in self._waiting]
        for job, result in zip(writes, results, strict=True):
            job.future.set_result(result)
        served = [(receive, messages) for receive, messages in deliveries if messages]
        self._waiting = [receive for receive, messages in deliveries if not messages]
        unwanted: list[Message] = []
        for receive, messages in served:
            if receive.future.set_running_or_notify_cancel():
                receive.future.set_result(messages)
            else:
                unwanted += messages
        if unwanted:
            with _transaction(connection, durable=False):
                set_visible_at(connection, [message.receipt for message in unwanted], now)

    def _deliver(self, connection: apsw.Connection, receive: Receive, now: float) -> list[Message]:
        return deliver(
            connection,
            max_messages=receive.max_messages,
            visibility_seconds=receive.visibility_seconds,
            except_groups=receive.except_groups,
            receive_count_max=self._receive_count_max,
            now=now,
        )

    def _dismiss_overdue(self) -> None:
        now = time.monotonic()
        overdue = [receive for receive in self._waiting if receive.deadline <= now]
        self._waiting = [receive for receive in self._waiting if receive.deadline > now]
        for receive in overdue:
            if receive.future.set_running_or_notify_cancel():
                receive.future.set_result([])

    def _opened(self) -> apsw.Connection:
        """The connection, opened when there is none. A file that was removed or replaced under it is an error once:
        what it held is gone, and further commits would go where no other process looks."""
        if self._connection is None:
            self._connection = open_database(self._path)
            self._identity = _file_identity(self._path)
        elif _file_identity(self._path) != self._identity:
            raise QueueError(f"{self._path} was removed or replaced while it was in use")
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(apsw.Error):
                connection.close(True)


@contextlib.contextmanager
def _transaction(connection: apsw.Connection, *, durable: bool) -> Iterator[None]:
    # Not cached: SQLite carries some pragmas out when it compiles them, and never again for a prepared statement.
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}", can_cache=False)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some failures have ended it already
            connection.execute("ROLLBACK")
        raise


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _queue_error(path: Path, error: Exception) -> QueueError:
    if isinstance(error, QueueError):
        return error
    failure = QueueError(f"{path}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _fail(future: Future[Any], error: QueueError) -> None:
    """Fail a future unless it has its answer, or nobody waits for it any more."""
    if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
        future.set_exception(error)
