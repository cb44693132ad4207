"""The database as SQLite sees it: pages, indexes, inverted indexes, foreign keys, and the schema itself."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.database.schema import create_or_migrate
from memoree.verification.index import INDEXES
from memoree.verification.issue import Issue

SQLITE_FINDINGS_MAX = 100
"""SQLite's own bound for its check, named: a file in ruins has no end of them."""
SOUND = "ok"

LITESTREAM_TABLES = frozenset({"table _litestream_seq", "table _litestream_lock"})
"""What replication keeps in a database of the stack, and in every copy of one."""

_OBJECTS = "SELECT type || ' ' || name, sql FROM sqlite_master"
_CONFIGURATION = "SELECT k, v FROM {}_config WHERE k <> 'version' ORDER BY k"
"""FTS5 raises the version of an index by itself, when it first erases from it; an unknown one it does not read."""


def issues(db: apsw.Connection) -> Iterator[Issue]:
    """The check covers the inverted indexes too: each segment against its own structure and checksum."""
    for (finding,) in db.execute(f"PRAGMA integrity_check({SQLITE_FINDINGS_MAX})"):
        if finding != SOUND:
            yield Issue("database", "sqlite", finding)
    for table, row, parent, _ in db.execute("PRAGMA foreign_key_check"):
        yield Issue("foreign_key", f"{table} {row}", f"names a row of {parent} that does not exist")


def schema_issues(db: apsw.Connection) -> Iterator[Issue]:
    """Every table, index and trigger of a new store must be there, as it is there, and nothing else: without an index
    answers are slow, without a trigger history can be changed, with one more it can be changed unseen (field fault 64).
    The indexes of words must be set up alike: without `secure-delete`, erased words would stay in them."""
    fresh = apsw.Connection(":memory:")
    try:
        create_or_migrate(fresh)
        yield from _other_objects(dict(db.execute(_OBJECTS)), dict(fresh.execute(_OBJECTS)))
        for name in INDEXES:
            statement = _CONFIGURATION.format(name)
            if db.execute(statement).fetchall() != fresh.execute(statement).fetchall():
                yield Issue("schema", f"table {name}", "is not configured as this schema version has it")
    finally:
        fresh.close()


def _other_objects(found: dict[str, str | None], expected: dict[str, str | None]) -> Iterator[Issue]:
    for name in sorted(expected.keys() - found.keys()):
        yield Issue("schema", name, "is missing")
    for name in sorted(found.keys() - expected.keys() - LITESTREAM_TABLES):
        yield Issue("schema", name, "is none of this schema version's")
    for name in sorted(expected.keys() & found.keys()):
        if found[name] != expected[name]:
            yield Issue("schema", name, "is not what this schema version has")
