"""The one row of counters that says which state of the tenant this database is."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from memoree.database.connection import one

_READ = "SELECT schema_version, history, epoch, batch, commit_seq, hlc, integrity FROM meta"
_WRITE = """
    UPDATE meta SET history = :history, epoch = :epoch, batch = :batch, commit_seq = :commit_seq, hlc = :hlc,
        integrity = :integrity
"""


@dataclass(slots=True)
class Meta:
    """`batch` counts group commits, `commit_seq` state-changing mutations, `epoch` names the writer's reign and
    `history` goes up when a restore replaces the past. `hlc` is the newest reading, see `memoree.clock`."""

    schema_version: int
    history: int
    epoch: int
    batch: int
    commit_seq: int
    hlc: int
    integrity: bytes


def read(db: apsw.Connection) -> Meta:
    row = one(db, _READ)
    assert row is not None, "a store has its meta row from birth"
    return Meta(*row)


def write(db: apsw.Connection, meta: Meta) -> None:
    db.execute(
        _WRITE,
        {
            "history": meta.history,
            "epoch": meta.epoch,
            "batch": meta.batch,
            "commit_seq": meta.commit_seq,
            "hlc": meta.hlc,
            "integrity": meta.integrity,
        },
    )
