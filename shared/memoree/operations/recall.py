"""`memory.recall`: what memory holds about a question, claims first (machine protocol §4.31, retrieval contract §3).

Claims and artifacts are looked for separately and never compete for places. What qualified decides `presence`; weak
candidates are told apart and change nothing. Relevance chooses who is shown, recency only orders those.

For operations that give the same answer in another form, such as `memory.retrieve`:

    class RetrieveInput(RecallFields): ...            max_claims, max_artifact_refs, max_excerpt_bytes
    lookup = open_lookup(view, call, [*recall_bounds(wanted), ...])
    answer = recalled(lookup, wanted)                 a `Recalled`: presence, claims, conflicts, artifact refs, pools

Its claims are `RecalledClaim`s and its refs `RecalledArtifact`s. A result model that declares `list[ClaimAnswer]` and
`list[ArtifactReference]`, their bases, shows them without score, matched_by and status.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from memoree import limits
from memoree.citation import parse
from memoree.envelope import Horizon
from memoree.operations.call import Call
from memoree.operations.lookup import (
    Bound,
    Lookup,
    LookupInput,
    QueryAnalysis,
    RerankerStatus,
    SemanticStatus,
    open_lookup,
)
from memoree.operations.registry import read
from memoree.operations.view import View
from memoree.retrieval.candidates import Candidate
from memoree.retrieval.disputes import Dispute, open_disputes, relation_ids
from memoree.retrieval.engine import Pool, cut
from memoree.retrieval.evidence import EvidenceItem, evidence_of
from memoree.retrieval.excerpts import Excerpt, excerpt
from memoree.retrieval.excerpts import cut as cut_text
from memoree.retrieval.hits import Hit, Ranked
from memoree.retrieval.qualify import coverage
from memoree.retrieval.risk import risk_signals
from memoree.retrieval.window import Answer, choose

Presence = Literal["claims", "artifacts_only", "none"]
CLAIMS_REFINE_HINT = "more claims match than are shown: add a distinguishing word or an exact phrase"
REFS_REFINE_HINT = "more artifacts match: add a distinguishing word or an exact phrase, or raise max_artifact_refs"
CANDIDATES_HINT = (
    "weaker matches exist that answer nothing by themselves: look at them with max_candidate_claims and "
    "max_candidate_artifact_refs, or ask again in the words they use"
)


class RecallFields(LookupInput):
    """The fields of every operation that answers with claims and artifact references."""

    max_claims: int = limits.RECALL_CLAIMS_DEFAULT
    max_artifact_refs: int = limits.RECALL_ARTIFACT_REFS_DEFAULT
    max_excerpt_bytes: int = limits.RECALL_EXCERPT_BYTES_DEFAULT


class RecallInput(RecallFields):
    max_candidate_claims: int = 0
    max_candidate_artifact_refs: int = 0


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """A claim that qualified, whole, with everything it rests on. It is `disputed` while a contradiction is open."""

    claim_id: str
    revision_id: str
    claim_type: str
    status: Literal["current", "disputed"]
    statement: str
    citation: str
    evidence: list[EvidenceItem]
    conflict_relation_ids: list[str]


@dataclass(frozen=True, slots=True)
class RecalledClaim(ClaimAnswer):
    score: float
    matched_by: list[str]


@dataclass(frozen=True, slots=True)
class ArtifactReference:
    """A place in an artifact. `excerpt` is what `citation` names or a part of it, then named by `excerpt_citation`
    unless it is a title. The risk signals are those of the whole text, and none is no verdict of safety.
    `derived_from` is what the artifact quotes of this store, by citations, if it quotes anything."""

    artifact_id: str
    revision_id: str
    citation: str
    title: str
    excerpt: str
    excerpt_truncated: bool
    excerpt_citation: str | None
    risk_signals: list[str]
    derived_from: list[str] | None


@dataclass(frozen=True, slots=True)
class RecalledArtifact(ArtifactReference):
    status: str
    score: float
    matched_by: list[str]


@dataclass(frozen=True, slots=True)
class RankingSignals:
    """How close a candidate came: the share of units it matched, 0 to 1, and how similar misspelled ones are."""

    lexical_coverage: float
    trigram_similarity: float | None

    @classmethod
    def of(cls, hit: Hit) -> RankingSignals:
        return cls(hit.ranking.lexical_coverage, hit.ranking.trigram_similarity)


@dataclass(frozen=True, slots=True)
class CandidateClaim:
    """A claim that did not qualify: wording to ask again with, never an answer."""

    claim_id: str
    revision_id: str
    claim_type: str
    statement: str
    statement_truncated: bool
    citation: str
    matched_by: list[str]
    ranking_signals: RankingSignals
    retrieval_tier: Literal["unqualified_candidate"] = "unqualified_candidate"


@dataclass(frozen=True, slots=True)
class CandidateArtifact(ArtifactReference):
    matched_by: list[str]
    ranking_signals: RankingSignals
    retrieval_tier: Literal["unqualified_candidate"] = "unqualified_candidate"


@dataclass(frozen=True, slots=True)
class Recalled:
    """The answer to a query, with the pools it was chosen from."""

    presence: Presence
    claims: list[RecalledClaim]
    conflicts: list[Dispute]
    artifact_refs: list[RecalledArtifact]
    claims_truncated: bool
    artifact_refs_truncated: bool
    claim_pool: Pool
    artifact_pool: Pool


def recall_bounds(wanted: RecallFields) -> list[Bound]:
    return [
        Bound("max_claims", wanted.max_claims, 1, limits.RECALL_CLAIMS_MAX),
        Bound("max_artifact_refs", wanted.max_artifact_refs, 1, limits.RECALL_ARTIFACT_REFS_MAX),
        Bound("max_excerpt_bytes", wanted.max_excerpt_bytes, 1, limits.RECALL_EXCERPT_BYTES_MAX),
    ]


def recalled(lookup: Lookup, wanted: RecallFields) -> Recalled:
    """The claims and artifacts that answer the query of an opened lookup, each within its bounds.

    Raises `INTEGRITY_ERROR` where the stored text behind a claim has a hole.
    """
    slate = min(limits.RECALL_SLATE_PER_CLAIM * wanted.max_claims, limits.RECALL_SLATE_MAX)
    claim_pool = lookup.pool("claim", slate)
    artifact_pool = lookup.pool("artifact", wanted.max_artifact_refs)
    claims, conflicts, claims_truncated = _claims(lookup, claim_pool, wanted, slate)
    refs, refs_truncated = cut(artifact_pool.query, artifact_pool.qualified, wanted.max_artifact_refs)
    return Recalled(
        presence="claims" if claims else "artifacts_only" if refs else "none",
        claims=claims,
        conflicts=conflicts,
        artifact_refs=[
            RecalledArtifact(**_reference(hit, wanted.max_excerpt_bytes), status=hit.status, score=hit.score)
            for hit in lookup.placed(lookup.ranked(refs))
        ],
        claims_truncated=claims_truncated,
        artifact_refs_truncated=refs_truncated,
        claim_pool=claim_pool,
        artifact_pool=artifact_pool,
    )


def _claims(
    lookup: Lookup, pool: Pool, wanted: RecallFields, slate: int
) -> tuple[list[RecalledClaim], list[Dispute], bool]:
    """The window, chosen by relevance and then ordered; the open conflicts that touch it; whether there is more."""
    page, more = cut(pool.query, pool.qualified, slate)
    ranked = lookup.ranked(page)
    disputes = open_disputes(lookup.view.db, [member.revision_row for member in page], lookup.scope)
    disputed_by = relation_ids(disputes)
    choice = choose([_answer(item, disputed_by) for item in ranked], wanted.max_claims)
    window = [ranked[position] for position in choice.positions]
    rows = {item.entity.revision_id: item.candidate.revision_row for item in window}
    evidence = evidence_of(lookup.view.db, list(rows.values()), excerpt_bytes_max=wanted.max_excerpt_bytes)
    claims = [
        _claim(hit, evidence.get(rows[hit.revision_id], []), disputed_by.get(hit.entity_id, []))
        for hit in lookup.placed(window)
    ]
    shown = {claim.claim_id for claim in claims}
    return claims, [dispute for dispute in disputes if dispute.touches(shown)], more or choice.is_truncated


def _answer(item: Ranked, disputed_by: Container[str]) -> Answer:
    entity = item.entity
    evidence = entity.provenance["evidence"]
    source = evidence[0]["artifact_id"] if evidence else entity.entity_id
    return Answer(entity.excerpt, source, entity.status == "conflicted" or entity.entity_id in disputed_by)


def _claim(hit: Hit, evidence: list[EvidenceItem], relations: list[str]) -> RecalledClaim:
    return RecalledClaim(
        claim_id=hit.entity_id,
        revision_id=hit.revision_id,
        claim_type=hit.provenance["claim_type"],
        status="disputed" if relations or hit.status == "conflicted" else "current",
        statement=hit.excerpt,
        citation=hit.citation,
        evidence=evidence,
        conflict_relation_ids=relations,
        score=hit.score,
        matched_by=hit.matched_by,
    )


def _reference(hit: Hit, bytes_max: int) -> dict[str, Any]:
    """The members that every form of an artifact reference has."""
    shown = _excerpt(hit, bytes_max)
    return {
        "artifact_id": hit.entity_id,
        "revision_id": hit.revision_id,
        "citation": hit.citation,
        "title": hit.title,
        "excerpt": shown.text,
        "excerpt_truncated": shown.is_truncated,
        "excerpt_citation": shown.citation,
        "risk_signals": risk_signals(hit.title, hit.excerpt),
        "derived_from": hit.provenance.get("derived_from"),
        "matched_by": hit.matched_by,
    }


def _excerpt(hit: Hit, bytes_max: int) -> Excerpt:
    """Around the matched words, or where there are none around the parts of the matched phrases."""
    phrases = hit.ranking.matched_phrase_groups
    terms = [term for term in hit.ranking.matched_terms if term not in phrases]
    return excerpt(hit.excerpt, parse(hit.citation), terms or " ".join(phrases).split(), bytes_max)


def _candidates(lookup: Lookup, pool: Pool, places: int) -> tuple[list[Hit], bool]:
    """The best entities that did not qualify, at most `places`, and whether there are more."""
    if places == 0:
        return [], False
    first: dict[str, Ranked] = {}
    for item in lookup.ranked(pool.unqualified[: limits.CANDIDATES_KEPT_MAX]):
        first.setdefault(item.entity.entity_id, item)
    return lookup.placed(list(first.values())[:places]), len(first) > places


def _candidate_claim(hit: Hit, bytes_max: int) -> CandidateClaim:
    statement = cut_text(hit.excerpt, bytes_max)
    return CandidateClaim(
        claim_id=hit.entity_id,
        revision_id=hit.revision_id,
        claim_type=hit.provenance["claim_type"],
        statement=statement,
        statement_truncated=len(statement) < len(hit.excerpt),
        citation=hit.citation,
        matched_by=hit.matched_by,
        ranking_signals=RankingSignals.of(hit),
    )


class RecallResult(BaseModel):
    """`none` is an answer too: nothing stored in the searched horizon qualifies. Candidates are no part of it."""

    content_is_untrusted: Literal[True] = True
    query: str
    searched_horizons: list[Horizon]
    presence: Presence
    claims: list[RecalledClaim]
    conflicts: list[Dispute]
    artifact_refs: list[RecalledArtifact]
    claims_truncated: bool
    artifact_refs_truncated: bool
    claims_refine_hint: str | None
    artifact_refs_refine_hint: str | None
    candidate_claims: list[CandidateClaim]
    candidate_artifact_refs: list[CandidateArtifact]
    candidate_claims_truncated: bool
    candidate_artifact_refs_truncated: bool
    candidates_hint: str | None
    unqualified_claim_candidates: int
    unqualified_artifact_candidates: int
    best_unqualified_claim_coverage: float | None
    best_unqualified_artifact_coverage: float | None
    query_analysis: QueryAnalysis
    semantic_claims: SemanticStatus
    semantic_artifacts: SemanticStatus
    reranker_claims: RerankerStatus
    reranker_artifacts: RerankerStatus


@read("memory.recall", position=32, input=RecallInput, result=RecallResult, needs_context=True, horizon=True)
def recall(view: View, call: Call[RecallInput]) -> RecallResult:
    wanted = call.input
    bounds = [
        *recall_bounds(wanted),
        Bound("max_candidate_claims", wanted.max_candidate_claims, 0, limits.RECALL_CANDIDATE_CLAIMS_MAX),
        Bound(
            "max_candidate_artifact_refs",
            wanted.max_candidate_artifact_refs,
            0,
            limits.RECALL_CANDIDATE_ARTIFACT_REFS_MAX,
        ),
    ]
    lookup = open_lookup(view, call, bounds)
    answer = recalled(lookup, wanted)
    weak_claims, weak_artifacts = answer.claim_pool.unqualified, answer.artifact_pool.unqualified
    claim_hits, more_claims = _candidates(lookup, answer.claim_pool, wanted.max_candidate_claims)
    artifact_hits, more_artifacts = _candidates(lookup, answer.artifact_pool, wanted.max_candidate_artifact_refs)
    return RecallResult.model_construct(
        query=wanted.query,
        searched_horizons=[wanted.horizon],
        presence=answer.presence,
        claims=answer.claims,
        conflicts=answer.conflicts,
        artifact_refs=answer.artifact_refs,
        claims_truncated=answer.claims_truncated,
        artifact_refs_truncated=answer.artifact_refs_truncated,
        claims_refine_hint=CLAIMS_REFINE_HINT if answer.claims_truncated else None,
        artifact_refs_refine_hint=REFS_REFINE_HINT if answer.artifact_refs_truncated else None,
        candidate_claims=[_candidate_claim(hit, wanted.max_excerpt_bytes) for hit in claim_hits],
        candidate_artifact_refs=[
            CandidateArtifact(**_reference(hit, wanted.max_excerpt_bytes), ranking_signals=RankingSignals.of(hit))
            for hit in artifact_hits
        ],
        candidate_claims_truncated=more_claims,
        candidate_artifact_refs_truncated=more_artifacts,
        candidates_hint=CANDIDATES_HINT if weak_claims or weak_artifacts else None,
        unqualified_claim_candidates=len(weak_claims),
        unqualified_artifact_candidates=len(weak_artifacts),
        best_unqualified_claim_coverage=_best_coverage(answer.claim_pool, weak_claims),
        best_unqualified_artifact_coverage=_best_coverage(answer.artifact_pool, weak_artifacts),
        query_analysis=QueryAnalysis.of(answer.claim_pool.query),
        semantic_claims=SemanticStatus.of(view),
        semantic_artifacts=SemanticStatus.of(view),
        reranker_claims=RerankerStatus.of("claim"),
        reranker_artifacts=RerankerStatus.of("artifact"),
    )


def _best_coverage(pool: Pool, weak: Sequence[Candidate]) -> float | None:
    return max((coverage(pool.query, candidate) for candidate in weak), default=None)
