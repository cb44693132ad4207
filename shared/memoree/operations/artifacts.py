"""Artifacts: immutable revisions of bytes behind a stable id (machine protocol §4.5 to §4.7, §4.9, §4.10, §6.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import orjson
from blake3 import blake3
from pydantic import Field

from memoree.database import artifacts as rows
from memoree.database.artifacts import Artifact, Revision
from memoree.database.index import index_artifact_revision
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, invalid, not_found, shown
from memoree.operations.call import Call
from memoree.operations.content import (
    ArtifactContent,
    StagedContent,
    indexable_text,
    is_text_like,
    represented,
)
from memoree.operations.context import require_current_revision, require_write_scope
from memoree.operations.registry import mutation, read
from memoree.operations.shapes import (
    DEFAULT_MEDIA_TYPE,
    Actor,
    ArtifactAcknowledgement,
    ArtifactHistory,
    ArtifactRecord,
    EntityId,
    HistoryPage,
    Kind,
    MediaType,
    Metadata,
    Reason,
    Title,
)
from memoree.operations.view import Applied, Transaction, View

RETENTION_NOTICE = (
    "The artifact has left current search; a historical search still lists it, without its text. Its bytes, revisions "
    "and citations are kept, and exact lookups still return them: nothing was physically erased."
)


class ArtifactPut(WireModel):
    kind: Kind
    title: Title
    media_type: MediaType = DEFAULT_MEDIA_TYPE
    provenance: Metadata = Field(default_factory=dict)
    actor: Actor | None = None
    content: ArtifactContent


class ArtifactGet(WireModel):
    artifact_id: EntityId
    revision_id: EntityId | None = None
    include_content: bool = True


class ArtifactRevise(WireModel):
    """Absent title and media type are kept; absent provenance and actor are not inherited."""

    artifact_id: EntityId
    if_revision: EntityId
    title: Title | None = None
    media_type: MediaType | None = None
    provenance: Metadata = Field(default_factory=dict)
    actor: Actor | None = None
    content: ArtifactContent


class ArtifactHistoryInput(HistoryPage):
    artifact_id: EntityId


class ArtifactForget(WireModel):
    artifact_id: EntityId
    reason: Annotated[Reason, Field(description="why it should no longer be found")]


def _existing(view: View, artifact_id: str) -> Artifact:
    artifact = rows.find(view.db, artifact_id)
    if artifact is None:
        not_found("artifact", artifact_id)
    return artifact


def _exists_in_write_scope(view: View, call: Call[ArtifactRevise] | Call[ArtifactForget]) -> None:
    artifact = _existing(view, call.input.artifact_id)
    require_write_scope(call, artifact.owner, f"artifact {shown(artifact.artifact_id)}")


@mutation(
    "artifact.put",
    position=5,
    input=ArtifactPut,
    result=ArtifactAcknowledgement,
    content=lambda input: input.content,
)
def put(tx: Transaction, call: Call[ArtifactPut]) -> Applied:
    wanted = call.input
    artifact = Artifact(
        artifact_id=tx.new_id("art"),
        kind=wanted.kind,
        owner=call.owner,
        status="active",
        forgotten_reason=None,
        head_row=tx.commit_seq,
        revision_count=1,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )
    revision = _new_revision(tx, call, number=1, title=wanted.title, media_type=wanted.media_type)
    rows.insert(tx.db, artifact)
    return _recorded(tx, call, artifact, revision)


@mutation(
    "artifact.revise",
    position=8,
    input=ArtifactRevise,
    result=ArtifactAcknowledgement,
    before_replay=_exists_in_write_scope,
    content=lambda input: input.content,
)
def revise(tx: Transaction, call: Call[ArtifactRevise]) -> Applied:
    wanted = call.input
    artifact = _existing(tx, wanted.artifact_id)
    _refuse_if_forgotten(artifact)
    previous = rows.head_revision(tx.db, artifact)
    require_current_revision(
        "artifact", artifact.artifact_id, current=previous.revision_id, requested=wanted.if_revision
    )
    revision = _new_revision(
        tx,
        call,
        number=previous.revision_number + 1,
        title=wanted.title or previous.title,
        media_type=wanted.media_type or previous.media_type,
    )
    rows.move_head(tx.db, artifact, revision)
    return _recorded(tx, call, artifact, revision)


@mutation(
    "artifact.forget",
    position=10,
    input=ArtifactForget,
    result=ArtifactAcknowledgement,
    scope="forget",
    before_replay=_exists_in_write_scope,
)
def forget(tx: Transaction, call: Call[ArtifactForget]) -> Applied:
    artifact = _existing(tx, call.input.artifact_id)
    _refuse_if_forgotten(artifact)
    reason = call.input.reason
    revision = rows.head_revision(tx.db, artifact)
    rows.forget(tx.db, artifact, reason, tx.commit_seq)
    tx.sum.add(rows.forgotten_entry(artifact.artifact_id, reason))
    commit_seq = tx.record_event(
        "artifact.forget",
        "artifact",
        artifact.artifact_id,
        payload={"status": "forgotten"},
    )
    record = ArtifactRecord.of(replace(artifact, status="forgotten", forgotten_reason=reason), revision)
    record.physically_erased = False
    record.retention_notice = RETENTION_NOTICE
    return Applied(record, commit_seq)


@read("artifact.get", position=6, input=ArtifactGet, result=ArtifactRecord, needs_context=False)
def get(view: View, call: Call[ArtifactGet]) -> ArtifactRecord:
    wanted = call.input
    artifact = _existing(view, wanted.artifact_id)
    if wanted.revision_id is None:
        revision = rows.head_revision(view.db, artifact)
    else:
        revision = existing_revision(view, artifact, wanted.revision_id)
    content = None
    if wanted.include_content:
        content = ArtifactContent(**represented(revision.media_type, read_body(view, revision)))
    return ArtifactRecord.of(artifact, revision, content)


@read("artifact.history", position=9, input=ArtifactHistoryInput, result=ArtifactHistory, needs_context=False)
def history(view: View, call: Call[ArtifactHistoryInput]) -> ArtifactHistory:
    wanted = call.input
    artifact = _existing(view, wanted.artifact_id)
    before = wanted.before(artifact.revision_count)
    found = rows.page(view.db, artifact, before=before, limit=wanted.limit + 1)
    revisions, truncated = found[: wanted.limit], len(found) > wanted.limit
    return ArtifactHistory(
        revisions=[ArtifactRecord.of(artifact, revision) for revision in revisions],
        truncated=truncated,
        next_before_revision_number=revisions[-1].revision_number if truncated else None,
    )


def existing_revision(view: View, artifact: Artifact, revision_id: str) -> Revision:
    """Raises `NOT_FOUND` for an unknown revision, and for one of another artifact."""
    revision = rows.find_revision(view.db, artifact, revision_id)
    if revision is None:
        not_found(f"revision of artifact {shown(artifact.artifact_id)}", revision_id)
    return revision


def read_body(view: View, revision: Revision) -> bytes:
    """The bytes of a revision, verified. Raises `INTEGRITY_ERROR` when they are not what the revision says."""
    stored = rows.body(view.db, revision)
    if stored is None:
        return view.blobs.read(revision.blob_hash, revision.size_bytes)
    if len(stored) != revision.size_bytes or blake3(stored).digest() != revision.blob_hash:
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"the stored bytes of revision {shown(revision.revision_id)} do not match their digest",
        )
    return stored


def _refuse_if_forgotten(artifact: Artifact) -> None:
    if artifact.status == "forgotten":
        invalid(f"artifact {shown(artifact.artifact_id)} is forgotten; put a new one instead")


def _staged(call: Call[ArtifactPut] | Call[ArtifactRevise]) -> StagedContent:
    assert call.content is not None, "the content of these operations is staged when they are validated"
    return call.content


def _new_revision(
    tx: Transaction, call: Call[ArtifactPut] | Call[ArtifactRevise], *, number: int, title: str, media_type: str
) -> Revision:
    content = _staged(call)
    return Revision(
        revision_id=tx.new_id("arev"),
        revision_number=number,
        title=title,
        media_type=media_type,
        blob_hash=content.digest,
        size_bytes=content.size,
        provenance=orjson.dumps(call.input.provenance).decode(),
        actor=call.input.actor,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )


def _recorded(
    tx: Transaction, call: Call[ArtifactPut] | Call[ArtifactRevise], artifact: Artifact, revision: Revision
) -> Applied:
    """Store a revision whose artifact row is in place, index it, and consume the commit number."""
    content = _staged(call)
    rows.insert_revision(tx.db, artifact, revision, content.data if content.inline else None)
    index_artifact_revision(
        tx.db,
        revision_row=revision.row_id,
        title=revision.title,
        text=_searchable_text(tx, content, revision.media_type),
        stored_inline=content.inline,
    )
    tx.sum.add(rows.revision_entry(artifact, revision))
    commit_seq = tx.record_event(
        call.operation.name,
        "artifact",
        artifact.artifact_id,
        revision_id=revision.revision_id,
        actor=revision.actor,
        payload={"status": artifact.status},
    )
    return Applied(ArtifactRecord.of(artifact, revision), commit_seq)


def _searchable_text(tx: Transaction, content: StagedContent, media_type: str) -> str | None:
    if not is_text_like(media_type):
        return None
    data = content.data if content.data is not None else tx.blobs.read(content.digest, content.size)
    return indexable_text(media_type, data)
