"""Artifacts and their revisions.

The row id of an entity or a revision is the commit number that made it: a commit makes at most one of each, and a
number is never used again, so no row has to be read or updated to tie an entity to its first revision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import apsw
import orjson
from blake3 import blake3

from memoree.database.connection import one, scalar
from memoree.database.entry import ERASED, Entry, erased_entry
from memoree.owner import Owner

INBOX_KIND, MIRROR_KIND, RESERVED_KIND = "okf.inbox", "okf.mirror", "okf.reserved"
HIDDEN_KINDS = frozenset({INBOX_KIND})
"""Of artifacts that no ordinary door shows: only the inbox's own operations do (OKF contract SEC-6)."""
UNINDEXED_KINDS = frozenset({INBOX_KIND, MIRROR_KIND, RESERVED_KIND})
"""Of artifacts that no ordinary search finds, in any revision."""

_ENTITY = """a.artifact_id, a.kind, a.workspace_id, a.project_id, a.task_id, a.component, a.status, a.forgotten_reason,
    a.head_row, a.revision_count, a.created_at, a.sys_from, a.erasure_row"""
_REVISION = """r.revision_id, r.revision_number, r.title, r.media_type, r.blob_hash, r.size_bytes, r.provenance,
    r.actor, r.created_at, r.sys_from"""

_FIND = f"SELECT {_ENTITY} FROM artifacts a WHERE a.artifact_id = ?"  # noqa: S608 - constant columns
_BY_ROW = f"SELECT {_ENTITY} FROM artifacts a WHERE a.row_id = ?"  # noqa: S608
_REVISION_BY_ROW = f"SELECT {_REVISION} FROM artifact_revisions r WHERE r.row_id = ?"  # noqa: S608
_REVISION_OF = f"SELECT {_REVISION} FROM artifact_revisions r WHERE r.revision_id = ? AND r.artifact_row = ?"  # noqa: S608
_PAGE = f"""
    SELECT {_REVISION} FROM artifact_revisions r WHERE r.artifact_row = ? AND r.revision_number < ?
    ORDER BY r.revision_number DESC LIMIT ?
"""  # noqa: S608
_ALL = f"""
    SELECT {_ENTITY}, {_REVISION} FROM artifact_revisions r JOIN artifacts a ON a.row_id = r.artifact_row
    ORDER BY r.row_id
"""  # noqa: S608
_REVISIONS = f"SELECT {_REVISION} FROM artifact_revisions r WHERE r.artifact_row = ? ORDER BY r.row_id"  # noqa: S608
_FORGOTTEN = "SELECT artifact_id, forgotten_reason FROM artifacts WHERE status = 'forgotten'"
_ERASED = "SELECT artifact_id, erasure_row FROM artifacts WHERE erasure_row IS NOT NULL"
_BODY = "SELECT body FROM artifact_revisions WHERE row_id = ?"

_INSERT = """
    INSERT INTO artifacts (row_id, artifact_id, kind, workspace_id, project_id, task_id, component, status, head_row,
        revision_count, created_at, sys_from)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'active', ?1, 1, ?8, ?1)
"""
_INSERT_REVISION = """
    INSERT INTO artifact_revisions (row_id, revision_id, artifact_row, revision_number, title, media_type, blob_hash,
        size_bytes, body, provenance, actor, created_at, sys_from)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?1)
"""
_MOVE_HEAD = "UPDATE artifacts SET head_row = ?2, revision_count = revision_count + 1 WHERE row_id = ?1"
_CLOSE_REVISION = "UPDATE artifact_revisions SET sys_to = ?2 WHERE row_id = ?1"
_FORGET = "UPDATE artifacts SET status = 'forgotten', forgotten_reason = ?2, sys_to = ?3 WHERE row_id = ?1"
_ERASE = """
    UPDATE artifacts SET kind = ?2, status = 'forgotten', forgotten_reason = ?2, sys_to = coalesce(sys_to, ?3),
        erasure_row = ?3
    WHERE row_id = ?1
"""
_EMPTY_REVISIONS = """
    UPDATE artifact_revisions SET title = '', media_type = '', blob_hash = zeroblob(32), body = x'', provenance = '{}',
        actor = NULL, sys_to = coalesce(sys_to, ?2)
    WHERE artifact_row = ?1
"""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The logical artifact. `row_id` is the commit that created it, `head_row` the one of its current revision,
    `erasure_row` the one that erased it."""

    artifact_id: str
    kind: str
    owner: Owner
    status: str
    forgotten_reason: str | None
    head_row: int
    revision_count: int
    created_at: str
    row_id: int
    erasure_row: int | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """An immutable revision, without its bytes. `provenance` is JSON text; `row_id` the commit that created it."""

    revision_id: str
    revision_number: int
    title: str
    media_type: str
    blob_hash: bytes
    size_bytes: int
    provenance: str
    actor: str | None
    created_at: str
    row_id: int


_ENTITY_COLUMNS = len(fields(Artifact)) + len(fields(Owner)) - 1


def find(db: apsw.Connection, artifact_id: str) -> Artifact | None:
    row = one(db, _FIND, (artifact_id,))
    return _artifact(row) if row else None


def by_row(db: apsw.Connection, row_id: int) -> Artifact:
    row = one(db, _BY_ROW, (row_id,))
    assert row is not None, f"artifact row {row_id} is not in the store"
    return _artifact(row)


def revision_by_row(db: apsw.Connection, row_id: int) -> Revision:
    row = one(db, _REVISION_BY_ROW, (row_id,))
    assert row is not None, f"artifact revision row {row_id} is not in the store"
    return Revision(*row)


def head_revision(db: apsw.Connection, artifact: Artifact) -> Revision:
    return revision_by_row(db, artifact.head_row)


def find_revision(db: apsw.Connection, artifact: Artifact, revision_id: str) -> Revision | None:
    """The revision, if it is one of this artifact's."""
    row = one(db, _REVISION_OF, (revision_id, artifact.row_id))
    return Revision(*row) if row else None


