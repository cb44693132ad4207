"""The checkpoint of a backup: the database of one snapshot in a file of its own, and the proof that it is that."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from memoree.backup.database import create_private, flush, open_copy
from memoree.database import integrity, meta
from memoree.database.connection import scalar
from memoree.database.meta import Meta
from memoree.errors import Code, MemoreeError

_OK = "ok"


def size_of(db: apsw.Connection) -> int:
    """Bytes of the database before it is compacted."""
    return int(scalar(db, "PRAGMA page_count") * scalar(db, "PRAGMA page_size"))


def take(db: apsw.Connection, path: Path) -> None:
    """Write what the snapshot `db` shows to the new file `path`, compacted and durable, in the memory of a page cache.
    Raises `apsw.Error`, `OSError`.

    The file has a rollback journal and not a write-ahead log: any SQLite opens it, also where it may not write.
    """
    create_private(path).close()  # before SQLite does, for the mode
    db.execute("VACUUM INTO ?", (str(path),))
    flush(path)


def prove(path: Path, snapshot: Meta) -> None:
    """That the copy is whole, and the state whose counters are given: everything in it adds up to the integrity sum
    that the writer kept. Raises `INTEGRITY_ERROR`."""
    try:
        with closing(open_copy(path)) as db:
            if (found := meta.read(db)) != snapshot:
                raise unsound(f"the copy is at {found}, the snapshot at {snapshot}")
            added = integrity.recount(db)
            if (total := added.to_bytes()) != snapshot.integrity:
                raise unsound(f"its tables add up to {total.hex()}, it says {snapshot.integrity.hex()}")
            held, told = (added.held_rows, added.held_bytes), (snapshot.held_rows, snapshot.held_bytes)
            if held != told:
                raise unsound(f"its tables hold {held} rows and bytes, it says {told}")
            if (finding := scalar(db, "PRAGMA quick_check(1)")) != _OK:
                raise unsound(str(finding))
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise unsound(str(error)) from error


def unsound(what: str) -> MemoreeError:
    return MemoreeError(
        Code.INTEGRITY_ERROR,
        f"no backup was made, the database is not whole: {what}; `memoree verify` tells everything",
    )
