"""Artifacts: immutable revisions of bytes behind a stable id (machine protocol §4.5 to §4.7, §4.9, §4.10, §6.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import orjson
from blake3 import blake3
from pydantic import Field

from memoree import limits
from memoree.database import artifacts as rows
from memoree.database import episodes
from memoree.database import okf as okf_rows
from memoree.database.artifacts import Artifact, Revision
from memoree.database.episodes import Episode
from memoree.database.index import index_artifact_revision
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, erased, invalid, not_found, shown
from memoree.media import indexable_text, is_indexed
from memoree.operations.call import Call
from memoree.operations.content import (
    ArtifactContent,
    ContentInput,
    StagedContent,
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
from memoree.owner import Owner

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
    content: ContentInput


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
    content: ContentInput


class ArtifactHistoryInput(HistoryPage):
    artifact_id: EntityId


class ArtifactForget(WireModel):
    artifact_id: EntityId
    reason: Annotated[Reason, Field(description="why it should no longer be found")]


def existing(view: View, artifact_id: str, *, hidden: bool = False) -> Artifact:
    """Raises `NOT_FOUND` for an unknown artifact and, unless `hidden`, for one that no ordinary door shows; of the kind
    `erased` for one that was erased."""
    artifact = rows.find(view.db, artifact_id)
    if artifact is None or (artifact.kind in rows.HIDDEN_KINDS and not hidden):
        not_found("artifact", artifact_id)
    if artifact.erasure_row is not None:
        erased("artifact", artifact_id)
    return artifact


def _exists_in_write_scope(view: View, call: Call[ArtifactRevise] | Call[ArtifactForget]) -> None:
    artifact = existing(view, call.input.artifact_id)
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
    refuse_hidden_kind(wanted.kind)
    draft = Draft(wanted.title, wanted.media_type, staged(call), wanted.provenance, wanted.actor)
    artifact, revision = create(tx, call.owner, wanted.kind, draft)
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
    artifact = existing(tx, wanted.artifact_id)
    refuse_if_forgotten(artifact)
    _refuse_node(tx, artifact)
    previous = rows.head_revision(tx.db, artifact)
    require_current_revision(
        "artifact", artifact.artifact_id, current=previous.revision_id, requested=wanted.if_revision
    )
    draft = Draft(
        title=wanted.title or previous.title,
        media_type=wanted.media_type or previous.media_type,
        content=staged(call),
        provenance=wanted.provenance,
        actor=wanted.actor,
    )
    return _recorded(tx, call, artifact, add_revision(tx, artifact, previous, draft))


@mutation(
    "artifact.forget",
    position=10,
    input=ArtifactForget,
    result=ArtifactAcknowledgement,
    scope="forget",
    before_replay=_exists_in_write_scope,
)
def forget(tx: Transaction, call: Call[ArtifactForget]) -> Applied:
    artifact = existing(tx, call.input.artifact_id)
    refuse_if_forgotten(artifact)
    forgotten = tombstone(tx, artifact, call.input.reason)
    commit_seq = tx.record_event(
        "artifact.forget",
        "artifact",
        artifact.artifact_id,
        payload={"status": "forgotten"},
    )
    record = ArtifactRecord.of(forgotten, rows.head_revision(tx.db, forgotten))
    record.physically_erased = False
    record.retention_notice = RETENTION_NOTICE
    return Applied(record, commit_seq)


@read("artifact.get", position=6, input=ArtifactGet, result=ArtifactRecord, needs_context=False)
def get(view: View, call: Call[ArtifactGet]) -> ArtifactRecord:
    wanted = call.input
    artifact = existing(view, wanted.artifact_id)
    if wanted.revision_id is None:
        revision = rows.head_revision(view.db, artifact)
    else:
        revision = existing_revision(view, artifact, wanted.revision_id)
    content = None
    if wanted.include_content:
        content = ArtifactContent(**represented(revision.media_type, read_body(view, revision)))
    return ArtifactRecord.of(artifact, revision, content)


@read(
    "artifact.history", position=9, input=ArtifactHistoryInput, result=ArtifactHistory, needs_context=False, short=True
)
def history(view: View, call: Call[ArtifactHistoryInput]) -> ArtifactHistory:
    wanted = call.input
    artifact = existing(view, wanted.artifact_id)
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


def locate(view: View, artifact_id: str, revision_id: str) -> tuple[Revision, bytes | None]:
    """A revision, and its verified bytes where they are no blob. As global as `artifact.get`, and raises the same."""
    revision = existing_revision(view, existing(view, artifact_id), revision_id)
    return revision, _inline_body(view, revision)


def read_body(view: View, revision: Revision) -> bytes:
    """The bytes of a revision, verified. Raises `INTEGRITY_ERROR` when they are not what the revision says, and
    `CONTENT_TOO_LARGE` for more than any response carries: those are streamed."""
    if revision.size_bytes > limits.ARTIFACT_BYTES_MAX:
        raise MemoreeError(
            Code.CONTENT_TOO_LARGE,
            f"revision {shown(revision.revision_id)} has {revision.size_bytes} bytes, more than the "
            f"{limits.ARTIFACT_BYTES_MAX} of any response; ask without include_content, and read them from "
            "GET /v1/artifacts/{artifact_id}/revisions/{revision_id}/content",
        )
    stored = _inline_body(view, revision)
    return stored if stored is not None else view.blobs.read(revision.blob_hash, revision.size_bytes)


def _inline_body(view: View, revision: Revision) -> bytes | None:
    stored = rows.body(view.db, revision)
    if stored is not None and (len(stored) != revision.size_bytes or blake3(stored).digest() != revision.blob_hash):
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"the stored bytes of revision {shown(revision.revision_id)} do not match their digest",
        )
    return stored


def refuse_if_forgotten(artifact: Artifact) -> None:
    """Raises `INVALID_REQUEST`: what is forgotten takes no change (§6.5)."""
    if artifact.status == "forgotten":
        invalid(f"artifact {shown(artifact.artifact_id)} is forgotten; put a new one instead")


def _refuse_node(view: View, artifact: Artifact) -> None:
    """Raises `INVALID_REQUEST`: a file of a bundle is read before it is stored, and what is secret is refused."""
    if (node := okf_rows.by_row(view.db, artifact.row_id)) is not None:
        invalid(
            f"artifact {shown(artifact.artifact_id)} is {node.node_id}.md of a bundle; deliver its new bytes with "
            "source.ingest"
        )


def refuse_hidden_kind(kind: str) -> None:
    """Raises `INVALID_REQUEST`: what ordinary doors do not show, they do not take either."""
    if kind in rows.HIDDEN_KINDS:
        invalid(f"kind: {kind} is the kind of inbox entries; `inbox.put` makes them")


def staged(call: Call[Any]) -> StagedContent:
    """The content of an operation that carries one."""
    assert call.content is not None, "the content of these operations is staged when they are validated"
    return call.content


@dataclass(frozen=True, slots=True)
class EpisodeDraft:
    """What MemoryProtocol says of an episode beside its content; `metadata` is a JSON object as text."""

    episode_id: str
    source: str
    t_ref: str | None
    metadata: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a revision will hold. `provenance` is a free-form map. An artifact of kind `episode` is one in any case:
    where nothing is said of it, its id is the artifact's, its source the title and its metadata the provenance."""

    title: str
    media_type: str
    content: StagedContent
    provenance: Mapping[str, Any]
    actor: str | None
    episode: EpisodeDraft | None = None


