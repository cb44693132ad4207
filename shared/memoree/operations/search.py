"""`search`: ranked references over artifacts and claims, the broad view (machine protocol §4.30)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from memoree import limits
from memoree.envelope import Horizon
from memoree.operations.call import Call
from memoree.operations.lookup import (
    Bound,
    LookupInput,
    ProjectionReport,
    QueryAnalysis,
    RerankerStatus,
    SemanticStatus,
    open_lookup,
)
from memoree.operations.registry import read
from memoree.operations.view import View
from memoree.retrieval.engine import cut
from memoree.retrieval.hits import Hit
from memoree.retrieval.projections import PROJECTION_POLICY
from memoree.retrieval.qualify import FUSION_POLICY, LEXICAL_POLICY, TYPO_POLICY, coverage
from memoree.retrieval.recency import RECENCY_POLICY

RETRIEVAL_MODE = "+".join(("sqlite_fts5_bm25", LEXICAL_POLICY, TYPO_POLICY, PROJECTION_POLICY, FUSION_POLICY))
REFINE_HINT = "more entries match: add a distinguishing word or an exact phrase, or raise limit"
BROADEN_HINT = "nothing in this context matches; horizon workspace or personal, with a reason, looks further"


class SearchInput(LookupInput):
    limit: int = limits.SEARCH_ITEMS_DEFAULT
    include_historical: bool = False


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
    projection: ProjectionReport
    semantic: SemanticStatus
    reranker: RerankerStatus
    qualification_applied: Literal[False]
    unqualified_candidate_count: int
    best_unqualified_coverage: float | None


@read("search", position=31, input=SearchInput, result=SearchResult, needs_context=True, horizon=True)
def search(view: View, call: Call[SearchInput]) -> SearchResult:
    wanted = call.input
    bounds = [Bound("limit", wanted.limit, 1, limits.SEARCH_ITEMS_MAX)]
    lookup = open_lookup(view, call, bounds, historical=wanted.include_historical)
    pool = lookup.pool("mixed", wanted.limit)
    page, truncated = cut(pool.query, pool.ranked, wanted.limit)
    hits = lookup.placed(lookup.ranked(page))
    unqualified = pool.unqualified
    return SearchResult.model_construct(
        query=wanted.query,
        horizon=wanted.horizon,
        retrieval_mode=f"{RETRIEVAL_MODE}+{RECENCY_POLICY}" if lookup.recency else RETRIEVAL_MODE,
        hits=hits,
        truncated=truncated,
        refine_hint=REFINE_HINT if truncated else None,
        broaden_hint=BROADEN_HINT if not hits and wanted.horizon == "ambient" else None,
        query_analysis=QueryAnalysis.of(pool.query),
        projection=ProjectionReport.of(pool.projection),
        semantic=SemanticStatus.of(view),
        reranker=RerankerStatus.of("mixed"),
        qualification_applied=False,
        unqualified_candidate_count=len(unqualified),
        best_unqualified_coverage=max((coverage(pool.query, candidate) for candidate in unqualified), default=None),
    )
