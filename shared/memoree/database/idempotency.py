"""Idempotency records: the successful outcome of each mutation, by namespaced key (machine protocol §1.7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one
from memoree.database.entry import Entry

_COLUMNS = "row_id, key, operation, fingerprint, commit_seq, result"
_BY_KEY = f"SELECT {_COLUMNS} FROM idempotency WHERE key = ?"  # noqa: S608 - constant columns
_BY_ROW = f"SELECT {_COLUMNS} FROM idempotency WHERE row_id = ?"  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM idempotency ORDER BY row_id"  # noqa: S608
_INSERT = "INSERT INTO idempotency (key, operation, fingerprint, commit_seq, result) VALUES (?, ?, ?, ?, ?)"


class Record(NamedTuple):
    """`result` is the acknowledgement as JSON text, as it was first sent."""

    row_id: int
    key: str
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


def insert(
    db: apsw.Connection, *, key: str, operation: str, fingerprint: bytes, commit_seq: int, result: str
) -> Record:
    db.execute(_INSERT, (key, operation, fingerprint, commit_seq, result))
    return Record(db.last_insert_rowid(), key, operation, fingerprint, commit_seq, result)


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every record, since a repeated request is answered from it."""
    for row in db.execute(_ALL):
        yield entry(Record(*row))


def entry(record: Record) -> Entry:
    content = (record.operation, record.fingerprint.hex(), record.commit_seq, record.result)
    return Entry("idempotency", record.key, "", blake3(orjson.dumps(content)).digest())
