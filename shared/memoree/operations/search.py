"""`search`: ranked references over artifacts and claims, the broad view (machine protocol §4.30)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from memoree import limits
from memoree.envelope import Horizon, WireModel
from memoree.errors import invalid
from memoree.operations.call import Call
from memoree.operations.registry import read
from memoree.operations.view import View
from memoree.retrieval.engine import find
from memoree.retrieval.hits import Hit, hits_of
from memoree.retrieval.profile import retrieval_profile
from memoree.retrieval.qualify import FUSION_POLICY, LEXICAL_POLICY, TYPO_POLICY, coverage
from memoree.retrieval.query import Query, analyze
from memoree.retrieval.recency import RECENCY_POLICY
from memoree.retrieval.scope import scope_bindings

RETRIEVAL_MODE = "+".join(("sqlite_fts5_bm25", LEXICAL_POLICY, TYPO_POLICY, FUSION_POLICY))
REFINE_HINT = "more entries match: add a distinguishing word or an exact phrase, or raise limit"
BROADEN_HINT = "nothing in this context matches; horizon workspace or personal, with a reason, looks further"


class Recency(WireModel):
    enabled: bool


class SearchInput(WireModel):
    query: str
    horizon: Horizon = "ambient"
    reason: str | None = None
    limit: int = limits.SEARCH_ITEMS_DEFAULT
    include_historical: bool = False
    min_commit_seq: int | None = None
    recency: Recency = Field(default_factory=lambda: Recency(enabled=True))


class QueryAnalysis(BaseModel):
    """How the query was read; displays are lower-cased words, phrases their words joined by spaces."""

    policy_version: Literal["lexical_qualification_v2"] = LEXICAL_POLICY
    normalized_query: str
    content_units: list[str]
    phrase_groups: list[str]
    dropped_stopwords: list[str]
    required_matches: int
    retrieval_profile: dict[str, Any]

    @classmethod
    def of(cls, query: Query) -> QueryAnalysis:
        return cls(
            normalized_query=query.normalized,
            content_units=[unit.display for unit in query.units],
            phrase_groups=[unit.display for unit in query.units if unit.is_phrase],
            dropped_stopwords=list(query.dropped_stopwords),
            required_matches=query.required_matches,
            retrieval_profile=retrieval_profile(query.normalized),
        )


class ProjectionStatus(BaseModel):
    """Projections are not looked at yet, so none can match."""

    state: Literal["no_candidates"] = "no_candidates"
    policy_version: Literal["cited_projection_candidate_v1"] = "cited_projection_candidate_v1"
    candidate_count: Literal[0] = 0


class SemanticStatus(BaseModel):
    """No model is installed."""

    state: Literal["disabled"] = "disabled"
    policy_version: Literal["local_dense_context_v3"] = "local_dense_context_v3"
    indexed_commit_seq: Literal[0] = 0
    current_commit_seq: int
    eligible_revision_count: Literal[0] = 0
    indexed_revision_count: Literal[0] = 0
    coverage: float = 0.0


class Breaker(BaseModel):
    state: Literal["closed"] = "closed"
    budget_ms: Literal[75] = 75
    trip_threshold: Literal[5] = 5
    consecutive_over_budget: Literal[0] = 0
    probe_after_skips: Literal[16] = 16
    skipped_since_open: Literal[0] = 0


class RerankerStatus(BaseModel):
    """A reranker orders claims only; the mixed surface of `search` never has one."""

    state: Literal["surface_disabled"] = "surface_disabled"
    policy_version: Literal["cross_encoder_ordering_v4"] = "cross_encoder_ordering_v4"
    role: Literal["ordering_only"] = "ordering_only"
    surface: Literal["mixed"] = "mixed"
    candidate_count: Literal[0] = 0
    scored_candidate_count: Literal[0] = 0
    ordering_applied: Literal[False] = False
    candidate_limit: Literal[16] = 16
    candidate_limit_reached: Literal[False] = False
    breaker: Breaker = Breaker()


NO_PROJECTION = ProjectionStatus()
NO_RERANKER = RerankerStatus()


class SearchResult(BaseModel):
    """There is no cursor: a truncated caller narrows the query or raises the limit."""

    query: str
    horizon: Horizon
    retrieval_mode: str
    hits: list[Hit]
    truncated: bool
    refine_hint: str | None
    broaden_hint: str | None
    query_analysis: QueryAnalysis
    projection: ProjectionStatus
    semantic: SemanticStatus
    reranker: RerankerStatus
    qualification_applied: Literal[False]
    unqualified_candidate_count: int
    best_unqualified_coverage: float | None


@read("search", position=31, input=SearchInput, result=SearchResult, needs_context=True, horizon=True)
def search(view: View, call: Call[SearchInput]) -> SearchResult:
    wanted = call.input
    _check_reason_size(wanted.reason)
    query = analyze(wanted.query)
    if not 1 <= wanted.limit <= limits.SEARCH_ITEMS_MAX:
        invalid(f"input.limit: must be from 1 to {limits.SEARCH_ITEMS_MAX}, got {wanted.limit}")
    view.require_commit_seq(wanted.min_commit_seq)
    scope = scope_bindings(view.db, call.ambient, wanted.horizon, now=view.now, historical=wanted.include_historical)
    state = (view.meta.history, view.meta.commit_seq)
    pool = find(view.db, query, scope, limit=wanted.limit, state=state)
    recency = wanted.recency.enabled
    hits = hits_of(view.db, query, pool.ranked[: wanted.limit], now=view.now, recency=recency)
    unqualified = pool.unqualified()
    truncated = len(pool.ranked) > wanted.limit
    return SearchResult.model_construct(
        query=wanted.query,
        horizon=wanted.horizon,
        retrieval_mode=f"{RETRIEVAL_MODE}+{RECENCY_POLICY}" if recency else RETRIEVAL_MODE,
        hits=hits,
        truncated=truncated,
        refine_hint=REFINE_HINT if truncated else None,
        broaden_hint=BROADEN_HINT if not hits and wanted.horizon == "ambient" else None,
        query_analysis=QueryAnalysis.of(query),
        projection=NO_PROJECTION,
        reranker=NO_RERANKER,
        qualification_applied=False,
        semantic=SemanticStatus(current_commit_seq=view.meta.commit_seq),
        unqualified_candidate_count=len(unqualified),
        best_unqualified_coverage=max((coverage(query, candidate) for candidate in unqualified), default=None),
    )


def _check_reason_size(reason: str | None) -> None:
    if reason is not None and (size := len(reason.encode())) > limits.REASON_BYTES_MAX:
        invalid(f"input.reason: must be at most {limits.REASON_BYTES_MAX} bytes, got {size}")
