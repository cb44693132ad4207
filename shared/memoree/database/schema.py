"""Numbered migrations, each applied whole or not at all, and the refusal of stores from the future."""

from __future__ import annotations

from importlib import resources

import apsw

from memoree.clock import stored, utc_now
from memoree.database import index, integrity
from memoree.database.connection import scalar
from memoree.errors import Code, MemoreeError, shown

SCHEMA_VERSION = 7
EMPTY_INTEGRITY = bytes(32)
MIGRATION_RETRY_SECONDS = 5.0


def stored_version(db: apsw.Connection) -> int:
    """The schema version of an open database; 0 when it is empty. Raises `INTEGRITY_ERROR` when it is not, but lacks
    the one row that every store has from birth."""
    if scalar(db, "SELECT 1 FROM sqlite_master") is None:
        return 0
    try:
        versions = [version for (version,) in db.execute("SELECT schema_version FROM meta")]
    except apsw.SQLError as error:
        raise _not_a_store(str(error)) from error
    if len(versions) != 1:
        raise _not_a_store(f"its table meta has {len(versions)} rows where a store has one")
    [version] = versions
    if not isinstance(version, int) or version < 1:
        raise _not_a_store(f"its schema version is {shown(version)}")
    return version


def _not_a_store(why: str) -> MemoreeError:
    return MemoreeError(
        Code.INTEGRITY_ERROR,
        f"the database is damaged or none of Memoree's: {why}; keep a copy of it, then put back a sound one",
    )


def check_version(version: int) -> None:
    """Raises `CONFIG_ERROR` for a schema newer than this program knows; nothing has been changed then."""
    if version > SCHEMA_VERSION:
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"the store has schema version {version}, this program knows up to {SCHEMA_VERSION}; upgrade it",
        )


def check_migrated(version: int) -> None:
    """Raises a retryable `TRANSPORT_ERROR` for a schema older than this program's: its statements need what a
    migration adds, and only a writer may migrate."""
    if version < SCHEMA_VERSION:
        raise MemoreeError(
            Code.TRANSPORT_ERROR,
            f"the store has schema version {version} and waits for its writer to migrate it to {SCHEMA_VERSION}; send "
            "the identical request again",
            details={"schema_version": version, "expected_schema_version": SCHEMA_VERSION},
            retry_after_seconds=MIGRATION_RETRY_SECONDS,
        )


def create_or_migrate(db: apsw.Connection, *, version: int = SCHEMA_VERSION) -> None:
    """Bring the database to a version, this program's or an earlier one, in one transaction. Safe to call from several
    processes. Needs memory for the page cache and the longest body, and none for the size of the store. Raises
    `apsw.Error` as it comes; whatever it is, nothing has changed then."""
    check_version(stored_version(db))
    if stored_version(db) >= version:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in range(stored_version(db) + 1, version + 1):
            _apply(db, step)
    except BaseException:
        if db.in_transaction:  # some faults of a disk end it by themselves
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _apply(db: apsw.Connection, version: int) -> None:
    folder = resources.files("memoree.database") / "migrations"
    script = next(entry for entry in folder.iterdir() if entry.name.startswith(f"{version:04}_"))
    db.execute(script.read_text(encoding="utf-8"))
    if version == 1:
        db.execute("INSERT INTO artifact_fts (artifact_fts, rank) VALUES ('secure-delete', 1)")
        db.execute("INSERT INTO claim_fts (claim_fts, rank) VALUES ('secure-delete', 1)")
        db.execute(
            "INSERT INTO meta VALUES (1, ?, 0, 0, 0, 0, 0, ?, 0, ?, 0)",
            (version, EMPTY_INTEGRITY, stored(utc_now())),
        )
    elif version in (2, 5):
        with_new_rows = integrity.with_log if version == 2 else integrity.with_episodes
        counted = with_new_rows(scalar(db, "SELECT integrity FROM meta"), db)
        db.execute("UPDATE meta SET schema_version = ?, integrity = ?", (version, counted))
    else:
        if version == 3:
            index.rebuild(db)
        db.execute("UPDATE meta SET schema_version = ?", (version,))
