"""Idempotency records: the successful outcome of each mutation, by namespaced key (machine protocol §1.7)."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from memoree.database.connection import one

_BY_KEY = "SELECT row_id, operation, fingerprint, commit_seq, result FROM idempotency WHERE key = ?"
_BY_ROW = "SELECT row_id, operation, fingerprint, commit_seq, result FROM idempotency WHERE row_id = ?"
_INSERT = "INSERT INTO idempotency (key, operation, fingerprint, commit_seq, result) VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Record:
    """`result` is the acknowledgement as JSON text, as it was first sent."""

    row_id: int
    operation: str
    fingerprint: bytes
    commit_seq: int
    result: str


def find(db: apsw.Connection, key: str) -> Record | None:
    row = one(db, _BY_KEY, (key,))
    return Record(*row) if row else None


def by_row(db: apsw.Connection, row_id: int) -> Record:
    row = one(db, _BY_ROW, (row_id,))
    assert row is not None, "idempotency records never expire"
    return Record(*row)


def insert(db: apsw.Connection, *, key: str, operation: str, fingerprint: bytes, commit_seq: int, result: str) -> int:
    db.execute(_INSERT, (key, operation, fingerprint, commit_seq, result))
    return db.last_insert_rowid()
