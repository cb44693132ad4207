"""Claims, their revisions and the evidence each revision cites. Row ids are commit numbers, as for artifacts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Literal

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one
from memoree.database.entry import ERASED, Entry, erased_entry
from memoree.owner import Owner

Presentation = Literal["active", "conflicted"]

_ENTITY = """c.claim_id, c.claim_type, c.workspace_id, c.project_id, c.task_id, c.component, c.status,
    c.retraction_reason, c.valid_from, c.valid_until, c.head_row, c.revision_count, c.created_at, c.sys_from,
    c.erasure_row"""
_REVISION = "r.revision_id, r.revision_number, r.statement, r.confidence, r.actor, r.created_at, r.sys_from"

_FIND = f"SELECT {_ENTITY} FROM claims c WHERE c.claim_id = ?"  # noqa: S608 - constant columns
_BY_ROW = f"SELECT {_ENTITY} FROM claims c WHERE c.row_id = ?"  # noqa: S608
_REVISION_BY_ROW = f"SELECT {_REVISION} FROM claim_revisions r WHERE r.row_id = ?"  # noqa: S608
_REVISION_OF = f"SELECT {_REVISION} FROM claim_revisions r WHERE r.revision_id = ? AND r.claim_row = ?"  # noqa: S608
_PAGE = f"""
    SELECT {_REVISION} FROM claim_revisions r WHERE r.claim_row = ? AND r.revision_number < ?
    ORDER BY r.revision_number DESC LIMIT ?
"""  # noqa: S608
_ALL = f"""
    SELECT {_ENTITY}, {_REVISION} FROM claim_revisions r JOIN claims c ON c.row_id = r.claim_row ORDER BY r.row_id
"""  # noqa: S608
_REVISIONS = f"SELECT {_REVISION} FROM claim_revisions r WHERE r.claim_row = ? ORDER BY r.row_id"  # noqa: S608
_EVIDENCE = """
    SELECT e.claim_revision_row, a.artifact_id, r.revision_id, r.row_id, e.start_byte, e.end_byte
    FROM claim_evidence e
    JOIN artifact_revisions r ON r.row_id = e.artifact_revision_row
    JOIN artifacts a ON a.row_id = r.artifact_row
    WHERE e.claim_revision_row IN (SELECT value FROM json_each(?))
    ORDER BY e.claim_revision_row, e.ordinal
"""
_CITABLE = """
    SELECT r.revision_id, a.artifact_id, r.row_id, r.size_bytes, a.erasure_row IS NOT NULL
    FROM artifact_revisions r JOIN artifacts a ON a.row_id = r.artifact_row
    WHERE r.revision_id IN (SELECT value FROM json_each(?)) AND a.kind <> 'okf.inbox'
"""

_REVISIONS_AT_A_TIME = 500
_RETRACTED = "SELECT claim_id, retraction_reason FROM claims WHERE status = 'retracted'"
_ERASED = "SELECT claim_id, erasure_row FROM claims WHERE erasure_row IS NOT NULL"

_INSERT = """
    INSERT INTO claims (row_id, claim_id, claim_type, workspace_id, project_id, task_id, component, status,
        valid_from, valid_until, head_row, revision_count, created_at, sys_from)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'active', ?8, ?9, ?1, 1, ?10, ?1)
"""
_INSERT_REVISION = """
    INSERT INTO claim_revisions (row_id, revision_id, claim_row, revision_number, statement, confidence, actor,
        created_at, sys_from)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?1)
"""
_INSERT_EVIDENCE = "INSERT INTO claim_evidence VALUES (?, ?, ?, ?, ?)"
_MOVE_HEAD = "UPDATE claims SET head_row = ?2, revision_count = revision_count + 1 WHERE row_id = ?1"
_CLOSE_REVISION = "UPDATE claim_revisions SET sys_to = ?2 WHERE row_id = ?1 AND sys_to IS NULL"
_PRESENT = "UPDATE claims SET status = ?2 WHERE row_id = ?1"
_SUPERSEDE = "UPDATE claims SET status = 'superseded', sys_to = ?2 WHERE row_id = ?1"
_RETRACT = """
    UPDATE claims SET status = 'retracted', retraction_reason = ?2, sys_to = coalesce(sys_to, ?3) WHERE row_id = ?1
"""
_ERASE = """
    UPDATE claims SET status = 'retracted', retraction_reason = ?2, valid_from = NULL, valid_until = NULL,
        sys_to = coalesce(sys_to, ?3), erasure_row = ?3
    WHERE row_id = ?1
