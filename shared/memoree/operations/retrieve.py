"""`memory.retrieve`: recall, and when no claim answers one bounded packet of evidence (machine protocol §4.33).

The packet is what claims nearby cite, read byte by byte; it never answers anything and never changes `presence`. It is
looked for whenever no claim qualified, also beside qualified artifacts (retrieval contract §0, D3), except for
questions about the present, to which dated evidence would be a wrong answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

from pydantic import BaseModel

from memoree import clock, limits
from memoree.envelope import Horizon
from memoree.errors import Code, MemoreeError, invalid
from memoree.operations.call import Call
from memoree.operations.citation import CitationGet, CitedBytes, fetch
from memoree.operations.lookup import Bound, Lookup, QueryAnalysis, open_lookup
from memoree.operations.probe import QueryText, find_leads
from memoree.operations.recall import (
    ArtifactReference,
    ClaimAnswer,
    Presence,
    Recalled,
    RecallFields,
    recall_bounds,
    recalled,
)
from memoree.operations.registry import read
from memoree.operations.view import View
from memoree.retrieval.disputes import Dispute
from memoree.retrieval.leads import Lead, LocatorOrigin
from memoree.retrieval.query import analyze
from memoree.retrieval.recovery import RECOVERY_POLICY, asked_terms, is_related, words_not_asked

FETCHED_ORIGINS: frozenset[LocatorOrigin] = frozenset({"claim_exact", "semantic_resolved"})
"""Artifacts that nothing was claimed about never feed the packet."""
CURRENT_SOURCE_RULE = (
    "memory tells what was recorded and when; where a current source of the same matter can be read, that one decides"
)
RECOVERY_WARNING = (
    "nothing here counts as an answer: these are exact bytes that related claims cite; judge them against the question"
)
REQUERY_DETAIL = (
    "no stored claim has the distinguishing words of the query; ask again with wording that is stored, as the query: "
    "a reformulation only changes what is recovered"
)


class RetrieveInput(RecallFields):
    reformulation: QueryText | None = None
    max_recovery_leads: int = limits.RETRIEVE_LEADS_MAX
    max_recovery_bytes: int = limits.RETRIEVE_EVIDENCE_BYTES_MAX
    profile: bool = False


class Authority(BaseModel):
    memory_snapshot_commit_seq: int
    retrieved_at: str
    qualification_policy: Literal["deterministic_authority_only_v1"] = "deterministic_authority_only_v1"
    recovery_policy: Literal["unqualified_exact_evidence_v1"] = "unqualified_exact_evidence_v1"
    current_source_rule: str = CURRENT_SOURCE_RULE


class NextAction(BaseModel):
    """What to do when no claim answers. `stored_vocabulary` has words of evidence that an anchor led to."""

    policy_version: Literal["retrieval_next_action_v1"] = "retrieval_next_action_v1"
    reason: Literal["no_qualified_match", "artifacts_without_claims"]
    action: Literal["requery_with_stored_vocabulary"] = "requery_with_stored_vocabulary"
    detail: str = REQUERY_DETAIL
    unmatched_units: list[str]
    stored_vocabulary: list[str]


class RecoveredEvidence(BaseModel):
    """`citation` names exactly the bytes of `content`, the first ones of what is cited when `truncated`."""

    retrieval_tier: Literal["unqualified_evidence"] = "unqualified_evidence"
    title: str
    citation: str
    content: str
    media_type: str
    truncated: bool


class Recovery(BaseModel):
    """`suppressed_references` were read and share no word with the question. `references_truncated` says that there
    may be more: leads beyond the limits, or places that could not be read."""

    retrieval_tier: Literal["unqualified_evidence"] = "unqualified_evidence"
    original_query_preserved: Literal[True] = True
    reformulation_applied: bool
    available_leads: int
    returned_references: int
    returned_content_bytes: int
    references_truncated: bool
    relevance_policy: Literal["recovery_lexical_relation_v1"] = RECOVERY_POLICY
    suppressed_references: int
    anchor_routed_references: int
    evidence: list[RecoveredEvidence]
    warning: str = RECOVERY_WARNING


class Profile(BaseModel):
    """Durations in milliseconds, and counts; nothing of the query and nothing that is stored."""

    policy_version: Literal["content_free_retrieval_profile_v2"] = "content_free_retrieval_profile_v2"
    total_ms: float
    recall_ms: float
    probe_ms: float
    citation_fetch_ms: float
    qualified_claim_count: int
    qualified_artifact_count: int
    recovery_reference_count: int
    semantic_state: Literal["disabled"] = "disabled"
    reranker_state: Literal["disabled"] = "disabled"
    model_load_ms: float | None = None
    inference_ms: float | None = None
    breaker_open: Literal[False] = False


class RetrieveResult(BaseModel):
    """`presence`, claims and references are those of `memory.recall` for the same query. `next_action` is there when
    no claim is, `recovery` when something was near."""

    content_is_untrusted: Literal[True] = True
    presence: Presence
    searched_horizon: Horizon
    query_analysis: QueryAnalysis
    authority: Authority
    claims: Sequence[ClaimAnswer]
    claims_truncated: bool
    conflicts: list[Dispute]
    artifact_refs: Sequence[ArtifactReference]
    next_action: NextAction | None = None
    recovery: Recovery | None = None
    profile: Profile | None = None


class Stopwatch:
    """Time since it was made, and time spent in named steps, in milliseconds."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._spent: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timing(self, step: str) -> Iterator[None]:
        started = perf_counter()
        yield
        self._spent[step] += perf_counter() - started

    def spent_ms(self, step: str) -> float:
        return self._spent[step] * 1000

    def total_ms(self) -> float:
        return (perf_counter() - self._started) * 1000


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a lead led to."""

    lead: Lead
    cited: CitedBytes


@dataclass(frozen=True, slots=True)
class Packet:
    """What was recovered, and what of it may be shown: those an anchor led to first, as their leads are."""

    available_count: int
    is_cut: bool
    fetched: Sequence[Fetched]
    related: Sequence[Fetched]
    asked: frozenset[str]

    @property
    def anchored(self) -> Sequence[Fetched]:
        return [item for item in self.related if item.lead.is_anchored]


@read("memory.retrieve", position=34, input=RetrieveInput, result=RetrieveResult, needs_context=True, horizon=True)
def retrieve(view: View, call: Call[RetrieveInput]) -> RetrieveResult:
    wanted, watch = call.input, Stopwatch()
    lookup = _open(view, call)
    with watch.timing("recall"):
        answer = recalled(lookup, wanted)
    analysis = QueryAnalysis.of(answer.claim_pool.query)
    packet = None
    if not answer.claims and analysis.retrieval_profile["intent_hint"] != "current_source":
        packet = _packet(lookup, wanted, watch)
    return RetrieveResult.model_construct(
        presence=answer.presence,
        searched_horizon=wanted.horizon,
        query_analysis=analysis,
        authority=Authority(memory_snapshot_commit_seq=view.meta.commit_seq, retrieved_at=clock.wire(view.now)),
        claims=answer.claims,
        claims_truncated=answer.claims_truncated,
        conflicts=answer.conflicts,
        artifact_refs=answer.artifact_refs,
        next_action=_next_action(answer, analysis, packet) if not answer.claims else None,
        recovery=_recovery(packet, wanted) if packet is not None and packet.available_count else None,
        profile=_profile(answer, packet, watch) if wanted.profile else None,
    )


def _open(view: View, call: Call[RetrieveInput]) -> Lookup:
    """Raises what `open_lookup` does, and `INVALID_REQUEST` for a reformulation that repeats the query or could not be
    a query itself."""
    wanted = call.input
    if wanted.reformulation is not None:
        if wanted.reformulation.strip() == wanted.query.strip():
            invalid("input.reformulation: must differ from the query")
        try:
            analyze(wanted.reformulation)
        except MemoreeError as refusal:
            invalid(refusal.message.replace("input.query", "input.reformulation"))
    bounds = [
        *recall_bounds(wanted),
        Bound("max_recovery_leads", wanted.max_recovery_leads, 1, limits.RETRIEVE_LEADS_MAX),
        Bound("max_recovery_bytes", wanted.max_recovery_bytes, 1, limits.RETRIEVE_EVIDENCE_BYTES_MAX),
    ]
    return open_lookup(view, call, bounds)


def _packet(lookup: Lookup, wanted: RetrieveInput, watch: Stopwatch) -> Packet:
    """What is near the query, or near its reformulation: what answers that one is still no answer to the query."""
    routed = wanted.reformulation or wanted.query
    with watch.timing("probe"):
        leads = find_leads(
            replace(lookup, query=analyze(routed)),
            wanted.max_recovery_leads,
            with_answers=wanted.reformulation is not None,
        )
    with watch.timing("fetch"):
        fetched, is_cut = _fetched(lookup.view, leads.shown, wanted.max_recovery_bytes)
    asked = asked_terms(lookup.query, routed)
    related = [item for item in fetched if item.lead.is_anchored or is_related(item.cited.content, asked)]
    return Packet(leads.available_count, leads.truncated or is_cut, fetched, related, asked)


def _fetched(view: View, leads: Sequence[Lead], bytes_max: int) -> tuple[list[Fetched], bool]:
    """The first place of each lead that can be read, while the bytes last, and whether one was left unread."""
    assert len(leads) <= limits.RETRIEVE_REFERENCES_MAX, "one reference to a lead"
    found: list[Fetched] = []
    is_cut = False
    for lead in leads:
        for pointer in lead.pointers:
            if pointer.origin not in FETCHED_ORIGINS:
                continue
            if bytes_max < limits.CITATION_FETCH_BYTES_MIN:
                return found, True
            piece = CitationGet(
                citation=str(pointer.place), max_bytes=min(bytes_max, limits.RETRIEVE_REFERENCE_BYTES_MAX)
            )
            if (cited := _cited(view, piece)) is None:
                is_cut = True
                continue
            found.append(Fetched(lead, cited))
            bytes_max -= cited.byte_count
            break
    return found, is_cut


def _cited(view: View, piece: CitationGet) -> CitedBytes | None:
    """What `citation.get` gives; `None` for what it refuses, such as bytes that are no text."""
    try:
        return fetch(view, piece)
    except MemoreeError as refusal:
        if refusal.code is not Code.CITATION_ERROR:
            raise
        return None


def _recovery(packet: Packet, wanted: RetrieveInput) -> Recovery:
    return Recovery(
        reformulation_applied=wanted.reformulation is not None,
        available_leads=packet.available_count,
        returned_references=len(packet.related),
        returned_content_bytes=sum(item.cited.byte_count for item in packet.related),
        references_truncated=packet.is_cut,
        suppressed_references=len(packet.fetched) - len(packet.related),
        anchor_routed_references=len(packet.anchored),
        evidence=[
            RecoveredEvidence(
                title=item.lead.title,
                citation=item.cited.citation,
                content=item.cited.content,
                media_type=item.cited.media_type,
                truncated=item.cited.truncated,
            )
            for item in packet.related
        ],
    )


def _next_action(answer: Recalled, analysis: QueryAnalysis, packet: Packet | None) -> NextAction:
    stored = words_not_asked((item.cited.content for item in packet.anchored), packet.asked) if packet else []
    return NextAction(
        reason="artifacts_without_claims" if answer.artifact_refs else "no_qualified_match",
        unmatched_units=analysis.content_units,
        stored_vocabulary=stored[: limits.RETRIEVE_VOCABULARY_MAX],
    )


def _profile(answer: Recalled, packet: Packet | None, watch: Stopwatch) -> Profile:
    return Profile(
        total_ms=watch.total_ms(),
        recall_ms=watch.spent_ms("recall"),
        probe_ms=watch.spent_ms("probe"),
        citation_fetch_ms=watch.spent_ms("fetch"),
        qualified_claim_count=len(answer.claims),
        qualified_artifact_count=len(answer.artifact_refs),
        recovery_reference_count=len(packet.related) if packet else 0,
    )
