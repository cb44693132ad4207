"""What the retrieval operations share: the fields of their inputs, one opened look at a store, the status objects.

An operation checks in this order: reason, query, its own bounds, `min_commit_seq` (machine protocol §4.30.1). One
instant and one state serve everything in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from memoree import limits
from memoree.envelope import Horizon, WireModel
from memoree.errors import invalid
from memoree.operations.call import Call
from memoree.operations.view import View
from memoree.retrieval.candidates import Candidate
from memoree.retrieval.engine import Pool, Surface, find
from memoree.retrieval.hits import Hit, Ranked, placed, ranked_of
from memoree.retrieval.profile import retrieval_profile
from memoree.retrieval.projections import ProjectionStatus
from memoree.retrieval.qualify import LEXICAL_POLICY
from memoree.retrieval.query import Query, analyze
from memoree.retrieval.scope import scope_bindings


class Recency(WireModel):
    enabled: bool


class LookupInput(WireModel):
    """The fields that every retrieval operation has."""

    query: str
    horizon: Horizon = "ambient"
    reason: str | None = None
    min_commit_seq: int | None = None
    recency: Recency = Field(default_factory=lambda: Recency(enabled=True))


class Bound(NamedTuple):
    """A field of the input and what it may be, both ends included."""

    name: str
    value: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Lookup:
    """One query over one state, as one caller may see it."""

    view: View
    query: Query
    horizon: Horizon
    scope: dict[str, Any]
    recency: bool

    def pool(self, surface: Surface, limit: int) -> Pool:
        """Every candidate, in relevance order. `limit` is the number of hits that will be shown."""
        meta = self.view.meta
        state = (meta.history, meta.commit_seq)
        return find(self.view.db, self.query, self.scope, surface=surface, limit=limit, state=state)

    def ranked(self, candidates: Sequence[Candidate]) -> list[Ranked]:
        """The candidates in the order given, each with what its row says."""
        return ranked_of(self.view.db, self.query, candidates, now=self.view.now, recency=self.recency)

    def placed(self, page: Sequence[Ranked]) -> list[Hit]:
        """A page of final membership, given in relevance order, in its final order."""
        return placed(self.query, page, now=self.view.now, recency=self.recency)


def open_lookup(view: View, call: Call[Any], bounds: Sequence[Bound], *, historical: bool = False) -> Lookup:
    """Raises `INVALID_REQUEST` for a reason or query that is too large, a query without words, or a value out of its
    bounds, and `INDEX_NOT_READY` when the state is older than the caller asked for."""
    wanted: LookupInput = call.input
    if wanted.reason is not None and (size := len(wanted.reason.encode())) > limits.REASON_BYTES_MAX:
        invalid(f"input.reason: must be at most {limits.REASON_BYTES_MAX} bytes, got {size}")
    query = analyze(wanted.query)
    for name, value, least, most in bounds:
        if not least <= value <= most:
            invalid(f"input.{name}: must be from {least} to {most}, got {value}")
    view.require_commit_seq(wanted.min_commit_seq)
    scope = scope_bindings(view.db, call.ambient, wanted.horizon, now=view.now, historical=historical)
    return Lookup(view, query, wanted.horizon, scope, wanted.recency.enabled)


class QueryAnalysis(BaseModel):
    """How the query was read; displays are lower-cased words, phrases their words joined by spaces."""

    policy_version: Literal["lexical_qualification_v3"] = LEXICAL_POLICY
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


class ProjectionReport(BaseModel):
    """What became of the projection channel; `reason` only for `error`."""

    state: Literal["no_candidates", "ready", "not_applicable", "error"]
    policy_version: Literal["cited_projection_candidate_v1"] = "cited_projection_candidate_v1"
    candidate_count: int
    reason: str | None = None

    @classmethod
    def of(cls, status: ProjectionStatus) -> ProjectionReport:
        return cls(state=status.state, candidate_count=status.candidate_count, reason=status.reason)


class SemanticStatus(BaseModel):
    """No model is installed."""

    state: Literal["disabled"] = "disabled"
    policy_version: Literal["local_dense_context_v3"] = "local_dense_context_v3"
    indexed_commit_seq: Literal[0] = 0
    current_commit_seq: int
    eligible_revision_count: Literal[0] = 0
    indexed_revision_count: Literal[0] = 0
    coverage: float = 0.0
    reason: Literal["no model is installed"] = "no model is installed"

    @classmethod
    def of(cls, view: View) -> SemanticStatus:
        return cls(current_commit_seq=view.meta.commit_seq)


class Breaker(BaseModel):
    state: Literal["closed"] = "closed"
    budget_ms: Literal[75] = 75
    trip_threshold: Literal[5] = 5
    consecutive_over_budget: Literal[0] = 0
    probe_after_skips: Literal[16] = 16
    skipped_since_open: Literal[0] = 0


class RerankerStatus(BaseModel):
    """A reranker would order claims only; none is installed."""

    state: Literal["disabled", "surface_disabled"]
    policy_version: Literal["cross_encoder_ordering_v4"] = "cross_encoder_ordering_v4"
    role: Literal["ordering_only"] = "ordering_only"
    surface: Surface
    candidate_count: Literal[0] = 0
    scored_candidate_count: Literal[0] = 0
    ordering_applied: Literal[False] = False
    candidate_limit: Literal[16] = 16
    candidate_limit_reached: Literal[False] = False
    breaker: Breaker = Breaker()

    @classmethod
    def of(cls, surface: Surface) -> RerankerStatus:
        return cls(state="disabled" if surface == "claim" else "surface_disabled", surface=surface)
