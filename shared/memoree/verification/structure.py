"""The database as SQLite sees it: pages, indexes, inverted indexes, foreign keys, and the schema itself."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.database.schema import create_or_migrate
from memoree.verification.issue import Issue

SQLITE_FINDINGS_MAX = 100
"""SQLite's own bound for its check, named: a file in ruins has no end of them."""
SOUND = "ok"

_OBJECTS = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL"


def issues(db: apsw.Connection) -> Iterator[Issue]:
    """The check covers the inverted indexes too: each segment against its own structure and checksum."""
    for (finding,) in db.execute(f"PRAGMA integrity_check({SQLITE_FINDINGS_MAX})"):
        if finding != SOUND:
            yield Issue("database", "sqlite", finding)
    for table, row, parent, _ in db.execute("PRAGMA foreign_key_check"):
        yield Issue("foreign_key", f"{table} {row}", f"names a row of {parent} that does not exist")


def schema_issues(db: apsw.Connection) -> Iterator[Issue]:
    """Every table, index and trigger of a new store must be there, as it is there: without an index answers are slow,
    without a trigger history can be changed (field fault 64). What Litestream keeps beside them is its own."""
    found = dict(db.execute(_OBJECTS))
    fresh = apsw.Connection(":memory:")
    try:
        create_or_migrate(fresh)
        for name, sql in fresh.execute(_OBJECTS):
            if name not in found:
                yield Issue("schema", name, "is missing")
            elif found[name] != sql:
                yield Issue("schema", name, "is not what this schema version has")
    finally:
        fresh.close()
