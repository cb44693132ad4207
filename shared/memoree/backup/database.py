"""Copying a database from one snapshot of it, beside its writers."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import apsw

from memoree.database.connection import open_reader

FILE_MODE = 0o600
SIDE_FILE_SUFFIXES = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a database while it is open, and leaves there when it is killed."""


def copy_database(source: Path, target: Path) -> None:
    """Write what the newest commit of `source` shows to the new file `target`, compacted and durable. Writers are not
    held up, and memory is that of a page cache. Raises `apsw.Error`, and `OSError` where the file cannot be made.

    The copy is in WAL mode, without a log: whoever opens it first changes nothing, and may be killed doing it."""
    create_private(target).close()  # before SQLite does, for the mode
    with closing(open_reader(source, immutable=False)) as db:
        db.execute("VACUUM INTO ?", (str(target),))
    with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    flush(target)


def remove_database(path: Path) -> None:
    """A file that `copy_database` made or was killed making, with what SQLite keeps beside it."""
    for suffix in ("", *SIDE_FILE_SUFFIXES):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def create_private(path: Path) -> BinaryIO:
    """A new file that only this user may read. Raises `FileExistsError`."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb")


def open_copy(path: Path) -> apsw.Connection:
    """A finished copy, which nobody writes: it is opened without leaving a file beside it."""
    return open_reader(path, immutable=True)


def flush(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
