"""What hits show of the rows they stand for: titles, excerpts, citations, provenance. Only what is shown is read.

Stored provenance and statements are data of their authors: they are returned, never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import apsw
import orjson

from memoree import clock
from memoree.citation import ArtifactCitation, Span, claim_citation
from memoree.database.connection import one
from memoree.retrieval.candidates import Candidate, ProjectionMatch
from memoree.retrieval.chunker import CHUNKER_VERSION
from memoree.retrieval.excerpts import cut
from memoree.retrieval.expression import EntityType
from memoree.retrieval.recency import DecayClass, artifact_class, claim_class

PREVIEW_BYTES_MAX = 512
COORDINATE_SPACE = "immutable_artifact_bytes"
RETRIEVAL_MEMBERS = frozenset(
    {
        "retrieval_span",
        "retrieval_match",
        "retrieval_tier",
        "model_independent_ranking",
        "derived_projection",
        "derived_from",
        "conflict_retention",
    }
)
"""Of the provenance of a hit: what retrieval alone says. An author who stores one of these says nothing by it."""
_LIVE_CLAIM = ("active", "conflicted")

_CLAIMS = """
    SELECT r.row_id, e.claim_id, r.revision_id, e.claim_type, e.status, r.statement, r.confidence, e.valid_from,
        e.valid_until, r.created_at, e.head_row = r.row_id, e.workspace_id, e.project_id, e.task_id, e.component
    FROM json_each(?) AS page
    CROSS JOIN claim_revisions AS r ON r.row_id = page.value
    CROSS JOIN claims AS e ON e.row_id = r.claim_row
"""
_EVIDENCE = """
    SELECT v.claim_revision_row, a.artifact_id, r.revision_id, v.start_byte, v.end_byte
    FROM json_each(?) AS page
    CROSS JOIN claim_evidence AS v ON v.claim_revision_row = page.value
    CROSS JOIN artifact_revisions AS r ON r.row_id = v.artifact_revision_row
    CROSS JOIN artifacts AS a ON a.row_id = r.artifact_row
    ORDER BY v.claim_revision_row, v.ordinal
"""
_ARTIFACTS = """
    SELECT r.row_id, e.artifact_id, r.revision_id, e.kind, e.status, r.title, r.provenance, r.created_at,
        e.head_row = r.row_id, e.workspace_id, e.project_id, e.task_id, e.component, c.start_byte, c.end_byte,
        coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT)), d.citations
    FROM json_each(?) AS page
    CROSS JOIN artifact_revisions AS r ON r.row_id = page.value ->> 0
    CROSS JOIN artifacts AS e ON e.row_id = r.artifact_row
    LEFT JOIN artifact_chunks AS c ON c.row_id = page.value ->> 1
    LEFT JOIN derivations AS d ON d.revision_row = r.row_id
"""
"""A candidate of a forgotten artifact has no chunk: it is known by its title only."""
_PROJECTION = """
    SELECT projection_id, kind, generator, generator_version, generator_digest, text, evidence_spans
    FROM projections WHERE row_id = ?
"""
_SPANNED = """
    SELECT c.start_byte, c.end_byte,
        coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT))
    FROM artifact_chunks AS c CROSS JOIN artifact_revisions AS r ON r.row_id = c.revision_row
    WHERE c.revision_row = ?1 AND c.end_byte > ?2 AND c.start_byte < ?3 ORDER BY c.ordinal
