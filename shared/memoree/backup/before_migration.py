"""The copy of a database that is kept before its schema changes: nothing a migration does can lose what was there
(design §5.5, field faults 51 and 52)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from memoree.backup.database import copy_database, flush, open_copy, remove_database
from memoree.database.connection import open_reader, scalar
from memoree.database.schema import SCHEMA_VERSION
from memoree.errors import Code, MemoreeError
from memoree.paths import MIGRATION_COPY_PREFIX

COPIES_MAX = 100
"""Of one database and one version: a store is migrated again only after somebody put back an older file."""

_META = "SELECT * FROM meta"
_TABLES = """
    SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name
"""

State = tuple[Any, ...]
"""The counters of a database and how many rows each of its tables has."""


def keep_before_migration(database: Path) -> Path:
    """The copy of `database` as it is now: one that is there and sound, or a new one. No file is ever replaced.

    The caller holds the writer's lock. Raises `INTEGRITY_ERROR` when no sound copy can be made, which says that the
    database itself is damaged; `apsw.Error` and `OSError` as they come.
    """
    with closing(open_reader(database, immutable=False)) as db:
        state = _state(db)
    for number in range(COPIES_MAX):
        copy = _copy_path(database, number)
        if copy.exists() or copy.is_symlink():
            if _is_sound(copy, state):
                return copy
            continue  # of another state, or damaged: whose it is and what it is worth is not for a program to judge
        _make(database, copy, state)
        return copy
    raise MemoreeError(Code.CONFIG_ERROR, f"there are {COPIES_MAX} copies like {copy} already; remove some of them")


def remove_copies(database: Path) -> None:
    """For an erasure: whatever was kept of the database before it was migrated, by any version. The caller holds the
    writer's lock."""
    for copy in database.parent.glob(f"{MIGRATION_COPY_PREFIX}*"):
        copy.unlink()
    flush(database.parent)


def _copy_path(database: Path, number: int) -> Path:
    return database.with_name(f"{database.name}.before-schema-{SCHEMA_VERSION}{f'.{number}' if number else ''}")


def _make(database: Path, copy: Path, state: State) -> None:
    partial = copy.with_name(f"{copy.name}.partial")
    remove_database(partial)  # left by a killed process; its name says that it is no copy
    try:
        copy_database(database, partial)
        if not _is_sound(partial, state):
            raise MemoreeError(
                Code.INTEGRITY_ERROR,
                f"no sound copy of {database} can be made, so its schema was not changed; put back a sound copy",
            )
        partial.rename(copy)
    finally:
        remove_database(partial)
    flush(copy.parent)


def _is_sound(copy: Path, state: State) -> bool:
    try:
        with closing(open_copy(copy)) as db:
            return (
                scalar(db, "PRAGMA integrity_check(1)") == "ok"
                and scalar(db, "PRAGMA foreign_key_check") is None
                and _state(db) == state
            )
    except apsw.Error:
        return False


def _state(db: apsw.Connection) -> State:
    tables = [name for (name,) in db.execute(_TABLES)]
    counts = [(name, scalar(db, f'SELECT count(*) FROM "{name}"')) for name in tables]  # noqa: S608 - a table's name
    return (*db.execute(_META).fetchall(), *counts)
