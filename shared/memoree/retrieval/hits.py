"""Hits: the page of a search, filled from rows. Only what is shown is read (machine protocol §4.30.4).

The shapes are plain dataclasses: a page is built for every search, and none of its values needs validation.
Stored provenance and statements are data of their authors: they are returned, never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw
import orjson

from memoree import clock
from memoree.citation import ArtifactCitation, Span, claim_citation
from memoree.retrieval.candidates import Candidate, EntityType
from memoree.retrieval.chunker import CHUNKER_VERSION
from memoree.retrieval.qualify import FUSION_POLICY, LEXICAL_POLICY, TYPO_POLICY, Facts, facts_of
from memoree.retrieval.query import Query
from memoree.retrieval.recency import (
    PROMOTION_MAX,
    RECENCY_POLICY,
    DecayClass,
    Standing,
    artifact_class,
    bonus,
    claim_class,
    promoted,
)

COORDINATE_SPACE = "immutable_artifact_bytes"
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
        coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT))
    FROM json_each(?) AS page
    CROSS JOIN artifact_revisions AS r ON r.row_id = page.value ->> 0
    CROSS JOIN artifacts AS e ON e.row_id = r.artifact_row
    LEFT JOIN artifact_chunks AS c ON c.row_id = page.value ->> 1
"""
"""A candidate of a forgotten artifact has no chunk: it is known by its title only."""