"""


@dataclass(frozen=True, slots=True)
class HitContext:
    """The owner of an entity; `pins` is always empty."""

    workspace_id: str
    project_id: str
    task_id: str | None
    component: str | None
    pins: list[str]


@dataclass(frozen=True, slots=True)
class Instant:
    """The one instant at which a request is judged, in stored form."""

    stored: str

    @property
    def wire(self) -> str:
        return clock.wire(self.stored)


@dataclass(frozen=True, slots=True)
class Entity:
    """What a hit shows of its revision."""

    entity_id: str
    revision_id: str
    status: str
    title: str
    excerpt: str
    citation: str
    context: HitContext
    provenance: dict[str, Any]
    shows_span: bool
    decay: DecayClass
    effective_at: str
    effective_at_basis: Literal["revision_created_at", "valid_from"]
    is_current: bool


def entities_of(
    db: apsw.Connection, members: Iterable[Candidate], instant: Instant
) -> dict[tuple[EntityType, int], Entity]:
    claims: list[int] = []
    artifacts: list[tuple[int, int | None]] = []
    projected: dict[int, tuple[ProjectionMatch, bool]] = {}
    for member in members:
        if member.entity_type == "claim":
            claims.append(member.revision_row)
            continue
        artifacts.append((member.revision_row, member.chunk_row))
        if member.projection is not None:
            only_projected = not member.units and member.typo is None
            projected[member.revision_row] = (member.projection, only_projected)
    found: dict[tuple[EntityType, int], Entity] = {}
    if claims:
        found.update(_claims(db, orjson.dumps(claims).decode(), instant))
    if artifacts:
        rows: Iterable[tuple[Any, ...]] = db.execute(_ARTIFACTS, (orjson.dumps(artifacts).decode(),))
        found.update({("artifact", row[0]): _artifact(row) for row in rows})
    for revision_row, (match, only_projected) in projected.items():
        found["artifact", revision_row] = _projected(
            db, found["artifact", revision_row], revision_row, match, with_span=only_projected
        )
    return found


def _claims(db: apsw.Connection, page: str, instant: Instant) -> dict[tuple[EntityType, int], Entity]:
    evidence: dict[int, list[dict[str, Any]]] = {}
    rows: Iterable[tuple[Any, ...]] = db.execute(_EVIDENCE, (page,))
    for revision_row, artifact_id, revision_id, start, end in rows:
        locator = {"artifact_id": artifact_id, "revision_id": revision_id}
        if start is not None:
            locator |= {"start_byte": start, "end_byte": end}
        evidence.setdefault(revision_row, []).append(locator)
    rows = db.execute(_CLAIMS, (page,))
    return {("claim", row[0]): _claim(row, evidence.get(row[0], []), instant) for row in rows}


def _claim(row: tuple[Any, ...], evidence: list[dict[str, Any]], instant: Instant) -> Entity:
    (_, claim_id, revision_id, claim_type, status, statement, confidence) = row[:7]
    (valid_from, valid_until, created_at, is_head) = row[7:11]
    temporal = temporal_state(valid_from, valid_until, instant.stored)
    is_current = bool(is_head) and status in _LIVE_CLAIM and temporal == "current"
    provenance = {"claim_type": claim_type, "evidence": evidence}
    if confidence is not None:
        provenance["confidence"] = confidence
    provenance |= {
        "valid_from": clock.wire(valid_from) if valid_from else None,
        "valid_until": clock.wire(valid_until) if valid_until else None,
        "evaluated_at": instant.wire,
        "temporal_state": temporal,
        "is_current_revision": bool(is_head),
        "is_current": is_current,
    }
    return Entity(
        entity_id=claim_id,
        revision_id=revision_id,
        status=status,
        title=f"{claim_type} claim",
        excerpt=statement,
        citation=claim_citation(claim_id, revision_id),
        context=_context(row[11:15]),
        provenance=provenance,
        shows_span=False,
        decay=claim_class(claim_type),
        effective_at=valid_from or created_at,
        effective_at_basis="valid_from" if valid_from else "revision_created_at",
        is_current=is_current,
    )


def _artifact(row: tuple[Any, ...]) -> Entity:
    (_, artifact_id, revision_id, kind, status, title, stored_provenance, created_at, is_head) = row[:9]
    start, end, excerpt, quoted = row[13:17]
    citation = ArtifactCitation(artifact_id, revision_id)
    stored = orjson.loads(stored_provenance)
    provenance = {name: said for name, said in stored.items() if name not in RETRIEVAL_MEMBERS}
    if excerpt is not None:
        citation = citation._replace(span=Span(start, end))
        provenance["retrieval_span"] = _span(start, end)
    else:
        provenance["retrieval_match"] = "title"
    if quoted is not None:
        provenance["derived_from"] = orjson.loads(quoted)
    return Entity(
        entity_id=artifact_id,
        revision_id=revision_id,
        status=status,
        title=title,
        excerpt=title if excerpt is None else excerpt,
        citation=str(citation),
        context=_context(row[9:13]),
        provenance=provenance,
        shows_span=excerpt is not None,
        decay=artifact_class(kind),
        effective_at=created_at,
        effective_at_basis="revision_created_at",
        is_current=bool(is_head) and status == "active",
    )


def _span(start: int, end: int) -> dict[str, Any]:
    return {
        "start_byte": start,
        "end_byte": end,
        "chunker_version": CHUNKER_VERSION,
        "coordinate_space": COORDINATE_SPACE,
    }


def _projected(
    db: apsw.Connection, entity: Entity, revision_row: int, match: ProjectionMatch, *, with_span: bool
) -> Entity:
    """The artifact with what led to it. Found by nothing else, it shows the first span that its projection cites."""
    row = one(db, _PROJECTION, (match.projection_row,))
    assert row is not None, f"projection {match.projection_row} is not in the store"
    projection_id, kind, generator, version, digest, text, stored_spans = row
    spans = orjson.loads(stored_spans)
    provenance = {
        **entity.provenance,
        "derived_projection": {
            "projection_id": projection_id,
            "kind": kind,
            "generator": generator,
            "generator_version": version,
            "generator_digest": digest,
            "candidate_only": True,
            "projection_score": match.score,
            "matched_text_preview": cut(text, PREVIEW_BYTES_MAX),
            "evidence_spans": [{"start_byte": start, "end_byte": end} for start, end in spans],
        },
    }
    if not with_span or (excerpt := _text_of(db, revision_row, Span(*spans[0]))) is None:
        return replace(entity, provenance=provenance)
    del provenance["retrieval_match"]
    citation = ArtifactCitation(entity.entity_id, entity.revision_id, Span(*spans[0]))
    provenance["retrieval_span"] = _span(*spans[0])
    return replace(entity, excerpt=excerpt, citation=str(citation), provenance=provenance, shows_span=True)


def _text_of(db: apsw.Connection, revision_row: int, span: Span) -> str | None:
    """The text of a span, if it is one: projections may cite bytes that are none."""
    rows: Sequence[tuple[Any, ...]] = db.execute(_SPANNED, (revision_row, span.start, span.end)).fetchall()
    if not rows or rows[-1][1] < span.end:
        return None
    first = rows[0][0]
    data = "".join(text for _, _, text in rows).encode()[span.start - first : span.end - first]
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def temporal_state(
    valid_from: str | None, valid_until: str | None, now: str
) -> Literal["current", "future", "expired"]:
    """Where `now` lies about the half-open interval; all three in stored form."""
    if valid_from is not None and valid_from > now:
        return "future"
    if valid_until is not None and valid_until <= now:
        return "expired"
    return "current"


def _context(owner: Sequence[Any]) -> HitContext:
    workspace_id, project_id, task_id, component = owner
    return HitContext(workspace_id, project_id, task_id, component, pins=[])