"""
_EMPTY_REVISIONS = """
    UPDATE claim_revisions SET statement = '', confidence = NULL, actor = NULL, sys_to = coalesce(sys_to, ?2)
    WHERE claim_row = ?1
"""
_DELETE_EVIDENCE = """
    DELETE FROM claim_evidence WHERE claim_revision_row IN (SELECT row_id FROM claim_revisions WHERE claim_row = ?)
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """The logical claim and its lifecycle. Instants are in stored form; `row_id` is the commit that created it,
    `erasure_row` the one that erased it."""

    claim_id: str
    claim_type: str
    owner: Owner
    status: str
    retraction_reason: str | None
    valid_from: str | None
    valid_until: str | None
    head_row: int
    revision_count: int
    created_at: str
    row_id: int
    erasure_row: int | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """An immutable revision, without its evidence. `row_id` is the commit that created it."""

    revision_id: str
    revision_number: int
    statement: str
    confidence: float | None
    actor: str | None
    created_at: str
    row_id: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Bytes a claim revision cites: a half-open span of an artifact revision, or all of it without offsets."""

    artifact_id: str
    revision_id: str
    artifact_revision_row: int
    start_byte: int | None
    end_byte: int | None


@dataclass(frozen=True, slots=True)
class Citable:
    """An artifact revision as evidence sees it."""

    artifact_id: str
    row_id: int
    size_bytes: int
    is_erased: bool


_ENTITY_COLUMNS = len(fields(Claim)) + len(fields(Owner)) - 1


def find(db: apsw.Connection, claim_id: str) -> Claim | None:
    row = one(db, _FIND, (claim_id,))
    return _claim(row) if row else None


def by_row(db: apsw.Connection, row_id: int) -> Claim:
    row = one(db, _BY_ROW, (row_id,))
    assert row is not None, "claims are never deleted"
    return _claim(row)


def revision_by_row(db: apsw.Connection, row_id: int) -> Revision:
    row = one(db, _REVISION_BY_ROW, (row_id,))
    assert row is not None, "claim revisions are never deleted"
    return Revision(*row)


def head_revision(db: apsw.Connection, claim: Claim) -> Revision:
    return revision_by_row(db, claim.head_row)


def find_revision(db: apsw.Connection, claim: Claim, revision_id: str) -> Revision | None:
    """The revision, if it is one of this claim's."""
    row = one(db, _REVISION_OF, (revision_id, claim.row_id))
    return Revision(*row) if row else None


def page(db: apsw.Connection, claim: Claim, *, before: int, limit: int) -> list[Revision]:
    """Up to `limit` revisions with a number below `before`, newest first."""
    return [Revision(*row) for row in db.execute(_PAGE, (claim.row_id, before, limit))]


def revisions(db: apsw.Connection, claim: Claim) -> list[Revision]:
    """All of them, oldest first."""
    return [Revision(*row) for row in db.execute(_REVISIONS, (claim.row_id,))]


def evidence(db: apsw.Connection, revision_rows: Sequence[int]) -> Mapping[int, Sequence[Evidence]]:
    """What each of the claim revisions cites, in the order it was asserted; nothing for those that cite nothing."""
    found: defaultdict[int, list[Evidence]] = defaultdict(list)
    for revision_row, *citation in db.execute(_EVIDENCE, (orjson.dumps(revision_rows).decode(),)):
        found[revision_row].append(Evidence(*citation))
    return found


def citable(db: apsw.Connection, revision_ids: Sequence[str]) -> Mapping[str, Citable]:
    """Those of the artifact revisions that exist, in one query."""
    rows = db.execute(_CITABLE, (orjson.dumps(revision_ids).decode(),))
    return {revision_id: Citable(*rest) for revision_id, *rest in rows}


def every_revision(db: apsw.Connection) -> Iterator[tuple[Claim, Revision]]:
    for row in db.execute(_ALL):
        yield _claim(row[:_ENTITY_COLUMNS]), Revision(*row[_ENTITY_COLUMNS:])


def insert(db: apsw.Connection, claim: Claim) -> None:
    """A new claim; its first revision must follow in the same transaction."""
    owner = claim.owner
    assert claim.head_row == claim.row_id, "a claim and its first revision are one commit"
    db.execute(
        _INSERT,
        (
            claim.row_id,
            claim.claim_id,
            claim.claim_type,
            owner.workspace_id,
            owner.project_id,
            owner.task_id,
            owner.component,
            claim.valid_from,
            claim.valid_until,
            claim.created_at,
        ),
    )


