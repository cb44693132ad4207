"""One group commit: many commands, one transaction, a savepoint each (design §5.2).

This is the same code for every profile. It knows nothing of queues, heads or replication: it turns commands into
rows and says which batch must be covered before their outcomes may be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import apsw
import orjson

from memoree import clock, ids, limits
from memoree.clock import Clock
from memoree.command import Command
from memoree.crashpoints import reach
from memoree.database import attempts, integrity, meta
from memoree.database.attempts import Attempt
from memoree.database.connection import one
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.operations.execute import decide
from memoree.operations.view import BlobPresence, BlobReader, ServiceFacts, Transaction


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
class GroupCommitter:
    """Applies commands to one open database. Not thread-safe: one caller at a time."""

    db: apsw.Connection
    blobs: BlobReader
    facts: ServiceFacts
    clock: Clock = clock.utc_now

    def commit(self, commands: Iterable[Command], presence: BlobPresence) -> Committed:
        """Decide every command that is not decided yet and commit. An exception that is no refusal rolls the
        whole batch back and is raised: nothing was decided then."""
        with self._transaction() as counters:
            decided = [
                attempts.find(self.db, command.attempt_id) or self._decide(command, counters, presence)
                for command in commands
            ]
            if any(attempt.batch == counters.batch for attempt in decided):
                meta.write(self.db, counters)
                self._prune(counters)
            else:
                counters = meta.read(self.db)
        return Committed(counters, decided)

    def refuse(self, command: Command, error: MemoreeError) -> Committed:
        """Decide a command against it, without trying it."""
        with self._transaction() as counters:
            attempt = _refused(command, counters, error, status="refused")
            attempts.insert(self.db, attempt)
            meta.write(self.db, counters)
        return Committed(counters, [attempt])

    @contextmanager
    def _transaction(self) -> Iterator[meta.Meta]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            counters = meta.read(self.db)
            counters.batch += 1
            counters.hlc = clock.next_hlc(counters.hlc, clock.milliseconds(self.clock()))
            yield counters
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def _decide(self, command: Command, counters: meta.Meta, presence: BlobPresence) -> Attempt:
        if (expired := _expired(command, counters)) is not None:
            attempt = _refused(command, counters, expired, status="expired")
        else:
            attempt = self._decide_in_savepoint(command, counters, presence)
        attempts.insert(self.db, attempt)
        return attempt

    def _decide_in_savepoint(self, command: Command, counters: meta.Meta, presence: BlobPresence) -> Attempt:
        tx = Transaction(
            db=self.db,
            blobs=self.blobs,
            facts=self.facts,
            meta=replace(counters),
            now=clock.stored(clock.hlc_instant(counters.hlc)),
            presence=presence,
            sum=integrity.Sum(counters.integrity),
        )
        self.db.execute("SAVEPOINT command")
        reach("applying", command.call.idempotency_key)
        try:
            success = decide(tx, command.call)
        except MemoreeError as error:
            self.db.execute("ROLLBACK TO command")
            self.db.execute("RELEASE command")
            return _refused(command, counters, error, status="refused")
        self.db.execute("RELEASE command")
        counters.commit_seq, counters.hlc = tx.meta.commit_seq, tx.meta.hlc
        counters.integrity = tx.sum.to_bytes()
        return Attempt(
            attempt_id=command.attempt_id,
            status="applied",
            code=None,
            error=None,
            idempotency_row=success.idempotency_row,
            replayed=success.replayed,
            batch=counters.batch,
        )

    def _prune(self, counters: meta.Meta) -> None:
        """Once an hour, forget what was covered an hour ago. The batch before this one is covered: no batch
        starts before the last is."""
        row = one(self.db, "SELECT covered_batch, covered_at FROM meta")
        assert row is not None
        now = clock.hlc_instant(counters.hlc)
        retention = timedelta(seconds=limits.ATTEMPT_BODY_RETENTION_SECONDS)
        if now - clock.from_stored(row[1]) < retention:
            return
        oldest = now - timedelta(seconds=limits.ATTEMPT_RETENTION_SECONDS)
        attempts.prune(
            self.db,
            errors_to_batch=row[0],
            rows_before=AttemptId(ids.new_id("att", clock.milliseconds(oldest))),
        )
        self.db.execute("UPDATE meta SET covered_batch = ?, covered_at = ?", (counters.batch - 1, clock.stored(now)))


def _expired(command: Command, counters: meta.Meta) -> MemoreeError | None:
    """A command of another history, or older than half the blob grace period, is never applied (design §5.2)."""
    age_seconds = clock.hlc_milliseconds(counters.hlc) / 1000 - command.received_at_ms / 1000
    if command.history == counters.history and age_seconds <= limits.COMMAND_AGE_SECONDS_MAX:
        return None
    return MemoreeError(
        Code.TRANSPORT_ERROR,
        "the write waited too long, or the store was restored meanwhile; nothing was stored, send it again",
        details={"reason": "expired"},
        retry_after_seconds=1.0,
    )


def _refused(command: Command, counters: meta.Meta, error: MemoreeError, *, status: attempts.Status) -> Attempt:
    return Attempt(
        attempt_id=command.attempt_id,
        status=status,
        code=error.code.value,
        error=orjson.dumps(error.to_wire()).decode(),
        idempotency_row=None,
        replayed=False,
        batch=counters.batch,
    )
