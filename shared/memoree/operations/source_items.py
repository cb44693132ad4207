"""Items that sources deliver (machine protocol §4.21, §4.23, §6.5).

An item lives behind its source and external id. Delivering it makes an artifact, delivering another external revision
a revision of that artifact, and withdrawing it forgets the artifact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import orjson
from blake3 import blake3
from pydantic import BaseModel, Field, model_validator

from memoree import clock
from memoree.database import artifacts
from memoree.database import sources as rows
from memoree.database.artifacts import Artifact, Revision
from memoree.database.events import Change
from memoree.database.sources import Item, ItemState, Source
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, invalid, not_found, shown
from memoree.okf.node import Node
from memoree.operations import okf_nodes
from memoree.operations.artifacts import (
    Draft,
    add_revision,
    content_bytes,
    create,
    existing_revision,
    refuse_hidden_kind,
    staged,
    tombstone,
)
from memoree.operations.artifacts import existing as existing_artifact
from memoree.operations.call import Call
from memoree.operations.content import ArtifactContent, ContentInput
from memoree.operations.context import require_write_scope
from memoree.operations.registry import mutation
from memoree.operations.shapes import (
    DEFAULT_MEDIA_TYPE,
    Acknowledgement,
    Actor,
    ArtifactRecord,
    EntityId,
    ExternalId,
    Kind,
    MediaType,
    Reason,
    SourceCursor,
    Timestamp,
    Title,
    within_metadata_bounds,
)
from memoree.operations.sources import SourceRecord, existing, in_write_scope, update
from memoree.operations.view import Applied, Transaction, View

STORED_PROVENANCE_MEMBER = "memoree_source"
_LONGEST_INSTANT = "0001-01-01T00:00:00.000000001Z"
"""In place of the server's time while provenance is measured: a repeat must not fail for a longer fraction."""


class SourceIngest(WireModel):
    """One external item in one external revision. `kind` belongs to the item for as long as it lives."""

    source_id: EntityId
    external_id: ExternalId
    external_revision: ExternalId
    kind: Kind
    title: Title
    media_type: MediaType = DEFAULT_MEDIA_TYPE
    content: ContentInput
    provenance: dict[str, Any] = Field(default_factory=dict)
    observed_at: Timestamp | None = None
    cursor: SourceCursor | None = None
    actor: Actor | None = None

    @model_validator(mode="after")
    def _provenance_fits(self) -> SourceIngest:
        """As sent and as stored. The contract judges content first, so content that is at fault too is told instead."""
        try:
            within_metadata_bounds(self.provenance)
            within_metadata_bounds(self.stored_provenance(self.observed_at or _LONGEST_INSTANT))
        except ValueError as error:
            if isinstance(self.content, ArtifactContent):
                self.content.decoded()
            raise ValueError(f"provenance: {error} (the {STORED_PROVENANCE_MEMBER} member included)") from None
        return self

    def stored_provenance(self, observed_at: str) -> dict[str, Any]:
        """The caller's provenance, and where the item came from."""
        origin = {
            "source_id": self.source_id,
            "external_id": self.external_id,
            "external_revision": self.external_revision,
            "observed_at": clock.wire(observed_at),
        }
        return {**self.provenance, STORED_PROVENANCE_MEMBER: origin}

    def payload_digest(self, content_digest: bytes) -> bytes:
        """What an external revision stands for: BLAKE3, 32 bytes. When and by whom it was seen is no part of it."""
        payload = (self.kind, self.title, self.media_type, content_digest.hex(), self.provenance)
        return blake3(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)).digest()


class SourceWithdraw(WireModel):
    source_id: EntityId
    external_id: ExternalId
    reason: Annotated[Reason, Field(description="why the item is gone")]
    observed_at: Timestamp | None = None
    actor: Actor | None = None


