"""One group commit: many commands, one transaction, each of them applied whole or not at all (design §5.2).

This is the same code for every profile. It knows nothing of queues, heads or replication: it turns commands into
rows and says which batch must be covered before their outcomes may be told.

A savepoint per command is the sure way and a slow one: FTS5 writes its pending postings at every savepoint, so that
each command makes an index segment of its own, to be merged and replicated. Most refusals come before the first change
and have nothing to undo. So a batch is decided without savepoints first; should a command be refused halfway, the
batch is rolled back and decided again with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import apsw
import orjson

from memoree import clock, ids, limits
from memoree.clock import Clock
from memoree.command import Command
from memoree.crashpoints import reach
from memoree.database import attempts, integrity, meta, quota
from memoree.database.attempts import Attempt
from memoree.database.connection import one, scalar
from memoree.database.quota import NONE, Quota
from memoree.database.schema import check_version
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.operations.execute import decide
from memoree.operations.view import BlobPresence, BlobReader, ServiceFacts, Transaction

_LAST_INSTANT = "SELECT created_at FROM events ORDER BY commit_seq DESC LIMIT 1"


@dataclass(frozen=True, slots=True)
class Committed:
    """A finished group commit: the counters after it, and the attempts it holds, new and repeated ones."""

    meta: meta.Meta
    attempts: Sequence[Attempt]

    @property
    def batch_to_cover(self) -> int:
        """The batch head must cover before any of these outcomes may be acknowledged."""
        return max(attempt.batch for attempt in self.attempts)


@dataclass(slots=True)
class _Batch:
    """The batch being decided: its counters, which commands advance, its one instant in stored form, and what the
    tenant may hold.

    `clock_ms` is what the clock really said, for ages: after a clock that was ahead is set right, `now` stands still
    until it is caught up with."""

    counters: meta.Meta
    now: str
    clock_ms: int
    allowed: Quota


class _RefusedHalfway(Exception):
    """A command was refused after it had changed something, and there is no savepoint to go back to."""


@dataclass(slots=True)
class GroupCommitter:
    """Applies commands to one open database. Not thread-safe: one caller at a time."""

    db: apsw.Connection
    blobs: BlobReader
    facts: ServiceFacts
    clock: Clock = clock.utc_now
    quota_default: Quota = NONE

    def commit(self, commands: Sequence[Command], presence: BlobPresence) -> Committed:
        """Decide every command that is not decided yet and commit. An exception that is no refusal rolls the
        whole batch back and is raised: nothing was decided then."""
        try:
            return self._commit(commands, presence, savepoints=False)
        except _RefusedHalfway:
            return self._commit(commands, presence, savepoints=True)

    def _commit(self, commands: Sequence[Command], presence: BlobPresence, *, savepoints: bool) -> Committed:
        with self._transaction() as batch:
            decided = [
                attempts.find(self.db, command.attempt_id)
                or self._decide(command, batch, presence, savepoint=savepoints)
                for command in commands
            ]
            counters = self._finish(batch, decided)
        return Committed(counters, decided)

    def refuse(self, attempt_id: AttemptId, error: MemoreeError) -> Committed:
        """Decide an attempt against it without trying it, unless it is decided already."""
        with self._transaction() as batch:
            attempt = attempts.find(self.db, attempt_id)
            if attempt is None:
                attempt = _refused(attempt_id, batch.counters, error, status="refused")
                attempts.insert(self.db, attempt)
            counters = self._finish(batch, [attempt])
        return Committed(counters, [attempt])

    def _finish(self, batch: _Batch, decided: Sequence[Attempt]) -> meta.Meta:
        """Count the batch, unless everything in it was decided before; the counters that hold from now on."""
        if all(attempt.batch != batch.counters.batch for attempt in decided):
            return meta.read(self.db)
        meta.write(self.db, batch.counters)
        self._prune(batch)
        return batch.counters

    @contextmanager
    def _transaction(self) -> Iterator[_Batch]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            counters = meta.read(self.db)
            check_version(counters.schema_version)  # a newer program may have migrated the store meanwhile
            reading = self.clock()
            now = instant_after(self.db, reading, counters.hlc)
            counters.batch += 1
            counters.hlc = clock.next_hlc(counters.hlc, clock.milliseconds(clock.from_stored(now)))
            yield _Batch(counters, now, clock.milliseconds(reading), quota.read(self.db).over(self.quota_default))
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def _decide(self, command: Command, batch: _Batch, presence: BlobPresence, *, savepoint: bool) -> Attempt:
        if (expired := _expired(command, batch)) is not None:
            attempt = _refused(command.attempt_id, batch.counters, expired, status="expired")
        else:
            attempt = self._try(command, batch, presence, savepoint=savepoint)
        attempts.insert(self.db, attempt)
        return attempt

    def _try(self, command: Command, batch: _Batch, presence: BlobPresence, *, savepoint: bool) -> Attempt:
        counters = batch.counters
        tx = Transaction(
            db=self.db,
            blobs=self.blobs,
            facts=self.facts,
            meta=replace(counters),
            now=batch.now,
            presence=presence,
            sum=integrity.Sum.of(counters),
            quota_default=self.quota_default,
            allowed=batch.allowed,
        )
        try:
            with self._undone_when_refused(savepoint=savepoint):
                reach("applying", command.call.idempotency_key)
                success = decide(tx, command.call)
        except MemoreeError as error:
            return _refused(command.attempt_id, counters, error, status="refused")
        counters.commit_seq, counters.hlc = tx.meta.commit_seq, tx.meta.hlc
        tx.sum.keep_in(counters)
        batch.allowed = tx.allowed
        return Attempt(
            attempt_id=command.attempt_id,
            status="applied",
            code=None,
            error=None,
            idempotency_row=success.idempotency_row,
            replayed=success.replayed,
            batch=counters.batch,
        )

    @contextmanager
    def _undone_when_refused(self, *, savepoint: bool) -> Iterator[None]:
        """A refusal leaves nothing behind. Raises `_RefusedHalfway` when only a savepoint could have done that."""
        changes_before = self.db.total_changes()
        if savepoint:
            self.db.execute("SAVEPOINT command")
        try:
            yield
        except MemoreeError:
            if savepoint:
                self.db.execute("ROLLBACK TO command")
            elif self.db.total_changes() != changes_before:
                raise _RefusedHalfway from None
            raise
        finally:
            if savepoint and self.db.in_transaction:
                self.db.execute("RELEASE command")

    def _prune(self, batch: _Batch) -> None:
        """Once an hour, forget what was covered an hour ago. The batch before this one is covered: no batch
        starts before the last is."""
        row = one(self.db, "SELECT covered_batch, covered_at FROM meta")
        assert row is not None
        now = clock.from_stored(batch.now)
        retention = timedelta(seconds=limits.ATTEMPT_BODY_RETENTION_SECONDS)
        if now - clock.from_stored(row[1]) < retention:
            return
        oldest = now - timedelta(seconds=limits.ATTEMPT_RETENTION_SECONDS)
        attempts.prune(
            self.db,
            errors_to_batch=row[0],
            rows_before=AttemptId(ids.new_id("att", clock.milliseconds(oldest))),
        )
        self.db.execute("UPDATE meta SET covered_batch = ?, covered_at = ?", (batch.counters.batch - 1, batch.now))


def instant_after(db: apsw.Connection, reading: datetime, hlc: int) -> str:
    """The clock's reading, or the last instant of this tenant when the clock stepped back behind it, in stored form.
    The hybrid clock alone would not do: it counts milliseconds, the clock microseconds."""
    last: str = scalar(db, _LAST_INSTANT) or ""
    return max(clock.stored(reading), clock.stored(clock.hlc_instant(hlc)), last)


def _expired(command: Command, batch: _Batch) -> MemoreeError | None:
    """A command of another history, or older than half the blob grace period, is never applied (design §5.2)."""
    age_seconds = (batch.clock_ms - command.received_at_ms) / 1000
    if command.history == batch.counters.history and age_seconds <= limits.COMMAND_AGE_SECONDS_MAX:
        return None
    return MemoreeError(
        Code.TRANSPORT_ERROR,
        "the write waited too long, or the store was restored meanwhile; nothing was stored, send it again",
        details={"reason": "expired"},
        retry_after_seconds=1.0,
    )


def _refused(attempt_id: AttemptId, counters: meta.Meta, error: MemoreeError, *, status: attempts.Status) -> Attempt:
    return Attempt(
        attempt_id=attempt_id,
        status=status,
        code=error.code.value,
        error=orjson.dumps(error.to_wire()).decode(),
        idempotency_row=None,
        replayed=False,
        batch=counters.batch,
    )