def insert_revision(db: apsw.Connection, claim: Claim, revision: Revision, cited: Sequence[Evidence]) -> None:
    db.execute(
        _INSERT_REVISION,
        (
            revision.row_id,
            revision.revision_id,
            claim.row_id,
            revision.revision_number,
            revision.statement,
            revision.confidence,
            revision.actor,
            revision.created_at,
        ),
    )
    if cited:
        db.executemany(
            _INSERT_EVIDENCE,
            [
                (revision.row_id, ordinal, item.artifact_revision_row, item.start_byte, item.end_byte)
                for ordinal, item in enumerate(cited)
            ],
        )


def move_head(db: apsw.Connection, claim: Claim, revision: Revision) -> None:
    """Make an inserted revision the current one; the one before it stops being the truth at the same commit."""
    db.execute(_MOVE_HEAD, (claim.row_id, revision.row_id))
    db.execute(_CLOSE_REVISION, (claim.head_row, revision.row_id))


def set_presentation(db: apsw.Connection, claim: Claim, status: Presentation) -> None:
    """Whether a live claim is shown as disputed."""
    db.execute(_PRESENT, (claim.row_id, status))


def supersede(db: apsw.Connection, claim: Claim, commit_seq: int) -> None:
    """A newer claim has taken its place: it stops being the truth at this commit."""
    db.execute(_SUPERSEDE, (claim.row_id, commit_seq))
    db.execute(_CLOSE_REVISION, (claim.head_row, commit_seq))


def retract(db: apsw.Connection, claim: Claim, reason: str, commit_seq: int) -> None:
    """Withdraw the claim. It stops being the truth at this commit, unless a newer claim superseded it before."""
    db.execute(_RETRACT, (claim.row_id, reason, commit_seq))
    db.execute(_CLOSE_REVISION, (claim.head_row, commit_seq))


def erase(db: apsw.Connection, claim: Claim, commit_seq: int) -> int:
    """Leave its ids, type, owner, order and instants; returns how many citations it had."""
    db.execute(_ERASE, (claim.row_id, ERASED, commit_seq))
    db.execute(_EMPTY_REVISIONS, (claim.row_id, commit_seq))
    db.execute(_DELETE_EVIDENCE, (claim.row_id,))
    return db.changes()


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every revision with its evidence, every retraction and every erasure. That a claim
    is superseded follows from a relation, that it is conflicted from a case; those are counted there."""
    every = every_revision(db)
    while some := list(islice(every, _REVISIONS_AT_A_TIME)):
        cited = evidence(db, [revision.row_id for _, revision in some])
        for claim, revision in some:
            yield revision_entry(claim, revision, cited.get(revision.row_id, ()))
    for claim_id, reason in db.execute(_RETRACTED):
        yield retraction_entry(str(claim_id), str(reason))
    for claim_id, erasure_row in db.execute(_ERASED):
        yield erased_entry("claims", str(claim_id), int(str(erasure_row)))


def retraction_entry(claim_id: str, reason: str) -> Entry:
    return Entry("claims", claim_id, "retracted", reason.encode())


def revision_entry(claim: Claim, revision: Revision, cited: Sequence[Evidence]) -> Entry:
    """Everything about a revision that never changes. Erased, it holds nothing."""
    owner = claim.owner
    content = (
        claim.claim_type,
        owner.workspace_id,
        owner.project_id,
        owner.task_id,
        owner.component,
        claim.valid_from,
        claim.valid_until,
        claim.created_at,
        revision.revision_number,
        revision.statement,
        revision.confidence,
        revision.actor,
        revision.created_at,
        revision.row_id,
        [(item.artifact_id, item.revision_id, item.start_byte, item.end_byte) for item in cited],
    )
    digest = blake3(orjson.dumps(content)).digest()
    return Entry("claim_revisions", claim.claim_id, revision.revision_id, digest, int(claim.erasure_row is None))


def _claim(row: tuple[object, ...]) -> Claim:
    claim_id, claim_type, workspace_id, project_id, task_id, component, *rest = row
    return Claim(claim_id, claim_type, Owner(workspace_id, project_id, task_id, component), *rest)  # type: ignore[arg-type]
