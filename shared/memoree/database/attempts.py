"""Attempts: what became of each submission of a command, decided once and never overwritten (design §5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import apsw

from memoree.database.connection import one
from memoree.ids import AttemptId

Status = Literal["applied", "refused", "expired"]

_COLUMNS = "attempt_id, status, code, error, idempotency_row, replayed, batch"
_FIND = f"SELECT {_COLUMNS} FROM attempts WHERE attempt_id = ?"  # noqa: S608 - constant columns
_INSERT = f"INSERT INTO attempts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_ERASE_ERRORS = """
    UPDATE attempts SET error = json_object('code', code, 'message', ?, 'details', NULL)
    WHERE error IS NOT NULL AND status <> 'expired'
"""
_PRUNE_ERRORS = "UPDATE attempts SET error = NULL WHERE error IS NOT NULL AND batch <= ?"
_PRUNE_ROWS = "DELETE FROM attempts WHERE attempt_id < ?"


@dataclass(frozen=True, slots=True)
class Attempt:
    """`error` is the wire form of a refusal, until it is pruned; an applied attempt points at its record."""

    attempt_id: AttemptId
    status: Status
    code: str | None
    error: str | None
    idempotency_row: int | None
    replayed: bool
    batch: int


def find(db: apsw.Connection, attempt_id: AttemptId) -> Attempt | None:
    row = one(db, _FIND, (attempt_id,))
    return _attempt(row) if row else None


def insert(db: apsw.Connection, attempt: Attempt) -> None:
    db.execute(
        _INSERT,
        (
            attempt.attempt_id,
            attempt.status,
            attempt.code,
            attempt.error,
            attempt.idempotency_row,
            int(attempt.replayed),
            attempt.batch,
        ),
    )


def erase_errors(db: apsw.Connection, message: str) -> int:
    """Put another message in place of every refusal that is still kept; returns how many there were. Which of them
    quote an erased text cannot be told."""
    db.execute(_ERASE_ERRORS, (message,))
    return db.changes()


def prune(db: apsw.Connection, *, errors_to_batch: int, rows_before: AttemptId) -> None:
    """Forget refusal texts up to a batch, and whole rows of attempts made before an instant (ULID order)."""
    db.execute(_PRUNE_ERRORS, (errors_to_batch,))
    db.execute(_PRUNE_ROWS, (rows_before,))


def _attempt(row: tuple[object, ...]) -> Attempt:
    attempt_id, status, code, error, idempotency_row, replayed, batch = row
    return Attempt(attempt_id, status, code, error, idempotency_row, bool(replayed), batch)  # type: ignore[arg-type]