def page(db: apsw.Connection, artifact: Artifact, *, before: int, limit: int) -> list[Revision]:
    """Up to `limit` revisions with a number below `before`, newest first."""
    return [Revision(*row) for row in db.execute(_PAGE, (artifact.row_id, before, limit))]


def revisions(db: apsw.Connection, artifact: Artifact) -> list[Revision]:
    """All of them, oldest first."""
    return [Revision(*row) for row in db.execute(_REVISIONS, (artifact.row_id,))]


def body(db: apsw.Connection, revision: Revision) -> bytes | None:
    """The bytes of a revision as its row holds them; `None` when they are a blob."""
    stored: bytes | None = scalar(db, _BODY, (revision.row_id,))
    return stored


def every_revision(db: apsw.Connection) -> Iterator[tuple[Artifact, Revision]]:
    for row in db.execute(_ALL):
        yield _artifact(row[:_ENTITY_COLUMNS]), Revision(*row[_ENTITY_COLUMNS:])


def insert(db: apsw.Connection, artifact: Artifact) -> None:
    """A new artifact; its first revision must follow in the same transaction."""
    owner = artifact.owner
    assert artifact.head_row == artifact.row_id, "an artifact and its first revision are one commit"
    db.execute(
        _INSERT,
        (
            artifact.row_id,
            artifact.artifact_id,
            artifact.kind,
            owner.workspace_id,
            owner.project_id,
            owner.task_id,
            owner.component,
            artifact.created_at,
        ),
    )


def insert_revision(db: apsw.Connection, artifact: Artifact, revision: Revision, body: bytes | None) -> None:
    db.execute(
        _INSERT_REVISION,
        (
            revision.row_id,
            revision.revision_id,
            artifact.row_id,
            revision.revision_number,
            revision.title,
            revision.media_type,
            revision.blob_hash,
            revision.size_bytes,
            body,
            revision.provenance,
            revision.actor,
            revision.created_at,
        ),
    )


def move_head(db: apsw.Connection, artifact: Artifact, revision: Revision) -> None:
    """Make an inserted revision the current one; the one before it stops being the truth at the same commit."""
    db.execute(_MOVE_HEAD, (artifact.row_id, revision.row_id))
    db.execute(_CLOSE_REVISION, (artifact.head_row, revision.row_id))


def forget(db: apsw.Connection, artifact: Artifact, reason: str, commit_seq: int) -> None:
    """Tombstone the artifact: it and its current revision stop being the truth at this commit."""
    db.execute(_FORGET, (artifact.row_id, reason, commit_seq))
    db.execute(_CLOSE_REVISION, (artifact.head_row, commit_seq))


def erase(db: apsw.Connection, artifact: Artifact, commit_seq: int) -> None:
    """Leave its ids, owner, order, instants and sizes. A body of no bytes is no blob for anybody who looks for blobs,
    and 32 zero bytes are no digest: a short text could be guessed from its own."""
    db.execute(_ERASE, (artifact.row_id, ERASED, commit_seq))
    db.execute(_EMPTY_REVISIONS, (artifact.row_id, commit_seq))


def entries(db: apsw.Connection) -> Iterator[Entry]:
    """What the integrity sum counts: every revision, every tombstone, and every erasure."""
    for artifact, revision in every_revision(db):
        yield revision_entry(artifact, revision)
    for artifact_id, reason in db.execute(_FORGOTTEN):
        yield forgotten_entry(str(artifact_id), str(reason))
    for artifact_id, erasure_row in db.execute(_ERASED):
        yield erased_entry("artifacts", str(artifact_id), int(str(erasure_row)))


def forgotten_entry(artifact_id: str, reason: str) -> Entry:
    return Entry("artifacts", artifact_id, "forgotten", reason.encode())


def revision_entry(artifact: Artifact, revision: Revision) -> Entry:
    """Everything about a revision that never changes. Erased, it holds nothing."""
    owner = artifact.owner
    content = (
        artifact.kind,
        owner.workspace_id,
        owner.project_id,
        owner.task_id,
        owner.component,
        artifact.created_at,
        revision.revision_number,
        revision.title,
        revision.media_type,
        revision.blob_hash.hex(),
        revision.size_bytes,
        revision.provenance,
        revision.actor,
        revision.created_at,
        revision.row_id,
    )
    digest = blake3(orjson.dumps(content)).digest()
    held = (1, revision.size_bytes) if artifact.erasure_row is None else (0, 0)
    return Entry("artifact_revisions", artifact.artifact_id, revision.revision_id, digest, *held)


def _artifact(row: tuple[object, ...]) -> Artifact:
    artifact_id, kind, workspace_id, project_id, task_id, component, *rest = row
    return Artifact(artifact_id, kind, Owner(workspace_id, project_id, task_id, component), *rest)  # type: ignore[arg-type]
