"""Projections: derived text that helps to find one artifact revision.

A row holds the present. Its row id is the commit that made it, and the row of an active one in the full-text index;
`commit_seq` is the last commit that touched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Literal

import apsw
import orjson
from blake3 import blake3

from memoree.database.artifacts import Artifact, Revision
from memoree.database.connection import one
from memoree.database.entry import ERASED, Entry

ProjectionStatus = Literal["active", "dropped"]

_COLUMNS = """p.projection_id, a.artifact_id, r.revision_id, p.revision_row, p.projection_key, p.kind, p.text,
    p.evidence_spans, p.generator, p.generator_version, p.generator_digest, p.metadata, p.status, p.dropped_reason,
    p.actor, p.created_at, p.updated_at, p.commit_seq, p.row_id"""
_SELECT = f"""
    SELECT {_COLUMNS} FROM projections p JOIN artifact_revisions r ON r.row_id = p.revision_row
    JOIN artifacts a ON a.row_id = r.artifact_row
"""  # noqa: S608 - constant columns
_FIND = f"{_SELECT} WHERE p.projection_id = ?"
_OF_KEY = f"{_SELECT} WHERE p.revision_row = ? AND p.projection_key = ?"
_OF_ARTIFACT = f"""
    {_SELECT} WHERE r.artifact_row = :artifact AND (:revision IS NULL OR r.row_id = :revision)
    ORDER BY p.updated_at DESC, p.projection_id LIMIT :limit
"""
_EVERY_OF_ARTIFACT = f"{_SELECT} WHERE r.artifact_row = ? ORDER BY p.row_id"
_ALL = f"{_SELECT} ORDER BY p.row_id"

_INSERT = "INSERT INTO projections VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE = """
    UPDATE projections SET kind = ?2, text = ?3, evidence_spans = ?4, generator = ?5, generator_version = ?6,
        generator_digest = ?7, metadata = ?8, status = ?9, dropped_reason = ?10, actor = ?11, updated_at = ?12,
        commit_seq = ?13
    WHERE row_id = ?1
"""
_ERASE_KEY = "UPDATE projections SET projection_key = ?2 WHERE row_id = ?1"


@dataclass(frozen=True, slots=True)
class Payload:
    """What a put says, but for who says it. `evidence_spans` is JSON, `[[start, end], ...]` in bytes of the revision;
    `metadata` is JSON text with sorted members, so that equal payloads compare equal."""

    kind: str
    text: str
    evidence_spans: str
    generator: str
    generator_version: str
    generator_digest: str
    metadata: str


@dataclass(frozen=True, slots=True)
class Projection:
    projection_id: str
    artifact_id: str
    revision_id: str
    revision_row: int
    projection_key: str
    payload: Payload
    status: ProjectionStatus
    dropped_reason: str | None
    actor: str | None
    created_at: str
    updated_at: str
    commit_seq: int
    row_id: int


def find(db: apsw.Connection, projection_id: str) -> Projection | None:
    row = one(db, _FIND, (projection_id,))
    return _projection(row) if row else None


def of_key(db: apsw.Connection, revision: Revision, projection_key: str) -> Projection | None:
    """The one projection that has the key within the revision."""
    row = one(db, _OF_KEY, (revision.row_id, projection_key))
    return _projection(row) if row else None


def of_artifact(
    db: apsw.Connection, artifact: Artifact, revision: Revision | None, *, limit: int
) -> Iterator[Projection]:
    """Up to `limit` projections of the artifact, or of one revision of it: those touched last come first."""
    bindings = {"artifact": artifact.row_id, "revision": revision and revision.row_id, "limit": limit}
    return map(_projection, db.execute(_OF_ARTIFACT, bindings))


def every_of_artifact(db: apsw.Connection, artifact: Artifact) -> list[Projection]:
    return [_projection(row) for row in db.execute(_EVERY_OF_ARTIFACT, (artifact.row_id,))]


def erase(db: apsw.Connection, projection: Projection, *, updated_at: str, commit_seq: int) -> Projection:
    """Leave the ids and the spans; its key, which a revision has once, becomes its id."""
    spans = projection.payload.evidence_spans
    erased = replace(
        projection,
        projection_key=projection.projection_id,
        payload=Payload(ERASED, "", spans, "", "", "", "{}"),
        status="dropped",
        dropped_reason=ERASED,
        actor=None,
        updated_at=updated_at,
        commit_seq=commit_seq,
    )
    update(db, erased)
    db.execute(_ERASE_KEY, (erased.row_id, erased.projection_key))
    return erased


def insert(db: apsw.Connection, projection: Projection) -> None:
    db.execute(
        _INSERT,
        (
            projection.row_id,
            projection.projection_id,
            projection.revision_row,
            projection.projection_key,
            *_present(projection),
            projection.created_at,
            projection.updated_at,
            projection.commit_seq,
        ),
    )


def update(db: apsw.Connection, projection: Projection) -> None:
    """Store what changes about a projection; its revision, key and creation stay."""
    db.execute(_UPDATE, (projection.row_id, *_present(projection), projection.updated_at, projection.commit_seq))


def _present(projection: Projection) -> tuple[Any, ...]:
    """What a put replaces or a drop changes, in the order of its columns."""
    return (
        *astuple(projection.payload),
        projection.status,
        projection.dropped_reason,
        projection.actor,
    )


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every projection as it is now."""
    for row in db.execute(_ALL):
        yield entry(_projection(row))


def entry(projection: Projection) -> Entry:
    content = (
        projection.artifact_id,
        projection.projection_key,
        *_present(projection),
        projection.created_at,
        projection.updated_at,
        projection.commit_seq,
        projection.row_id,
    )
    digest = blake3(orjson.dumps(content)).digest()
    return Entry("projections", projection.projection_id, projection.revision_id, digest, held_rows=1)


_PAYLOAD = slice(5, 5 + len(fields(Payload)))
"""Where the payload stands among the columns."""


def _projection(row: tuple[Any, ...]) -> Projection:
    members = (*row[: _PAYLOAD.start], Payload(*row[_PAYLOAD]), *row[_PAYLOAD.stop :])
    return Projection(*members)
