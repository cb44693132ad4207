"""Projections: derived text that leads to an artifact revision and proves nothing (machine protocol §4.24 to §4.26).

A projection is bound to exact spans of one immutable revision and stays with it. It is put on the current revision
only, so everything that says whether that is the case is judged before its replay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field

from memoree import clock, limits
from memoree.database import artifacts
from memoree.database import projections as rows
from memoree.database.artifacts import Artifact, Revision
from memoree.database.index import index_projection, unindex_projection
from memoree.database.projections import Payload, Projection, ProjectionStatus
from memoree.envelope import WireModel
from memoree.errors import invalid, not_found, shown
from memoree.operations.artifacts import existing as existing_artifact
from memoree.operations.artifacts import existing_revision, refuse_if_forgotten
from memoree.operations.call import Call
from memoree.operations.context import require_current_revision, require_write_scope
from memoree.operations.paging import cut
from memoree.operations.registry import mutation, read
from memoree.operations.shapes import (
    Acknowledgement,
    Actor,
    ByteOffset,
    EntityId,
    GeneratorTag,
    Kind,
    Metadata,
    ProjectionKey,
    ProjectionText,
    Reason,
)
from memoree.operations.view import Applied, Transaction, View


class EvidenceSpan(WireModel):
    """Bytes of the revision, half-open."""

    start_byte: ByteOffset
    end_byte: ByteOffset


class ProjectionPut(WireModel):
    """`projection_key` is the identity within the revision; a second put of it replaces the first."""

    artifact_id: EntityId
    revision_id: EntityId
    projection_key: ProjectionKey
    kind: Kind
    text: ProjectionText
    evidence_spans: Annotated[list[EvidenceSpan], Field(min_length=1, max_length=limits.PROJECTION_SPANS_MAX)]
    generator: GeneratorTag
    generator_version: GeneratorTag
    generator_digest: GeneratorTag
    metadata: Metadata = Field(default_factory=dict)
    actor: Actor | None = None

    def payload(self) -> Payload:
        return Payload(
            kind=self.kind,
            text=self.text,
            evidence_spans=orjson.dumps([(span.start_byte, span.end_byte) for span in self.evidence_spans]).decode(),
            generator=self.generator,
            generator_version=self.generator_version,
            generator_digest=self.generator_digest,
            metadata=orjson.dumps(self.metadata, option=orjson.OPT_SORT_KEYS).decode(),
        )


class ProjectionList(WireModel):
    artifact_id: EntityId
    revision_id: EntityId | None = None
    limit: Annotated[int, Field(ge=1, le=limits.PROJECTION_ITEMS_MAX)] = limits.PROJECTION_ITEMS_MAX


class ProjectionDrop(WireModel):
    projection_id: EntityId
    reason: Annotated[Reason, Field(description="why it should lead nowhere any more")]
    actor: Actor | None = None


class SpanRecord(BaseModel):
    start_byte: int
    end_byte: int


class ProjectionRecord(BaseModel):
    """Derived text and the revision it belongs to, as of the last put or drop (§4.24)."""

    projection_id: str
    artifact_id: str
    revision_id: str
    projection_key: str
    kind: str
    text: str
    evidence_spans: list[SpanRecord]
    generator: str
    generator_version: str
    generator_digest: str
    metadata: dict[str, Any]
    status: ProjectionStatus
    dropped_reason: str | None = None
    actor: str | None = None
    created_at: str
    updated_at: str
    commit_seq: int

    @classmethod
    def of(cls, projection: Projection) -> ProjectionRecord:
        payload = projection.payload
        return cls(
            projection_id=projection.projection_id,
            artifact_id=projection.artifact_id,
            revision_id=projection.revision_id,
            projection_key=projection.projection_key,
            kind=payload.kind,
            text=payload.text,
            evidence_spans=[
                SpanRecord(start_byte=start, end_byte=end) for start, end in orjson.loads(payload.evidence_spans)
            ],
            generator=payload.generator,
            generator_version=payload.generator_version,
            generator_digest=payload.generator_digest,
            metadata=orjson.loads(payload.metadata),
            status=projection.status,
            dropped_reason=projection.dropped_reason,
            actor=projection.actor,
            created_at=clock.wire(projection.created_at),
            updated_at=clock.wire(projection.updated_at),
            commit_seq=projection.commit_seq,
        )


class ProjectionAcknowledgement(ProjectionRecord, Acknowledgement):
    """The result of `projection.put` and `projection.drop`. `created` is false also where a put replaced."""


class ProjectionPage(BaseModel):
    """Active and dropped ones, those touched last first; there is no cursor."""

    artifact_id: str
    revision_id: str | None = None
    projections: list[ProjectionRecord]
    truncated: bool


def _existing(view: View, projection_id: str) -> Projection:
    projection = rows.find(view.db, projection_id)
    if projection is None:
        not_found("projection", projection_id)
    return projection


def _artifact_takes_it(view: View, call: Call[ProjectionPut]) -> None:
    """Existence, write scope, lifecycle, currentness, spans: in the order of §4.24."""
    wanted = call.input
    artifact = existing_artifact(view, wanted.artifact_id)
    revision = existing_revision(view, artifact, wanted.revision_id)
    require_write_scope(call, artifact.owner, f"artifact {shown(artifact.artifact_id)}")
    refuse_if_forgotten(artifact)
    current = artifacts.head_revision(view.db, artifact)
    require_current_revision(
        "artifact", artifact.artifact_id, current=current.revision_id, requested=wanted.revision_id
    )
    _check_spans(wanted.evidence_spans, revision)


def _check_spans(spans: list[EvidenceSpan], revision: Revision) -> None:
    for span in spans:
        length = span.end_byte - span.start_byte
        if not 1 <= length <= limits.PROJECTION_SPAN_BYTES_MAX:
            invalid(
                f"evidence_spans: {_named(span)} has {length} bytes; a span has 1 to {limits.PROJECTION_SPAN_BYTES_MAX}"
            )
        if span.end_byte > revision.size_bytes:
            invalid(f"evidence_spans: {_named(span)} leaves the revision of {revision.size_bytes} bytes")
    for before, after in pairwise(spans):
        if after.start_byte < before.end_byte:
            invalid(f"evidence_spans: {_named(after)} must start where {_named(before)} ends, or later")


def _named(span: EvidenceSpan) -> str:
    return f"{span.start_byte}-{span.end_byte}"


def _artifact_in_write_scope(view: View, call: Call[ProjectionDrop]) -> None:
    artifact = existing_artifact(view, _existing(view, call.input.projection_id).artifact_id)
    require_write_scope(call, artifact.owner, f"artifact {shown(artifact.artifact_id)}")


@mutation(
    "projection.put",
    position=23,
    input=ProjectionPut,
    result=ProjectionAcknowledgement,
    before_replay=_artifact_takes_it,
    replay_on_snapshot=False,
)
def put(tx: Transaction, call: Call[ProjectionPut]) -> Applied:
    wanted = call.input
    artifact = existing_artifact(tx, wanted.artifact_id)
    revision = existing_revision(tx, artifact, wanted.revision_id)
    existing = rows.of_key(tx.db, revision, wanted.projection_key)
    if existing is None:
        return _added(tx, call, artifact, revision)
    payload = wanted.payload()
    if existing.status == "active" and existing.payload == payload:
        return Applied(ProjectionRecord.of(existing), existing.commit_seq, created=False)
    replaced = replace(existing, payload=payload, status="active", dropped_reason=None, actor=wanted.actor)
    return _changed(tx, call, existing, replaced, created=False)


@mutation(
    "projection.drop",
    position=25,
    input=ProjectionDrop,
    result=ProjectionAcknowledgement,
    before_replay=_artifact_in_write_scope,
)
def drop(tx: Transaction, call: Call[ProjectionDrop]) -> Applied:
    wanted = call.input
    existing = _existing(tx, wanted.projection_id)
    if existing.status == "dropped":
        return Applied(ProjectionRecord.of(existing), existing.commit_seq, created=False)
    dropped = replace(existing, status="dropped", dropped_reason=wanted.reason, actor=wanted.actor)
    return _changed(tx, call, existing, dropped, created=True)


@read("projection.list", position=24, input=ProjectionList, result=ProjectionPage, needs_context=True)
def list_projections(view: View, call: Call[ProjectionList]) -> ProjectionPage:
    wanted = call.input
    artifact = existing_artifact(view, wanted.artifact_id)
    revision = None
    if wanted.revision_id is not None:
        revision = existing_revision(view, artifact, wanted.revision_id)
    require_write_scope(call, artifact.owner, f"artifact {shown(artifact.artifact_id)}")
    found = rows.of_artifact(view.db, artifact, revision, limit=wanted.limit + 1)
    page, truncated = cut(
        map(ProjectionRecord.of, found), limit=wanted.limit, bytes_max=limits.PROJECTION_PAGE_BYTES_MAX
    )
    return ProjectionPage(
        artifact_id=artifact.artifact_id,
        revision_id=wanted.revision_id,
        projections=page,
        truncated=truncated,
    )


def _added(tx: Transaction, call: Call[ProjectionPut], artifact: Artifact, revision: Revision) -> Applied:
    wanted = call.input
    projection = Projection(
        projection_id=tx.new_id("proj"),
        artifact_id=artifact.artifact_id,
        revision_id=revision.revision_id,
        revision_row=revision.row_id,
        projection_key=wanted.projection_key,
        payload=wanted.payload(),
        status="active",
        dropped_reason=None,
        actor=wanted.actor,
        created_at=tx.now,
        updated_at=tx.now,
        commit_seq=tx.commit_seq,
        row_id=tx.commit_seq,
    )
    rows.insert(tx.db, projection)
    index_projection(tx.db, projection_row=projection.row_id, text=projection.payload.text)
    tx.sum.add(rows.entry(projection))
    return _recorded(tx, call, projection, created=True)


def _changed(
    tx: Transaction,
    call: Call[ProjectionPut] | Call[ProjectionDrop],
    existing: Projection,
    changed: Projection,
    *,
    created: bool,
) -> Applied:
    """Store what became of a projection; the index has a row of it exactly while it is active."""
    changed = replace(changed, updated_at=tx.now, commit_seq=tx.commit_seq)
    if existing.status == "active":
        unindex_projection(tx.db, projection_row=existing.row_id)
    rows.update(tx.db, changed)
    if changed.status == "active":
        index_projection(tx.db, projection_row=changed.row_id, text=changed.payload.text)
    tx.sum.replace(rows.entry(existing), rows.entry(changed))
    return _recorded(tx, call, changed, created=created)


def _recorded(
    tx: Transaction, call: Call[ProjectionPut] | Call[ProjectionDrop], projection: Projection, *, created: bool
) -> Applied:
    """Consume the commit number."""
    commit_seq = tx.record_event(
        call.operation.name,
        "projection",
        projection.projection_id,
        revision_id=projection.revision_id,
        actor=call.input.actor,
        payload={"status": projection.status},
    )
    return Applied(ProjectionRecord.of(projection), commit_seq, created=created)