class SourceItemRecord(BaseModel):
    """One item of a source with the artifact revision it was last delivered as (§4.21)."""

    source_id: str
    external_id: str
    external_revision: str
    artifact_id: str
    artifact_revision_id: str
    state: ItemState
    observed_at: str
    withdrawn_at: str | None = None
    withdrawal_reason: str | None = None
    updated_at: str
    commit_seq: int

    @classmethod
    def of(cls, source: Source, item: Item) -> SourceItemRecord:
        return cls(
            source_id=source.source_id,
            external_id=item.external_id,
            external_revision=item.external_revision,
            artifact_id=item.artifact_id,
            artifact_revision_id=item.artifact_revision_id,
            state=item.state,
            observed_at=clock.wire(item.observed_at),
            withdrawn_at=item.withdrawn_at and clock.wire(item.withdrawn_at),
            withdrawal_reason=item.withdrawal_reason,
            updated_at=clock.wire(item.updated_at),
            commit_seq=item.commit_seq,
        )


class Delivery(BaseModel):
    source: SourceRecord
    item: SourceItemRecord
    artifact: ArtifactRecord

    @classmethod
    def of(cls, source: Source, item: Item, artifact: Artifact, revision: Revision) -> Self:
        return cls(
            source=SourceRecord.of(source),
            item=SourceItemRecord.of(source, item),
            artifact=ArtifactRecord.of(artifact, revision),
        )


class DeliveryAcknowledgement(Delivery, Acknowledgement):
    """The result of `source.ingest`. `created` is true when an artifact was made, false also for a new revision."""


class Withdrawal(Delivery):
    erasure_performed: bool = False


class WithdrawalAcknowledgement(Withdrawal, Acknowledgement):
    """The result of `source.withdraw`."""


def _existing_item(view: View, source: Source, external_id: str) -> Item:
    item = rows.find_item(view.db, source, external_id)
    if item is None:
        not_found(f"item of source {shown(source.source_id)}", external_id)
    return item


def _artifact_in_write_scope(view: View, call: Call[Any], item: Item) -> None:
    artifact = existing_artifact(view, item.artifact_id)
    require_write_scope(call, artifact.owner, f"artifact {shown(artifact.artifact_id)}")


def _may_be_delivered(view: View, call: Call[SourceIngest]) -> None:
    """A live item's artifact is going to be revised; that of a withdrawn one is left alone."""
    source = in_write_scope(view, call)
    item = rows.find_item(view.db, source, call.input.external_id)
    if item is not None and item.state == "live":
        _artifact_in_write_scope(view, call, item)


def _may_be_withdrawn(view: View, call: Call[SourceWithdraw]) -> None:
    source = in_write_scope(view, call)
    _artifact_in_write_scope(view, call, _existing_item(view, source, call.input.external_id))


@mutation(
    "source.ingest",
    position=20,
    input=SourceIngest,
    result=DeliveryAcknowledgement,
    before_replay=_may_be_delivered,
    content=lambda input: input.content,
)
def ingest(tx: Transaction, call: Call[SourceIngest]) -> Applied:
    wanted = call.input
    refuse_hidden_kind(wanted.kind)
    source = existing(tx, wanted.source_id)
    item = rows.find_item(tx.db, source, wanted.external_id)
    arriving = _Arriving.of(tx, call, source)
    if item is None or item.state == "withdrawn":
        return _as_new_artifact(tx, call, arriving, item)
    artifact = existing_artifact(tx, item.artifact_id)
    _refuse_if_forgotten_directly(source, item, artifact)
    if item.external_revision == wanted.external_revision:
        return _as_before(tx, call, arriving, item, artifact)
    if arriving.node is not None and arriving.kind != artifact.kind:
        return _as_new_artifact(tx, call, arriving, item, replaced=artifact)
    return _as_revision(tx, call, arriving, item, artifact)


@mutation(
    "source.withdraw",
    position=22,
    input=SourceWithdraw,
    result=WithdrawalAcknowledgement,
    scope="forget",
    before_replay=_may_be_withdrawn,
)
def withdraw(tx: Transaction, call: Call[SourceWithdraw]) -> Applied:
    """An artifact that was forgotten directly keeps its first reason; its item is withdrawn all the same, so that the
    source can deliver it again."""
    wanted = call.input
    source = existing(tx, wanted.source_id)
    item = _existing_item(tx, source, wanted.external_id)
    artifact = existing_artifact(tx, item.artifact_id)
    head = artifacts.head_revision(tx.db, artifact)
    if item.state == "withdrawn":
        return Applied(Withdrawal.of(source, item, artifact, head), item.commit_seq, created=False)
    observed_at = wanted.observed_at or tx.now
    also = []
    if artifact.status == "active":
        artifact = tombstone(tx, artifact, wanted.reason)
        also = [Change("artifact", artifact.artifact_id, None, artifact.status)]
    withdrawn = replace(
        item,
        state="withdrawn",
        withdrawn_at=observed_at,
        withdrawal_reason=wanted.reason,
        updated_at=tx.now,
        commit_seq=tx.commit_seq,
    )
    _update_item(tx, source, item, withdrawn)
    seen = update(tx, source, last_observed_at=observed_at)
    commit_seq = _recorded(tx, call, seen, withdrawn, also)
    return Applied(Withdrawal.of(seen, withdrawn, artifact, head), commit_seq)