def create(tx: Transaction, owner: Owner, kind: str, draft: Draft) -> tuple[Artifact, Revision]:
    """A new artifact with its first revision, searchable at once. The caller records the event."""
    artifact = Artifact(
        artifact_id=tx.new_id("art"),
        kind=kind,
        owner=owner,
        status="active",
        forgotten_reason=None,
        head_row=tx.commit_seq,
        revision_count=1,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )
    revision = _new_revision(tx, draft, number=1)
    rows.insert(tx.db, artifact)
    _store(tx, artifact, revision, draft.content)
    if kind == episodes.KIND:
        _begin_episode(tx, artifact, revision, draft.episode or _own_episode(artifact, revision))
    return artifact, revision


def add_revision(tx: Transaction, artifact: Artifact, previous: Revision, draft: Draft) -> Revision:
    """A new current revision of an active artifact in place of `previous`. The caller records the event."""
    revision = _new_revision(tx, draft, number=previous.revision_number + 1)
    rows.move_head(tx.db, artifact, revision)
    _store(tx, artifact, revision, draft.content)
    if (before := _end_episode(tx, artifact)) is not None:
        kept = EpisodeDraft(before.episode_id, before.source, before.t_ref, before.metadata)
        _begin_episode(tx, artifact, revision, draft.episode or kept)
    return revision


