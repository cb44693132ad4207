"""Copying a database from one snapshot of it, beside its writers."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import apsw

from memoree.database.connection import open_reader

FILE_MODE = 0o600


def copy_database(source: Path, target: Path) -> None:
    """Write what the newest commit of `source` shows to the new file `target`, compacted and durable. Writers are not
    held up, and memory is that of a page cache. Raises `apsw.Error`, and `OSError` where the file cannot be made."""
    create_private(target).close()  # before SQLite does, for the mode
    with closing(open_reader(source, immutable=False)) as db:
        db.execute("VACUUM INTO ?", (str(target),))
    flush(target)


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