@dataclass(frozen=True, slots=True)
class HitContext:
    """The owner of an entity; `pins` is always empty."""

    workspace_id: str
    project_id: str
    task_id: str | None
    component: str | None
    pins: list[str]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Why a hit stands where it does. Positions count from 1; scores are comparable within one answer only."""

    policy_version: Literal["bounded_recency_v1"]
    recency_enabled: bool
    recency_eligible: bool
    lexical_score: float
    recency_bonus: float
    lexical_position: int
    final_position: int
    max_promotion: int
    effective_at: str
    effective_at_basis: Literal["revision_created_at", "valid_from"]
    evaluated_at: str
    decay_class: str
    lexical_policy_version: str
    trigram_policy_version: str
    fusion_policy_version: str
    query_unit_count: int
    matched_unit_count: int
    required_matches: int
    lexical_coverage: float
    phrase_group_count: int
    matched_phrase_group_count: int
    lexical_qualified: bool
    trigram_qualified: bool
    semantic_qualified: Literal[False]
    qualified: bool
    matched_terms: list[str]
    matched_phrase_groups: list[str]
    trigram_matched_terms: list[str]
    trigram_similarity: float | None
    exact_tier: bool
    fusion_score: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One ranked reference; `excerpt` is exactly what `citation` names."""

    entity_type: EntityType
    entity_id: str
    revision_id: str
    status: str
    title: str
    excerpt: str
    citation: str
    context: HitContext
    score: float
    ranking: Ranking
    matched_by: list[str]
    provenance: dict[str, Any]


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


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with what its row says, on its way to its place on a page."""

    candidate: Candidate
    facts: Facts
    entity: Entity
    recency_eligible: bool
    recency_bonus: float

    @property
    def score(self) -> float:
        return self.candidate.fusion_score + self.recency_bonus

    @property
    def standing(self) -> Standing:
        facts = self.facts
        tier = (facts.exact_tier, facts.lexical_qualified, facts.typo_qualified, facts.matched_phrases)
        return Standing((*tier, facts.matched_units), self.score)


def ranked_of(
    db: apsw.Connection, query: Query, candidates: Sequence[Candidate], *, now: str, recency: bool
) -> list[Ranked]:
    """The candidates, in the order given, with what their rows say and what recency would add to their scores."""
    instant = Instant(now)
    entities = _entities(db, candidates, instant)
    ranked = []
    for candidate in candidates:
        entity = entities[candidate.entity_type, candidate.revision_row]
        eligible = entity.is_current and entity.effective_at <= now
        gained = 0.0
        if recency and eligible:
            effective = clock.from_stored(entity.effective_at)
            gained = bonus(candidate.fusion_score, entity.decay, effective, clock.from_stored(now))
        ranked.append(Ranked(candidate, facts_of(query, candidate), entity, eligible, gained))
    return ranked


def placed(query: Query, page: Sequence[Ranked], *, now: str, recency: bool) -> list[Hit]:
    """The hits of a page whose membership is final, given in relevance order, in their final order."""
    instant = Instant(now)
    positions = list(enumerate(page, start=1))
    final = promoted([(item, item[1].standing) for item in positions]) if recency else positions
    return [
        _hit(query, item, position, place, instant=instant, recency=recency)
        for place, (position, item) in enumerate(final, start=1)
    ]


def _hit(query: Query, item: Ranked, position: int, place: int, *, instant: Instant, recency: bool) -> Hit:
    entity = item.entity
    return Hit(
        entity_type=item.candidate.entity_type,
        entity_id=entity.entity_id,
        revision_id=entity.revision_id,
        status=entity.status,
        title=entity.title,
        excerpt=entity.excerpt,
        citation=entity.citation,
        context=entity.context,
        score=item.score,
        ranking=_ranking(query, item, position, place, instant=instant, recency=recency),
        matched_by=_matched_by(item, recency=recency),
        provenance={
            **entity.provenance,
            "retrieval_tier": "exact_match" if item.facts.exact_tier else "candidate",
            "model_independent_ranking": True,
        },
    )


def _ranking(query: Query, item: Ranked, position: int, place: int, *, instant: Instant, recency: bool) -> Ranking:
    candidate, facts, entity = item.candidate, item.facts, item.entity
    phrases = query.phrase_mask
    return Ranking(
        policy_version=RECENCY_POLICY,
        recency_enabled=recency,
        recency_eligible=item.recency_eligible,
        lexical_score=candidate.lexical_score,
        recency_bonus=item.recency_bonus,
        lexical_position=position,
        final_position=place,
        max_promotion=PROMOTION_MAX,
        effective_at=clock.wire(entity.effective_at),
        effective_at_basis=entity.effective_at_basis,
        evaluated_at=instant.wire,
        decay_class=entity.decay.name,
        lexical_policy_version=LEXICAL_POLICY,
        trigram_policy_version=TYPO_POLICY,
        fusion_policy_version=FUSION_POLICY,
        query_unit_count=len(query.units),
        matched_unit_count=facts.matched_units,
        required_matches=query.required_matches,
        lexical_coverage=facts.coverage,
        phrase_group_count=phrases.bit_count(),
        matched_phrase_group_count=facts.matched_phrases,
        lexical_qualified=facts.lexical_qualified,
        trigram_qualified=facts.typo_qualified,
        semantic_qualified=False,
        qualified=facts.qualified,
        matched_terms=_displays(query, candidate.units),
        matched_phrase_groups=_displays(query, candidate.units & phrases),
        trigram_matched_terms=_displays(query, candidate.typo.units) if candidate.typo else [],
        trigram_similarity=candidate.typo.similarity if candidate.typo else None,
        exact_tier=facts.exact_tier,
        fusion_score=candidate.fusion_score,
    )


def _displays(query: Query, mask: int) -> list[str]:
    return [unit.display for number, unit in enumerate(query.units) if mask >> number & 1]


def _matched_by(item: Ranked, *, recency: bool) -> list[str]:
    candidate, facts = item.candidate, item.facts
    names = []
    if candidate.units:
        names += ["fts5_bm25", LEXICAL_POLICY if facts.lexical_qualified else "lexical_candidate_v1"]
    if candidate.typo is not None:
        names.append(TYPO_POLICY if facts.typo_qualified else "trigram_candidate_v1")
    names.append(FUSION_POLICY)
    if item.entity.shows_span:
        names.append("artifact_citation_span_v1")
    if recency:
        names.append(RECENCY_POLICY)
    return names


def _entities(
    db: apsw.Connection, members: Iterable[Candidate], instant: Instant
) -> dict[tuple[EntityType, int], Entity]:
    claims: list[int] = []
    artifacts: list[tuple[int, int | None]] = []
    for member in members:
        if member.entity_type == "claim":
            claims.append(member.revision_row)
        else:
            artifacts.append((member.revision_row, member.chunk_row))
    found: dict[tuple[EntityType, int], Entity] = {}
    if claims:
        found.update(_claims(db, orjson.dumps(claims).decode(), instant))
    if artifacts:
        rows: Iterable[tuple[Any, ...]] = db.execute(_ARTIFACTS, (orjson.dumps(artifacts).decode(),))
        found.update({("artifact", row[0]): _artifact(row) for row in rows})
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
    start, end, excerpt = row[13:16]
    citation = ArtifactCitation(artifact_id, revision_id)
    provenance = orjson.loads(stored_provenance)
    if excerpt is not None:
        citation = citation._replace(span=Span(start, end))
        provenance["retrieval_span"] = {
            "start_byte": start,
            "end_byte": end,
            "chunker_version": CHUNKER_VERSION,
            "coordinate_space": COORDINATE_SPACE,
        }
    else:
        provenance["retrieval_match"] = "title"
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
