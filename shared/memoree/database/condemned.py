"""Blobs that are about to be deleted: a command that cites one is refused meanwhile (design §8).

A row names the commit that condemned its digest first, whose event tells why: the garbage collector, or an erasure. The
collector may condemn anew what an erasure did, so that its deletes are in time; the commit stays the erasure's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import apsw
from blake3 import blake3

from memoree import clock, limits
from memoree.database.connection import one, scalar
from memoree.database.entry import Entry

if TYPE_CHECKING:
    from memoree.operations.view import Transaction

CONDEMN = "blobs.condemn"
"""The collector's operation; whatever else condemns is an erasure."""
RELEASE = "blobs.release"
RELEASE_SECONDS_MIN = 60.0
"""A run of the collector may come at any moment, once a digest may be released."""
NO_COMMIT = 0
"""In place of the collector's commit, where a restore has replaced the history that had it."""

_COLUMNS = "digest, condemned_at, commit_seq"
_FIND = f"SELECT {_COLUMNS} FROM condemned_blobs WHERE digest = ?"  # noqa: S608 - constant columns, here and below
_ALL = f"SELECT {_COLUMNS} FROM condemned_blobs ORDER BY digest"  # noqa: S608
_COUNT = "SELECT count(*) FROM condemned_blobs"
_INSERT = "INSERT INTO condemned_blobs VALUES (?, ?, ?)"
_UPDATE = "UPDATE condemned_blobs SET condemned_at = ?, commit_seq = ? WHERE digest = ?"
_DELETE = "DELETE FROM condemned_blobs WHERE digest = ?"
_OPERATION = "SELECT operation FROM events WHERE commit_seq = ?"
_IS_CITED = "SELECT 1 FROM artifact_revisions WHERE blob_hash = ? AND body IS NULL"
_CITED = """
    SELECT DISTINCT blob_hash FROM artifact_revisions WHERE body IS NULL AND blob_hash BETWEEN ? AND ?
    ORDER BY blob_hash
"""


class Condemned(NamedTuple):
    """`condemned_at` is in stored form, by the clock of the writer."""

    digest: bytes
    condemned_at: str
    commit_seq: int


def find(db: apsw.Connection, digest: bytes) -> Condemned | None:
    row = one(db, _FIND, (digest,))
    return Condemned(*row) if row else None


def rows(db: apsw.Connection) -> Iterator[Condemned]:
    """All of them, in ascending order of digests."""
    for row in db.execute(_ALL):
        yield Condemned(*row)


def count(db: apsw.Connection) -> int:
    return int(scalar(db, _COUNT))


def is_erased(db: apsw.Connection, row: Condemned) -> bool:
    """Whether an erasure condemned it: then nothing but an unfinished backup may keep it."""
    return row.commit_seq != NO_COMMIT and bool(scalar(db, _OPERATION, (row.commit_seq,)) != CONDEMN)


def seconds_to_release(row: Condemned, now: str) -> float:
    """When it is worth trying again to cite it, at the earliest; `now` is in stored form."""
    released_at = clock.from_stored(row.condemned_at) + timedelta(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)
    return max(RELEASE_SECONDS_MIN, (released_at - clock.from_stored(now)).total_seconds())


def insert(db: apsw.Connection, row: Condemned) -> None:
    db.execute(_INSERT, row)


def update(db: apsw.Connection, row: Condemned) -> None:
    db.execute(_UPDATE, (row.condemned_at, row.commit_seq, row.digest))


def delete(db: apsw.Connection, digest: bytes) -> None:
    db.execute(_DELETE, (digest,))


def condemn_erased(tx: Transaction, digest: bytes) -> None:
    """For an erasure, in its commit: condemn a blob that nothing cites any more. It may be condemned already."""
    row = Condemned(digest, tx.now, tx.commit_seq)
    if (present := find(tx.db, digest)) is None:
        insert(tx.db, row)
        tx.sum.add(entry(row))
    else:
        update(tx.db, row)
        tx.sum.replace(entry(present), entry(row))


def is_cited(db: apsw.Connection, digest: bytes) -> bool:
    """Whether a revision needs the blob."""
    return scalar(db, _IS_CITED, (digest,)) is not None


def cited_between(db: apsw.Connection, first: bytes, last: bytes) -> Iterator[bytes]:
    """The blobs that revisions need, of digests `first` to `last`, both included, in ascending order."""
    for (digest,) in db.execute(_CITED, (first, last)):
        yield digest


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every digest that is condemned now."""
    return map(entry, rows(db))


def entry(row: Condemned) -> Entry:
    content = b"\0".join((row.digest, row.condemned_at.encode()))
    return Entry("condemned_blobs", row.digest.hex(), str(row.commit_seq), blake3(content).digest())
