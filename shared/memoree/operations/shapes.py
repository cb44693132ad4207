"""Shapes that several operations share: typed inputs, and the records that results are made of (§4.0).

Inputs are strict (`WireModel`). Records are plain models: the program fills them from rows it wrote itself, and a
member without a value is `None` here and absent on the wire.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema, model_validator

from memoree import clock, limits
from memoree.database import artifacts, claims
from memoree.envelope import Horizon, WireModel, bounded, length
from memoree.operations.content import ArtifactContent
from memoree.owner import Owner

DEFAULT_MEDIA_TYPE = "text/plain; charset=utf-8"
ClaimType = Literal["fact", "decision", "constraint", "preference", "procedure", "observation"]
ClaimStatus = Literal["active", "superseded", "retracted", "conflicted"]
ArtifactStatus = Literal["active", "forgotten"]


def _media_type(text: str) -> str:
    if "/" not in text:
        raise ValueError("must contain '/', as in text/plain")
    return text


def _reason_size(text: str) -> str:
    if (size := len(text.encode())) > limits.REASON_BYTES_MAX:
        raise ValueError(f"must be at most {limits.REASON_BYTES_MAX} bytes, got {size}")
    return text


def within_metadata_bounds(value: dict[str, Any]) -> dict[str, Any]:
    """A free-form map, unless it leaves its encoded size or nesting: `ValueError`. Without enough brackets it cannot be
    too deep."""
    try:
        encoded = orjson.dumps(value)
    except TypeError:
        raise ValueError(_TOO_DEEP) from None
    if len(encoded) > limits.METADATA_BYTES_MAX:
        raise ValueError(f"must be at most {limits.METADATA_BYTES_MAX} bytes of JSON, got {len(encoded)}")
    brackets = encoded.count(b"{") + encoded.count(b"[")
    if brackets > limits.METADATA_DEPTH_MAX and _depth(value) > limits.METADATA_DEPTH_MAX:
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"must not nest deeper than {limits.METADATA_DEPTH_MAX} levels"


def _depth(value: Any) -> int:
    """Levels of nesting; finite, because the value has been encoded before."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return int(isinstance(value, dict | list)) + max(map(_depth, children), default=0)


