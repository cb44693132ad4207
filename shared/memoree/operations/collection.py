"""Condemning blobs and releasing them: how the writer authorises the garbage collector (design §8).

While a blob is condemned no command may cite it, so a DELETE that was sent meanwhile harms nobody, whenever the store
executes it. Neither events nor idempotency records name the blobs: a short text could be guessed from its digest.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field

from memoree import clock, limits
from memoree.database import condemned
from memoree.database.condemned import Condemned
from memoree.envelope import WireModel
from memoree.operations.call import Call
from memoree.operations.registry import INTERNAL, mutation
from memoree.operations.view import Applied, Transaction

Digests = Annotated[
    list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]], Field(min_length=1, max_length=limits.COLLECT_BLOBS_MAX)
]


class CondemnInput(WireModel):
    digests: Digests


class ReleaseInput(WireModel):
    """`commit_seq` is the commit of `blobs.condemn` whose own blobs are given up before any DELETE of them was sent.
    `unlinked` says that the blobs are files which nobody deletes but under the writer's lock."""

    digests: Digests
    commit_seq: Annotated[int, Field(ge=1)] | None = None
    unlinked: bool = False


class CondemnedBlobs(BaseModel):
    """How many are condemned from `condemned_at` on, in stored form; the other ones were left as they are."""

    blobs: int
    condemned_at: str


class ReleasedBlobs(BaseModel):
    blobs: int


@mutation(condemned.CONDEMN, position=INTERNAL, input=CondemnInput, result=CondemnedBlobs, scope="admin")
def condemn(tx: Transaction, call: Call[CondemnInput]) -> Applied:
    """From now on the blobs may be deleted: those that no revision cites and no earlier run condemned. What an erasure
    condemned is condemned anew, for deletes that are sent from now on."""
    condemnable = (_condemnable(tx, bytes.fromhex(digest)) for digest in dict.fromkeys(call.input.digests))
    taken = [rows for rows in condemnable if rows is not None]
    record = CondemnedBlobs(blobs=len(taken), condemned_at=tx.now)
    if not taken:
        return Applied(record, tx.meta.commit_seq, created=False)
    for present, row in taken:
        if present is None:
            condemned.insert(tx.db, row)
            tx.sum.add(condemned.entry(row))
        else:
            condemned.update(tx.db, row)
            tx.sum.replace(condemned.entry(present), condemned.entry(row))
    return Applied(record, _recorded(tx, condemned.CONDEMN, record.blobs))


@mutation(condemned.RELEASE, position=INTERNAL, input=ReleaseInput, result=ReleasedBlobs, scope="admin")
def release(tx: Transaction, call: Call[ReleaseInput]) -> Applied:
    """The blobs may be cited again: those for which no DELETE can be on its way. The others stay condemned."""
    found = (condemned.find(tx.db, bytes.fromhex(digest)) for digest in dict.fromkeys(call.input.digests))
    released = [row for row in found if row is not None and _releasable(tx, row, call.input)]
    record = ReleasedBlobs(blobs=len(released))
    if not released:
        return Applied(record, tx.meta.commit_seq, created=False)
    for row in released:
        condemned.delete(tx.db, row.digest)
        tx.sum.remove(condemned.entry(row))
    return Applied(record, _recorded(tx, condemned.RELEASE, record.blobs))


def _condemnable(tx: Transaction, digest: bytes) -> tuple[Condemned | None, Condemned] | None:
    """The row as it is and as it is to be; `None` for a blob that must stay, or is another run's."""
    if condemned.is_cited(tx.db, digest):
        return None
    present = condemned.find(tx.db, digest)
    if present is None:
        return None, Condemned(digest, tx.now, tx.commit_seq)
    if condemned.is_erased(tx.db, present):
        return present, present._replace(condemned_at=tx.now)
    return None


def _releasable(tx: Transaction, row: Condemned, release: ReleaseInput) -> bool:
    """An erasure's commit is never a run's own: another run may have sent deletes of its blobs."""
    if release.unlinked:
        return True
    if row.commit_seq == release.commit_seq:
        return not condemned.is_erased(tx.db, row)
    age = clock.from_stored(tx.now) - clock.from_stored(row.condemned_at)
    return age >= timedelta(seconds=limits.COLLECT_RELEASE_SECONDS_MIN)


def _recorded(tx: Transaction, operation: str, blobs: int) -> int:
    return tx.record_event(operation, "collection", tx.new_id("col"), payload={"blobs": blobs})
