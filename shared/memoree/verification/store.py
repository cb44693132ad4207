"""Every check of a store, on one snapshot, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import apsw

from memoree import limits
from memoree.database import integrity
from memoree.database.connection import one, scalar
from memoree.objects.audit import BlobAudit, BlobRef
from memoree.verification import (
    bodies,
    bundles,
    contradictions,
    counters,
    derivations,
    episodes,
    erasures,
    history,
    index,
    outcomes,
    postings,
    revisions,
    sources,
    structure,
)
from memoree.verification.issue import Issue

_REFERENCED = """
    SELECT blob_hash, max(size_bytes) FROM artifact_revisions WHERE body IS NULL
    GROUP BY blob_hash ORDER BY blob_hash
"""
_STORED_SUM = "SELECT integrity, held_rows, held_bytes FROM meta"
_COUNTS = {
    "artifact_revisions": "SELECT count(*) FROM artifact_revisions",
    "claim_revisions": "SELECT count(*) FROM claim_revisions",
    "blobs": "SELECT count(DISTINCT blob_hash) FROM artifact_revisions WHERE body IS NULL",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked and what was found. `issues` holds the first `VERIFY_ISSUES_MAX`, `issues_left_out` counts the
    rest."""

    artifact_revisions: int
    claim_revisions: int
    blobs: int
    issues: list[Issue] = field(default_factory=list)
    issues_left_out: int = 0

    @property
    def ok(self) -> bool:
        return not self.issues

    def lines(self) -> list[str]:
        """The issues as text, and how many more there are."""
        more = [f"and {self.issues_left_out} more"] if self.issues_left_out else []
        return [*map(str, self.issues), *more]


def verify(db: apsw.Connection, blobs: BlobAudit) -> Report:
    """Check everything. `db` must show one state throughout: inside a transaction, or over a file that nobody writes.

    Damage is reported and never raised; raises `StoreUnavailable` when the blobs cannot be asked for.
    """
    found = _issues(db, blobs)
    listed = list(islice(found, limits.VERIFY_ISSUES_MAX))
    return Report(
        **{name: _counted(db, statement) for name, statement in _COUNTS.items()},
        issues=listed,
        issues_left_out=sum(1 for _ in found),
    )


def referenced_blobs(db: apsw.Connection) -> Iterator[BlobRef]:
    """Every blob that a revision needs, in ascending order of digests."""
    for digest, size in db.execute(_REFERENCED):
        yield BlobRef(digest, size)


def _issues(db: apsw.Connection, blobs: BlobAudit) -> Iterator[Issue]:
    checks = {subject: check(db) for subject, check in _CHECKS.items()}
    checks["blobs"] = (Issue("blob", fault.name, fault.detail) for fault in blobs.faults(referenced_blobs(db)))
    for subject, found in checks.items():
        try:
            yield from found
        except (apsw.CorruptError, apsw.SQLError, ValueError, TypeError) as error:
            yield Issue("database", subject, f"damage cut the check of it short: {error}")


def _sum_issues(db: apsw.Connection) -> Iterator[Issue]:
    stored, held_rows, held_bytes = one(db, _STORED_SUM) or (None, None, None)
    found = integrity.recount(db)
    if stored != found.to_bytes():
        told = stored.hex() if stored else "nothing"
        yield Issue("integrity_sum", "store", f"the tables add up to {found.to_bytes().hex()}, the store says {told}")
    for what, told, counted in (("rows", held_rows, found.held_rows), ("bytes", held_bytes, found.held_bytes)):
        if told != counted:
            yield Issue("counters", "store", f"say that {told} {what} are held; the tables hold {counted}")


_CHECKS: Mapping[str, Callable[[apsw.Connection], Iterator[Issue]]] = {
    "structure": structure.issues,
    "schema": structure.schema_issues,
    "counters": counters.issues,
    "revisions": revisions.issues,
    "bodies": bodies.issues,
    "index": index.issues,
    "postings": postings.issues,
    "derivations": derivations.issues,
    "contradictions": contradictions.issues,
    "sources": sources.issues,
    "episodes": episodes.issues,
    "bundles": bundles.issues,
    "history": history.issues,
    "outcomes": outcomes.issues,
    "erasures": erasures.issues,
    "integrity sum": _sum_issues,
}


def _counted(db: apsw.Connection, statement: str) -> int:
    """0 where damage leaves nothing to count."""
    with suppress(apsw.CorruptError, apsw.SQLError):
        return int(scalar(db, statement))
    return 0
