"""The one row of counters that says which state of the tenant this database is."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from memoree.database.connection import one
from memoree.database.quota import FIRST_SCHEMA_VERSION

_READ = "SELECT * FROM meta"
_WRITE = """
    UPDATE meta SET history = :history, epoch = :epoch, batch = :batch, commit_seq = :commit_seq, hlc = :hlc,
        integrity = :integrity"""
_WRITE_WITH_HELD = f"{_WRITE}, held_rows = :held_rows, held_bytes = :held_bytes"


@dataclass(slots=True)
class Meta:
    """`batch` counts group commits, `commit_seq` state-changing mutations, `epoch` names the writer's reign and
    `history` goes up when a restore replaces the past. `hlc` is the newest reading, see `memoree.clock`. `held_rows`
    and `held_bytes` are what a quota bounds (see `memoree.database.quota`); schemas before 6 do not count them."""

    schema_version: int
    history: int
    epoch: int
    batch: int
    commit_seq: int
    hlc: int
    integrity: bytes
    held_rows: int = 0
    held_bytes: int = 0


def read(db: apsw.Connection) -> Meta:
    """Of this program's schema, or of an earlier one: backups and parents of a reign may have that."""
    row = one(db, _READ)
    assert row is not None, "a store has its meta row from birth"
    _id, schema_version, history, epoch, batch, commit_seq, hlc, integrity, _covered, _covered_at, _erasing, *held = row
    return Meta(schema_version, history, epoch, batch, commit_seq, hlc, integrity, *held)


def write(db: apsw.Connection, meta: Meta) -> None:
    bindings = {
        "history": meta.history,
        "epoch": meta.epoch,
        "batch": meta.batch,
        "commit_seq": meta.commit_seq,
        "hlc": meta.hlc,
        "integrity": meta.integrity,
    }
    if meta.schema_version < FIRST_SCHEMA_VERSION:
        db.execute(_WRITE, bindings)
    else:
        db.execute(_WRITE_WITH_HELD, {**bindings, "held_rows": meta.held_rows, "held_bytes": meta.held_bytes})
