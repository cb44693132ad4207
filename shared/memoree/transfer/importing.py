"""Reading an archive back: a new database beside the old ones, and the objects it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import apsw

from memoree import clock
from memoree.backup.database import open_copy
from memoree.database import index, integrity, meta
from memoree.database.connection import open_writer
from memoree.database.schema import SCHEMA_VERSION, create_or_migrate
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError, invalid
from memoree.objects.audit import BlobAudit
from memoree.objects.blobs import blob_key
from memoree.replication import layout
from memoree.transfer.archive import ArchiveReader, BlobMember, ErasureMember, Header, TablePart
from memoree.transfer.tables import exported_tables, table_named
from memoree.verification.store import verify

FIRST_SCHEMA_VERSION = 3
"""Exports of earlier ones were never written."""

PutObject = Callable[[str, int, Iterator[bytes]], None]
"""Key, size and the bytes, in a thread."""


@dataclass(frozen=True, slots=True)
class Imported:
    commit_seq: int
    rows: int
    blobs: int


def read_archive(file: BinaryIO, database: Path, tenant: str, put: PutObject) -> Imported:
    """Build the database in the new file `database` and hand every other object to `put`. Raises `INVALID_REQUEST` for
    what is no whole export; what was written stays then, for the caller to remove."""
    archive = ArchiveReader(file)
    header = archive.header
    if not FIRST_SCHEMA_VERSION <= header.schema_version <= SCHEMA_VERSION:
        invalid(f"the export has schema version {header.schema_version}, this program reads up to {SCHEMA_VERSION}")
    rows: Counter[str] = Counter()
    blobs = erasures = 0
    with closing(open_writer(database, replicated=False)) as db:
        create_or_migrate(db, version=header.schema_version)
        db.execute("BEGIN IMMEDIATE")
        db.execute("PRAGMA defer_foreign_keys = ON")
        for member in archive.members():
            match member:
                case TablePart(name, found):
                    rows[name] += table_named(db, name).insert(db, found)
                case BlobMember(digest, size, pieces):
                    put(blob_key(tenant, digest), size, pieces)
                    blobs += 1
                case ErasureMember(body):
                    erasure = Erasure.from_bytes(body)
                    put(layout.erasure_key(tenant, erasure.erasure_id), len(body), iter([body]))
                    erasures += 1
        _check_complete(db, header, rows, blobs, erasures)
        _set_counters(db, header)
        _commit(db)
        create_or_migrate(db)
        with db:  # no migration from a schema that was exported does
            index.rebuild(db)
            _set_held(db)
    return Imported(header.commit_seq, sum(rows.values()), blobs)


def _commit(db: apsw.Connection) -> None:
    try:
        db.execute("COMMIT")
    except apsw.ConstraintError as error:
        raise MemoreeError(Code.INVALID_REQUEST, f"rows of the export name rows that are not in it: {error}") from error


def _check_complete(db: apsw.Connection, header: Header, rows: Counter[str], blobs: int, erasures: int) -> None:
    found = {table.name: rows[table.name] for table in exported_tables(db)}
    if (found, blobs, erasures) != (dict(header.tables), header.blobs, header.erasures):
        invalid(
            f"this is no whole export of a store: it announces {sum(header.tables.values())} rows, {header.blobs} "
            f"blobs and {header.erasures} erasures, and holds {sum(found.values())}, {blobs} and {erasures}"
        )


def _set_counters(db: apsw.Connection, header: Header) -> None:
    counters = meta.read(db)
    counters.batch, counters.commit_seq, counters.hlc = 1, header.commit_seq, header.hlc
    counters.integrity = bytes.fromhex(header.integrity)
    meta.write(db, counters)
    db.execute("UPDATE meta SET covered_batch = 0, covered_at = ?", (clock.stored(clock.utc_now()),))


def _set_held(db: apsw.Connection) -> None:
    counters, found = meta.read(db), integrity.recount(db)
    counters.held_rows, counters.held_bytes = found.held_rows, found.held_bytes
    meta.write(db, counters)


def check(database: Path, audit: BlobAudit) -> None:
    """Prove a database that was read, before anybody sees it. Raises `INTEGRITY_ERROR`."""
    with closing(open_copy(database)) as db:
        report = verify(db, audit)
    if not report.ok:
        raise MemoreeError(
            Code.INTEGRITY_ERROR, f"the export does not agree with itself: {'; '.join(report.lines()[:3])}"
        )
