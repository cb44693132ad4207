"""Idempotency records: the successful outcome of each mutation, by namespaced key (machine protocol §1.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one
from memoree.database.entry import ERASED, Entry

_COLUMNS = "row_id, key, operation, fingerprint, commit_seq, result"
_BY_KEY = f"SELECT {_COLUMNS} FROM idempotency WHERE key IN (?, ?)"  # noqa: S608 - constant columns
_OF_COMMITS = f"SELECT {_COLUMNS} FROM idempotency WHERE commit_seq IN (SELECT value FROM json_each(?))"  # noqa: S608
_BY_ROW = f"SELECT {_COLUMNS} FROM idempotency WHERE row_id = ?"  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM idempotency ORDER BY row_id"  # noqa: S608
_INSERT = "INSERT INTO idempotency (key, operation, fingerprint, commit_seq, result) VALUES (?, ?, ?, ?, ?)"
_ERASE = "UPDATE idempotency SET key = ?2, fingerprint = ?3, result = ?4 WHERE row_id = ?1"

ERASED_RESULT = '"erased"'
"""In place of an acknowledgement, which is an object."""


class Record(NamedTuple):
    """`result` is the acknowledgement as JSON text, as it was first sent; `ERASED_RESULT` where that was erased."""

    row_id: int
    key: str
    operation: str
    fingerprint: bytes
    commit_seq: int
    result: str


def find(db: apsw.Connection, key: str) -> Record | None:
    row = one(db, _BY_KEY, (key, _hidden(key)))
    return Record(*row) if row else None


def by_row(db: apsw.Connection, row_id: int) -> Record:
    row = one(db, _BY_ROW, (row_id,))
    assert row is not None, "idempotency records never expire"
    return Record(*row)


def of_commits(db: apsw.Connection, commits: Sequence[int]) -> list[Record]:
    """Every record of these commits that still has its acknowledgement. Looks through the whole table."""
    records = (Record(*row) for row in db.execute(_OF_COMMITS, (orjson.dumps(commits).decode(),)))
    return [record for record in records if record.result != ERASED_RESULT]


def erase(db: apsw.Connection, record: Record) -> Record:
    """Keep that the key was used, or a late repeat would store again what was erased. Keys often name what they are
    for, so it is kept as a digest; the fingerprint, a digest of the content itself, is not kept."""
    erased = record._replace(key=_hidden(record.key), fingerprint=bytes(len(record.fingerprint)), result=ERASED_RESULT)
    db.execute(_ERASE, (erased.row_id, erased.key, erased.fingerprint, erased.result))
    return erased


def _hidden(key: str) -> str:
    return f"{ERASED}:{blake3(key.encode()).hexdigest()}"


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
