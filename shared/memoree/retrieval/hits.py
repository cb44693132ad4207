"""Hits: the page of a search, filled from rows. Only what is shown is read (machine protocol §4.30.4).

The shapes are plain dataclasses: a page is built for every search, and none of its values needs validation.
Stored provenance and statements are data of their authors: they are returned, never interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import apsw

from memoree import clock
from memoree.retrieval.candidates import Candidate
from memoree.retrieval.entities import Entity, HitContext, Instant, entities_of
from memoree.retrieval.expression import EntityType
from memoree.retrieval.projections import ANCHOR_POLICY, PROJECTION_POLICY
from memoree.retrieval.qualify import FUSION_POLICY, LEXICAL_POLICY, TYPO_POLICY, Facts, facts_of
from memoree.retrieval.query import Query
from memoree.retrieval.recency import (
    PROMOTION_MAX,
    RECENCY_POLICY,
    Standing,
    bonus,
    promoted,
)

RETENTION_POLICY: Final = "conflict_retention_v1"
RETENTION_REASON = "disputed: kept in the place of a lower hit, so that the contradiction is seen"


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
        return Standing((*tier, facts.matched_units, self.candidate.is_derived), self.score)


def ranked_of(
    db: apsw.Connection, query: Query, candidates: Sequence[Candidate], *, now: str, recency: bool
) -> list[Ranked]:
    """The candidates, in the order given, with what their rows say and what recency would add to their scores."""
    instant = Instant(now)
    entities = entities_of(db, candidates, instant)
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
        provenance=_provenance(item),
    )


def _provenance(item: Ranked) -> dict[str, Any]:
    provenance = {
        **item.entity.provenance,
        "retrieval_tier": "exact_match" if item.facts.exact_tier else "candidate",
        "model_independent_ranking": True,
    }
    if item.candidate.is_retained:
        provenance["conflict_retention"] = {"policy_version": RETENTION_POLICY, "reason": RETENTION_REASON}
    return provenance


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
    if candidate.projection is not None:
        names.append(PROJECTION_POLICY)
    if candidate.is_anchored and not facts.qualified:
        names.append(ANCHOR_POLICY)
    names.append(FUSION_POLICY)
    if item.entity.shows_span:
        names.append("artifact_citation_span_v1")
    if candidate.is_retained:
        names.append(RETENTION_POLICY)
    if recency:
        names.append(RECENCY_POLICY)
    return names