EntityId = Annotated[str, bounded(limits.ID_BYTES_MAX), length(limits.ID_BYTES_MAX)]
Kind = Annotated[str, bounded(limits.KIND_BYTES_MAX), length(limits.KIND_BYTES_MAX)]
Title = Annotated[str, bounded(limits.TITLE_BYTES_MAX), length(limits.TITLE_BYTES_MAX)]
MediaType = Annotated[
    str,
    bounded(limits.MEDIA_TYPE_BYTES_MAX),
    AfterValidator(_media_type),
    length(limits.MEDIA_TYPE_BYTES_MAX, pattern="/"),
]
Actor = Annotated[str, bounded(limits.ACTOR_BYTES_MAX), length(limits.ACTOR_BYTES_MAX)]
Reason = Annotated[str, bounded(limits.REASON_BYTES_MAX), length(limits.REASON_BYTES_MAX)]
Statement = Annotated[str, bounded(limits.STATEMENT_BYTES_MAX), length(limits.STATEMENT_BYTES_MAX)]
SourceName = Annotated[str, bounded(limits.SOURCE_NAME_BYTES_MAX), length(limits.SOURCE_NAME_BYTES_MAX)]
SourceLocator = Annotated[str, bounded(limits.SOURCE_LOCATOR_BYTES_MAX), length(limits.SOURCE_LOCATOR_BYTES_MAX)]
SourceCursor = Annotated[str, bounded(limits.SOURCE_CURSOR_BYTES_MAX), length(limits.SOURCE_CURSOR_BYTES_MAX)]
HealthMessage = Annotated[str, bounded(limits.HEALTH_MESSAGE_BYTES_MAX), length(limits.HEALTH_MESSAGE_BYTES_MAX)]
ExternalId = Annotated[str, bounded(limits.EXTERNAL_ID_BYTES_MAX), length(limits.EXTERNAL_ID_BYTES_MAX)]
ProjectionKey = Annotated[str, bounded(limits.PROJECTION_KEY_BYTES_MAX), length(limits.PROJECTION_KEY_BYTES_MAX)]
ProjectionText = Annotated[str, bounded(limits.PROJECTION_TEXT_BYTES_MAX), length(limits.PROJECTION_TEXT_BYTES_MAX)]
GeneratorTag = Annotated[str, bounded(limits.GENERATOR_TAG_BYTES_MAX), length(limits.GENERATOR_TAG_BYTES_MAX)]
Metadata = Annotated[dict[str, Any], AfterValidator(within_metadata_bounds)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
ByteOffset = Annotated[int, Field(ge=0)]
RevisionCursor = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
"""A signed 64-bit integer."""
HorizonReason = Annotated[
    str,
    AfterValidator(_reason_size),
    WithJsonSchema({"type": "string", "maxLength": limits.REASON_BYTES_MAX}),
]
PageCursor = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""An exclusive upper bound of commit or sequence numbers, counted from 1."""
FIRST_PAGE = 2**63 - 1
"""The cursor of who sends none: before it lies everything."""
Timestamp = Annotated[str, AfterValidator(clock.parse_timestamp), Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 with any offset on the wire; the stored form once validated (§5.3)."""


class EmptyInput(WireModel):
    """The input of operations without parameters: `{}`."""


class EvidenceLocator(WireModel):
    """Bytes of one artifact revision, or all of it when both offsets are absent (§4.0.2)."""

    artifact_id: EntityId
    revision_id: EntityId
    start_byte: ByteOffset | None = None
    end_byte: ByteOffset | None = None

    @model_validator(mode="after")
    def _offsets_make_a_span(self) -> EvidenceLocator:
        if self.start_byte is None and self.end_byte is None:
            return self
        if self.start_byte is None or self.end_byte is None:
            raise ValueError("start_byte and end_byte come together or not at all")
        if self.start_byte >= self.end_byte:
            raise ValueError("start_byte must be less than end_byte")
        return self


EvidenceLocators = Annotated[list[EvidenceLocator], Field(max_length=limits.EVIDENCE_ITEMS_MAX)]


class HorizonInput(WireModel):
    """A read that may look beyond the ambient context, with a reason; without need of one it is ignored (§2.5)."""

    horizon: Horizon = "ambient"
    reason: HorizonReason | None = None


class HistoryPage(WireModel):
    """What `artifact.history` and `claim.history` have in common. The cursor is exclusive; nothing is older than
    revision 1, so cursors up to 1, zero and negative ones included, give an empty last page (§4.14)."""

    limit: Annotated[int, Field(ge=1, le=limits.HISTORY_ITEMS_MAX)] = limits.HISTORY_ITEMS_DEFAULT
    before_revision_number: RevisionCursor | None = None

    def before(self, revision_count: int) -> int:
        """The cursor that was sent, or the one that starts at the newest revision."""
        return revision_count + 1 if self.before_revision_number is None else self.before_revision_number


class RecordContext(BaseModel):
    """The owner of a stored record; `pins` is always empty (§2.1)."""

    workspace_id: str
    project_id: str
    task_id: str | None = None
    component: str | None = None
    pins: list[str]

    @classmethod
    def of(cls, owner: Owner) -> RecordContext:
        return cls(**owner.to_wire())


class Acknowledgement(BaseModel):
    """What every mutation adds to its record (§4.0.5). `created` is false for a repeat and for a no-op."""

    commit_seq: int
    created: bool


class ArtifactRecord(BaseModel):
    """One revision of an artifact with the artifact's current lifecycle (§4.0.3). Sizes are bytes."""

    artifact_id: str
    revision_id: str
    revision_number: int
    kind: str
    title: str
    media_type: str
    content: ArtifactContent | None = None
    blob_hash: str
    size_bytes: int
    status: ArtifactStatus
    context: RecordContext
    provenance: dict[str, Any]
    actor: str | None = None
    created_at: str
    revision_created_at: str
    revision_commit_seq: int
    forgotten_reason: str | None = None
    physically_erased: bool | None = None
    retention_notice: str | None = None

    @classmethod
    def of(
        cls, artifact: artifacts.Artifact, revision: artifacts.Revision, content: ArtifactContent | None = None
    ) -> ArtifactRecord:
        return cls(
            artifact_id=artifact.artifact_id,
            revision_id=revision.revision_id,
            revision_number=revision.revision_number,
            kind=artifact.kind,
            title=revision.title,
            media_type=revision.media_type,
            content=content,
            blob_hash=revision.blob_hash.hex(),
            size_bytes=revision.size_bytes,
            status=artifact.status,
            context=RecordContext.of(artifact.owner),
            provenance=orjson.loads(revision.provenance),
            actor=revision.actor,
            created_at=clock.wire(artifact.created_at),
            revision_created_at=clock.wire(revision.created_at),
            revision_commit_seq=revision.row_id,
            forgotten_reason=artifact.forgotten_reason,
        )


class EvidenceRecord(BaseModel):
    """An evidence locator as it was asserted."""

    artifact_id: str
    revision_id: str
    start_byte: int | None = None
    end_byte: int | None = None

    @classmethod
    def of(cls, item: claims.Evidence) -> EvidenceRecord:
        return cls(
            artifact_id=item.artifact_id,
            revision_id=item.revision_id,
            start_byte=item.start_byte,
            end_byte=item.end_byte,
        )


class ClaimRecord(BaseModel):
    """One revision of a claim with the claim's current lifecycle (§4.0.4)."""

    claim_id: str
    revision_id: str
    revision_number: int
    claim_type: ClaimType
    status: ClaimStatus
    statement: str
    confidence: float | None = None
    evidence: list[EvidenceRecord]
    valid_from: str | None = None
    valid_until: str | None = None
    context: RecordContext
    actor: str | None = None
    created_at: str
    revision_created_at: str
    revision_commit_seq: int
    retraction_reason: str | None = None

    @classmethod
    def of(cls, claim: claims.Claim, revision: claims.Revision, evidence: list[EvidenceRecord]) -> ClaimRecord:
        return cls(
            claim_id=claim.claim_id,
            revision_id=revision.revision_id,
            revision_number=revision.revision_number,
            claim_type=claim.claim_type,
            status=claim.status,
            statement=revision.statement,
            confidence=revision.confidence,
            evidence=evidence,
            valid_from=claim.valid_from and clock.wire(claim.valid_from),
            valid_until=claim.valid_until and clock.wire(claim.valid_until),
            context=RecordContext.of(claim.owner),
            actor=revision.actor,
            created_at=clock.wire(claim.created_at),
            revision_created_at=clock.wire(revision.created_at),
            revision_commit_seq=revision.row_id,
            retraction_reason=claim.retraction_reason,
        )


class ArtifactAcknowledgement(ArtifactRecord, Acknowledgement):
    """The result of an artifact mutation."""


class ClaimAcknowledgement(ClaimRecord, Acknowledgement):
    """The result of a claim mutation."""


class ArtifactHistory(BaseModel):
    """Newest first; the cursor is there when older revisions are."""

    revisions: list[ArtifactRecord]
    truncated: bool
    next_before_revision_number: int | None = None


class ClaimHistory(BaseModel):
    """Newest first; the cursor is there when older revisions are."""

    revisions: list[ClaimRecord]
    truncated: bool
    next_before_revision_number: int | None = None
