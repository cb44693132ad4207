"""Connections to a tenant's database (apsw), with the pragmas every one of them needs.

`secure_delete` and FTS5 `secure-delete` are always on: without them erased text stays in free pages (design §8).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

BUSY_TIMEOUT_MS = 10_000
WRITER_CACHE_KIB = 16 * 1024
READER_CACHE_KIB = 8 * 1024
"""Of each connection. Files are read, not mapped: every connection's mapping would count as memory of its own, while
the kernel's cache holds the pages once."""
STATEMENT_CACHE_SIZE = 200


def open_writer(path: Path, *, replicated: bool) -> apsw.Connection:
    """Read-write, WAL. Replicated databases leave checkpoints to Litestream and durability to the head
    compare-and-swap; others checkpoint by themselves and fsync every commit."""
    db = _opened(str(path))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'NORMAL' if replicated else 'FULL'}")
    if replicated:
        db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = ON")
    db.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    db.execute("PRAGMA temp_store = MEMORY")
    return db


def open_reader(path: Path, *, immutable: bool) -> apsw.Connection:
    """Read-only. `immutable` is for replica copies, which no one writes while a connection has them open."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    db = _opened(uri, flags)
    db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    db.execute("PRAGMA temp_store = MEMORY")
    return db


def _opened(filename: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
    """With plans that do not depend on bound values: SQLite would prepare every join anew for each of them."""
    db = apsw.Connection(filename, flags=flags, statementcachesize=STATEMENT_CACHE_SIZE)
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return db


def roll_back(path: Path) -> None:
    """Take back the transaction that a killed process left in a rollback journal, which no read-only connection can.
    What was committed stays as it is, byte by byte."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.execute("SELECT 1 FROM sqlite_master").fetchall()
    finally:
        db.close()


def one(db: apsw.Connection, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> tuple[Any, ...] | None:
    """The first row of a query, or `None`."""
    return next(iter(db.execute(sql, bindings)), None)


def scalar(db: apsw.Connection, sql: str, bindings: Sequence[Any] | dict[str, Any] = ()) -> Any:
    """The first column of the first row, or `None`."""
    row = one(db, sql, bindings)
    return row[0] if row is not None else None