@dataclass(frozen=True, slots=True)
class _Arriving:
    """What is delivered. A bundle says itself what its nodes are: their kinds and titles stand in their files."""

    source: Source
    kind: str
    draft: Draft
    payload_digest: bytes
    node: Node | None = None

    @classmethod
    def of(cls, tx: Transaction, call: Call[SourceIngest], source: Source) -> _Arriving:
        """Raises what `okf_nodes.parsed` raises for a file of a bundle."""
        wanted, content = call.input, staged(call)
        if source.kind != okf_nodes.BUNDLE_KIND:
            return cls(source, wanted.kind, _draft(tx, call), wanted.payload_digest(content.digest))
        data = content_bytes(tx, content)
        node = okf_nodes.parsed(wanted.external_id, data)
        if wanted.external_revision != okf_nodes.external_revision(data):
            invalid("external_revision: the revision of a file of a bundle is the SHA-256 of its bytes, in hex")
        draft = replace(_draft(tx, call), title=okf_nodes.title_of(node), media_type=okf_nodes.MEDIA_TYPE)
        return cls(source, okf_nodes.kind_of(node), draft, content.digest, node)


def _as_new_artifact(
    tx: Transaction,
    call: Call[SourceIngest],
    arriving: _Arriving,
    before: Item | None,
    replaced: Artifact | None = None,
) -> Applied:
    """A new artifact, also for an item that comes back: what was withdrawn stays forgotten. So does one that is
    `replaced` since its file is of another kind now."""
    source = arriving.source
    also = []
    if replaced is not None:
        forgotten = tombstone(tx, replaced, f"its file became {arriving.kind}")
        also.append(Change("artifact", forgotten.artifact_id, None, forgotten.status))
    artifact, revision = create(tx, call.owner, arriving.kind, arriving.draft)
    row_id = tx.commit_seq if before is None else before.row_id
    item = _item_of(tx, call, arriving, artifact, revision, row_id=row_id)
    if before is None:
        rows.insert_item(tx.db, source, item)
        tx.sum.add(rows.item_entry(source, item))
    else:
        _update_item(tx, source, before, item)
    return _acknowledged(tx, call, arriving, item, artifact, revision, created=True, also=also)


def _as_before(
    tx: Transaction, call: Call[SourceIngest], arriving: _Arriving, item: Item, artifact: Artifact
) -> Applied:
    """Nothing is touched, not even the cursor. Raises `REVISION_CONFLICT` when the external revision stood for
    something else."""
    source = arriving.source
    revision = existing_revision(tx, artifact, item.artifact_revision_id)
    if arriving.payload_digest != item.payload_digest:
        told = ", ".join(_differences(call, artifact, revision)) or "provenance"  # a member that was not stored
        raise MemoreeError(
            Code.REVISION_CONFLICT,
            f"revision {shown(item.external_revision)} of item {shown(item.external_id)} was delivered with another "
            f"{told}; deliver the changed item under a new external revision",
            details={
                "entity_type": "source_item",
                "entity_id": _item_id(source, item),
                "current_revision": item.external_revision,
                "requested_revision": call.input.external_revision,
            },
        )
    return Applied(Delivery.of(source, item, artifact, revision), item.commit_seq, created=False)


def _differences(call: Call[SourceIngest], artifact: Artifact, revision: Revision) -> Iterator[str]:
    """The members in which a delivery is not the one that the revision came from."""
    wanted = call.input
    stored = {**orjson.loads(revision.provenance), STORED_PROVENANCE_MEMBER: None}
    sent = {**wanted.provenance, STORED_PROVENANCE_MEMBER: None}
    before = (artifact.kind, revision.title, revision.media_type, revision.blob_hash, stored)
    now = (wanted.kind, wanted.title, wanted.media_type, staged(call).digest, sent)
    for name, was, now_is in zip(("kind", "title", "media_type", "content", "provenance"), before, now, strict=True):
        if was != now_is:
            yield name


