"""`memory.probe`: where to look when nothing counted as an answer (machine protocol §4.32, retrieval contract §5.1).

Leads are made of what did *not* qualify, so nothing in them is an answer, and nothing of `memory.recall` is repeated.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel

from memoree import limits
from memoree.envelope import bounded, length
from memoree.operations.call import Call
from memoree.operations.lookup import Bound, Lookup, LookupInput, open_lookup
from memoree.operations.registry import read
from memoree.operations.view import View
from memoree.retrieval.hits import Ranked
from memoree.retrieval.leads import (
    Lead,
    LocatorOrigin,
    Pointer,
    artifact_leads,
    backings,
    claim_leads,
    ordered,
    seats,
)

QueryText = Annotated[str, bounded(limits.QUERY_BYTES_MAX), length(limits.QUERY_BYTES_MAX)]
"""A question that only travels along, or that is read as a query later: not blank, at most 8192 bytes."""


class ProbeInput(LookupInput):
    original_query: QueryText | None = None
    max_leads: int = limits.PROBE_ITEMS_MAX


class LeadSource(BaseModel):
    """`citation` names exact bytes, or a whole revision when `locator_origin` is `revision_only`. The other members
    belong to pointers that a model narrowed down from `parent_citation`."""

    citation: str
    locator_origin: LocatorOrigin
    locator_policy_version: str | None = None
    source_revision_hash: str | None = None
    parent_citation: str | None = None

    @classmethod
    def of(cls, pointer: Pointer) -> LeadSource:
        return cls(citation=str(pointer.place), locator_origin=pointer.origin)


class LeadRecord(BaseModel):
    """`title` has at most 48 bytes. `evidence_locator_set_complete` is false when sources were left out."""

    title: str
    sources: list[LeadSource]
    evidence_locator_set_complete: bool

    @classmethod
    def of(cls, lead: Lead) -> LeadRecord:
        return cls(
            title=lead.title,
            sources=[LeadSource.of(pointer) for pointer in lead.pointers],
            evidence_locator_set_complete=lead.is_complete,
        )


class ProbeResult(BaseModel):
    """`available_count` counts leads before they were cut to `max_leads`; `truncated` also when there may be more."""

    content_is_untrusted: Literal[True] = True
    retrieval_tier: Literal["unqualified_candidate"] = "unqualified_candidate"
    original_query: str
    probe_query: str
    reformulation_applied: bool
    leads: list[LeadRecord]
    available_count: int
    truncated: bool


class Leads(NamedTuple):
    shown: list[Lead]
    available_count: int
    truncated: bool


@read("memory.probe", position=33, input=ProbeInput, result=ProbeResult, needs_context=True, horizon=True)
def probe(view: View, call: Call[ProbeInput]) -> ProbeResult:
    wanted = call.input
    lookup = open_lookup(view, call, [Bound("max_leads", wanted.max_leads, 1, limits.PROBE_ITEMS_MAX)])
    leads = find_leads(lookup, wanted.max_leads)
    original = wanted.query if wanted.original_query is None else wanted.original_query
    return ProbeResult(
        original_query=original,
        probe_query=wanted.query,
        reformulation_applied=original != wanted.query,
        leads=[LeadRecord.of(lead) for lead in leads.shown],
        available_count=leads.available_count,
        truncated=leads.truncated,
    )


def find_leads(lookup: Lookup, leads_max: int, *, with_answers: bool = False) -> Leads:
    """Leads of claims, then of artifacts. Relevance alone decides which are shown; recency may reorder these.

    `with_answers` is for a query that stands in for another one: what would answer it is near the other one too.
    """
    claims, more_claims = _candidates(lookup, "claim", with_answers)
    artifacts, more_artifacts = _candidates(lookup, "artifact", with_answers)
    of_claims = claim_leads(claims, backings(lookup.view.db, claims))
    of_artifacts = artifact_leads(artifacts, beside=of_claims)
    claim_seats, artifact_seats = seats(len(of_claims), len(of_artifacts), leads_max)
    shown = [
        *ordered(of_claims[:claim_seats], recency=lookup.recency),
        *ordered(of_artifacts[:artifact_seats], recency=lookup.recency),
    ]
    available = len(of_claims) + len(of_artifacts)
    return Leads(shown, available, more_claims or more_artifacts or available > len(shown))


def _candidates(lookup: Lookup, surface: Literal["claim", "artifact"], with_answers: bool) -> tuple[list[Ranked], bool]:
    """What matches without being an answer, best first, and whether some of it was left out."""
    pool = lookup.pool(surface, limits.PROBE_ITEMS_MAX)
    found = [*pool.qualified, *pool.unqualified] if with_answers else pool.unqualified
    kept = found[: limits.CANDIDATES_KEPT_MAX]
    return lookup.ranked(kept), len(found) > len(kept)
