"""The data directory of the embedded profile: what lies in it, and how its database is opened (design §5.5).

Opening never destroys: a store of a later program is refused as it is, one of an earlier program is copied before it
is migrated, and a new database is made only where nothing says that there was one.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

import apsw

from memoree.database.connection import open_reader, open_writer, roll_back
from memoree.database.schema import SCHEMA_VERSION, check_version, create_or_migrate, stored_version
from memoree.errors import Code, MemoreeError
from memoree.paths import MIGRATION_COPY_PREFIX

DATABASE_NAME = "memoree.sqlite3"
OBJECTS_NAME = "objects"
INGEST_QUEUE_NAME = "ingest.sqlite3"
LOCK_NAME = "writer.lock"
BORN = b"born\n"
"""What the lock file says once there is a database; it is empty before, so any content says it."""

log = logging.getLogger(__name__)


def has_store(data_dir: Path) -> bool:
    """Whether the directory holds a store, or what is left of one. Raises `OSError` for a path that cannot be a
    directory."""
    return _size(data_dir / DATABASE_NAME) is not None or _sign_of_a_store(data_dir) is not None


def open_database(data_dir: Path, lock_file: int) -> apsw.Connection:
    """The writer's connection to the directory's store, made or migrated where it must be.

    The caller holds the writer's lock, a `flock` on `lock_file`. Raises `CONFIG_ERROR` for a store of a later program,
    `INTEGRITY_ERROR` for one whose database is gone or lacks its counters; `apsw.Error` and `OSError` as they come.
    """
    path = data_dir / DATABASE_NAME
    size = _size(path)
    version = _version_at_rest(path) if size else 0
    check_version(version)
    if version == 0:
        _check_new(data_dir, empty=not size)
    if size is None:
        # Before SQLite does, for the mode. Never a file that is there: closing it would drop SQLite's locks.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if 0 < version < SCHEMA_VERSION:
        from memoree.backup.before_migration import keep_before_migration

        copy = keep_before_migration(path)
        log.warning("migrating %s from schema %d to %d; %s is kept", path, version, SCHEMA_VERSION, copy)
    db = open_writer(path, replicated=False)
    try:
        create_or_migrate(db)
        _mark_born(lock_file)
    except BaseException:
        db.close()
        raise
    return db


def _version_at_rest(path: Path) -> int:
    """Read-only, so that a store of a later program is refused without a single byte of it changed. Only what a killed
    process left half written is taken back first: nothing can be read before that."""
    try:
        return _version_read_only(path)
    except apsw.ReadOnlyError:
        roll_back(path)
        return _version_read_only(path)


def _version_read_only(path: Path) -> int:
    with closing(open_reader(path, immutable=False)) as db:
        return stored_version(db)


def _check_new(data_dir: Path, *, empty: bool) -> None:
    """A database without tables is a new one, unless something beside it shows that it had some: then its content is
    lost, and an empty memory would hide that."""
    sign = _sign_of_a_store(data_dir)
    if sign is None and empty:
        # A log is begun only after the first page is on the disk. SQLite would remove it at the sight of no page.
        log_file = data_dir / f"{DATABASE_NAME}-wal"
        sign = log_file if _size(log_file) is not None else None
    if sign is not None:
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"the database {data_dir / DATABASE_NAME} is missing or empty, although {sign.name} shows that the "
            "directory held a store; put back a copy of it",
        )


def _sign_of_a_store(data_dir: Path) -> Path | None:
    """Something that only a store leaves, other than its database: tools that copy directories skip locks, people
    remove what they do not know."""
    if _size(data_dir / LOCK_NAME):
        return data_dir / LOCK_NAME
    for copy in data_dir.glob(f"{MIGRATION_COPY_PREFIX}*"):
        return copy
    for directory, _, names in os.walk(data_dir / OBJECTS_NAME):
        if names:
            return Path(directory, names[0])
    return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _mark_born(lock_file: int) -> None:
    """From now on a missing database is damage, and never taken for a new store."""
    if os.pread(lock_file, len(BORN), 0) != BORN:
        os.pwrite(lock_file, BORN, 0)
        os.fsync(lock_file)