def tombstone(tx: Transaction, artifact: Artifact, reason: str) -> Artifact:
    """Take an active artifact out of current retrieval for good, and erase nothing (§6.5). The caller records the
    event."""
    rows.forget(tx.db, artifact, reason, tx.commit_seq)
    tx.sum.add(rows.forgotten_entry(artifact.artifact_id, reason))
    _end_episode(tx, artifact)
    okf_rows.delete(tx.db, artifact.row_id)
    return replace(artifact, status="forgotten", forgotten_reason=reason)


def _own_episode(artifact: Artifact, revision: Revision) -> EpisodeDraft:
    return EpisodeDraft(artifact.artifact_id.removeprefix("art_"), revision.title, None, revision.provenance)


def _begin_episode(tx: Transaction, artifact: Artifact, revision: Revision, said: EpisodeDraft) -> None:
    episode = Episode(said.episode_id, said.source, said.t_ref, said.metadata, artifact.row_id, revision.row_id)
    episodes.insert(tx.db, episode)
    tx.sum.add(episodes.entry(episode))


def _end_episode(tx: Transaction, artifact: Artifact) -> Episode | None:
    """The version that stops being the truth, if the artifact is an episode."""
    if artifact.kind != episodes.KIND or (before := episodes.current_of_artifact(tx.db, artifact.row_id)) is None:
        return None
    tx.sum.replace(episodes.entry(before), episodes.entry(episodes.close(tx.db, before, tx.commit_seq)))
    return before


def _new_revision(tx: Transaction, draft: Draft, *, number: int) -> Revision:
    return Revision(
        revision_id=tx.new_id("arev"),
        revision_number=number,
        title=draft.title,
        media_type=draft.media_type,
        blob_hash=draft.content.digest,
        size_bytes=draft.content.size,
        provenance=orjson.dumps(draft.provenance).decode(),
        actor=draft.actor,
        created_at=tx.now,
        row_id=tx.commit_seq,
    )


def _store(tx: Transaction, artifact: Artifact, revision: Revision, content: StagedContent) -> None:
    """Store, index and count a revision whose artifact row is in place."""
    rows.insert_revision(tx.db, artifact, revision, content.data if content.inline else None)
    if artifact.kind not in rows.UNINDEXED_KINDS:
        index_artifact_revision(
            tx.db,
            revision_row=revision.row_id,
            title=revision.title,
            text=_searchable_text(tx, content, revision.media_type),
            stored_inline=content.inline,
        )
    tx.sum.add(rows.revision_entry(artifact, revision))


def _recorded(
    tx: Transaction, call: Call[ArtifactPut] | Call[ArtifactRevise], artifact: Artifact, revision: Revision
) -> Applied:
    """Consume the commit number for a stored revision."""
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
    if not is_indexed(media_type, content.size):
        return None
    return indexable_text(media_type, content_bytes(tx, content))


def content_bytes(tx: Transaction, content: StagedContent) -> bytes:
    return content.data if content.data is not None else tx.blobs.read(content.digest, content.size)
