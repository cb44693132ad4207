"""Rewriting a database after an erasure, so that no page of it holds what the rows no longer do.

`secure_delete` overwrites what is removed where it stands. When SQLite moves cells within a page or to another one, it
leaves copies in the space between (measured: 23 of 43 bytes of an erased word, 3.54.1), and only a rewriting of the
whole file is sure to drop those. The file remembers, in its `user_version`, how many erasures it was rewritten after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from memoree.database import erasures
from memoree.database.connection import scalar


def is_compact(db: apsw.Connection) -> bool:
    return bool(scalar(db, "PRAGMA user_version") == erasures.count(db))


def compact(db: apsw.Connection) -> None:
    """Rewrite the database unless nothing was erased since the last time, and empty its log. Nobody else may have it
    open for writing; while somebody reads an earlier state, raises `apsw.BusyError` after the connection's timeout, and
    may be called again."""
    if not is_compact(db):
        with _temporary_file(db):
            db.execute("VACUUM")
        db.execute(f"PRAGMA user_version = {erasures.count(db)}")
    [(busy, _, _)] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        raise apsw.BusyError("an earlier state is being read; the log cannot be emptied yet")


@contextmanager
def _temporary_file(db: apsw.Connection) -> Iterator[None]:
    """The copy that SQLite makes on the way needs as much room as the database, which memory may not have."""
    db.execute("PRAGMA temp_store = FILE")
    try:
        yield
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
