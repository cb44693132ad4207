"""What a database of the past has to become before anybody may read it or write to it (design §8).

Its counters go on from what the tenant had come to, so that no token, replica, replay or queued command of the present
that it replaces is ever taken for one of its own. What was erased since is erased again, and what may be deleted at any
moment stays condemned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import apsw

from memoree import clock
from memoree.clock import Clock
from memoree.database import condemned, integrity, meta
from memoree.database.condemned import NO_COMMIT, Condemned
from memoree.database.events import RESTORED
from memoree.database.meta import Meta
from memoree.erasures import Erasure
from memoree.operations.erasure import erase_again
from memoree.operations.view import ServiceFacts, Transaction
from memoree.writer.group_commit import instant_after
from memoree.writer.staging import ProvedBlobs


class Present(Protocol):
    """How far a tenant has come: its head, or the counters of its database."""

    @property
    def history(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def commit_seq(self) -> int: ...

    @property
    def hlc(self) -> int: ...


def condemned_now(db: apsw.Connection) -> list[Condemned]:
    """What the present has condemned, as the restored database is to have it: its commits are none of that one's."""
    rows = list(condemned.rows(db))
    return [row if condemned.is_erased(db, row) else row._replace(commit_seq=NO_COMMIT) for row in rows]


def is_alive(present: Present) -> bool:
    """Whether anything was ever decided, which a restore would undo."""
    return present.batch > 0 or present.commit_seq > 0


@dataclass(frozen=True, slots=True)
class Adoption:
    """`asked` says what was restored, as the event tells it; `condemned` is from `condemned_now`, without what the
    database needs; `erasures` are all that were ever recorded."""

    asked: Mapping[str, Any]
    condemned: Sequence[Condemned]
    erasures: Sequence[Erasure]
    facts: ServiceFacts
    clock: Clock


class Adopted(NamedTuple):
    """`replaced_commit_seq` is where the present had come to, `erased` how many artifacts and claims were erased
    again."""

    counters: Meta
    replaced_commit_seq: int
    erased: int


def adopt(db: apsw.Connection, present: Present, adoption: Adoption) -> Adopted:
    """Make the database, which is of this program's schema, the successor of `present`, in one transaction that its
    event `store.restored` tells of. Returns its counters."""
    db.execute("BEGIN IMMEDIATE")
    try:
        tx = _transaction(db, present, adoption)
        past = meta.read(db)
        _condemn(tx, adoption.condemned)
        tx.record_event(
            RESTORED,
            "store",
            tx.new_id("rst"),
            payload={"from": present.commit_seq, "to": past.commit_seq, **adoption.asked},
        )
        erased = erase_again(tx, adoption.erasures)
        counters = replace(tx.meta)
        tx.sum.keep_in(counters)
        meta.write(db, counters)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return Adopted(counters, present.commit_seq, erased)


class _NoBlobs:
    def read(self, digest: bytes, size: int) -> bytes:
        raise AssertionError("whatever becomes of rows here, it needs no blob")


def _transaction(db: apsw.Connection, present: Present, adoption: Adoption) -> Transaction:
    past = meta.read(db)
    hlc = max(present.hlc, past.hlc)
    now = instant_after(db, adoption.clock(), hlc)
    counters = replace(
        past,
        history=present.history + 1 if is_alive(present) else present.history,
        batch=max(present.batch, past.batch) + 1,  # another tenant's database may have counted further
        commit_seq=max(present.commit_seq, past.commit_seq),
        hlc=clock.next_hlc(hlc, clock.milliseconds(clock.from_stored(now))),
    )
    return Transaction(
        db=db,
        blobs=_NoBlobs(),
        facts=adoption.facts,
        meta=counters,
        now=now,
        presence=ProvedBlobs(),
        sum=integrity.Sum.of(past),
    )


def _condemn(tx: Transaction, present: Sequence[Condemned]) -> None:
    """What was condemned in the past was released since, or is condemned still."""
    for row in list(condemned.rows(tx.db)):
        condemned.delete(tx.db, row.digest)
        tx.sum.remove(condemned.entry(row))
    for row in present:
        carried = row if row.commit_seq == NO_COMMIT else row._replace(commit_seq=tx.commit_seq)
        condemned.insert(tx.db, carried)
        tx.sum.add(condemned.entry(carried))