def _as_revision(
    tx: Transaction, call: Call[SourceIngest], arriving: _Arriving, item: Item, artifact: Artifact
) -> Applied:
    """A new revision of the item's artifact, on top of whatever revision is current."""
    if arriving.kind != artifact.kind:
        invalid(f"kind: item {shown(item.external_id)} is of kind {shown(artifact.kind)} for as long as it is live")
    revision = add_revision(tx, artifact, artifacts.head_revision(tx.db, artifact), arriving.draft)
    revised = _item_of(tx, call, arriving, artifact, revision, row_id=item.row_id)
    _update_item(tx, arriving.source, item, revised)
    return _acknowledged(tx, call, arriving, revised, artifact, revision, created=False)


def _acknowledged(
    tx: Transaction,
    call: Call[SourceIngest],
    arriving: _Arriving,
    item: Item,
    artifact: Artifact,
    revision: Revision,
    *,
    created: bool,
    also: Sequence[Change] = (),
) -> Applied:
    """A delivery that changed the store says that its source is well, and consumes the commit number."""
    source = arriving.source
    if arriving.node is not None:
        okf_nodes.index(tx, source, arriving.node, artifact, revision)
    seen = update(
        tx,
        source,
        health="healthy",
        health_message=None,
        cursor=source.cursor if call.input.cursor is None else call.input.cursor,
        last_observed_at=item.observed_at,
    )
    change = Change("artifact", artifact.artifact_id, revision.revision_id, artifact.status)
    commit_seq = _recorded(tx, call, seen, item, [*also, change])
    return Applied(Delivery.of(seen, item, artifact, revision), commit_seq, created=created)


def _refuse_if_forgotten_directly(source: Source, item: Item, artifact: Artifact) -> None:
    if artifact.status == "forgotten":
        raise MemoreeError(
            Code.INTEGRITY_ERROR,
            f"item {shown(item.external_id)} of source {shown(source.source_id)} is live, but its artifact "
            f"{shown(artifact.artifact_id)} was forgotten; withdraw the item, then deliver it again",
        )


def _draft(tx: Transaction, call: Call[SourceIngest]) -> Draft:
    wanted = call.input
    return Draft(
        title=wanted.title,
        media_type=wanted.media_type,
        content=staged(call),
        provenance=wanted.stored_provenance(wanted.observed_at or tx.now),
        actor=wanted.actor,
    )


def _item_of(
    tx: Transaction,
    call: Call[SourceIngest],
    arriving: _Arriving,
    artifact: Artifact,
    revision: Revision,
    *,
    row_id: int,
) -> Item:
    wanted = call.input
    return Item(
        external_id=wanted.external_id,
        external_revision=wanted.external_revision,
        payload_digest=arriving.payload_digest,
        artifact_id=artifact.artifact_id,
        artifact_row=artifact.row_id,
        artifact_revision_id=revision.revision_id,
        artifact_revision_row=revision.row_id,
        state="live",
        observed_at=wanted.observed_at or tx.now,
        withdrawn_at=None,
        withdrawal_reason=None,
        updated_at=tx.now,
        commit_seq=tx.commit_seq,
        row_id=row_id,
    )


def _update_item(tx: Transaction, source: Source, item: Item, changed: Item) -> None:
    rows.update_item(tx.db, changed)
    tx.sum.replace(rows.item_entry(source, item), rows.item_entry(source, changed))


def _item_id(source: Source, item: Item) -> str:
    return f"{source.source_id}:{item.external_id}"


def _recorded(
    tx: Transaction,
    call: Call[SourceIngest] | Call[SourceWithdraw],
    source: Source,
    item: Item,
    also: Sequence[Change],
) -> int:
    """Consume the commit number. The event keeps what the next one overwrites in the rows."""
    return tx.record_event(
        call.operation.name,
        "source_item",
        _item_id(source, item),
        revision_id=item.external_revision,
        actor=call.input.actor,
        payload={"status": item.state, "reason": item.withdrawal_reason, "cursor": source.cursor},
        also=also,
    )
