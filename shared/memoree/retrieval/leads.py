"""Leads: short titles with exact pointers, made of what was found and does not count as an answer (contract §5.1).

A claim leads to what it cites, an artifact to the place that matched. Nothing here can qualify anything. What was
forgotten gives neither titles nor pointers, although a claim that cites it may still be a lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import apsw
import orjson

from memoree import limits
from memoree.citation import ArtifactCitation, Span, parse
from memoree.retrieval.excerpts import cut
from memoree.retrieval.hits import Ranked
from memoree.retrieval.recency import promoted

LocatorOrigin = Literal["claim_exact", "artifact_exact", "semantic_resolved", "semantic_windowed", "revision_only"]
"""How a pointer was found. The two `semantic` ones need a model that narrows a revision down to windows."""

_ELLIPSIS = "…"

_EVIDENCE = """
    SELECT v.claim_revision_row, a.artifact_id, r.revision_id, v.start_byte, v.end_byte, r.title, a.status = 'active'
    FROM json_each(?) AS page
    CROSS JOIN claim_evidence AS v ON v.claim_revision_row = page.value
    CROSS JOIN artifact_revisions AS r ON r.row_id = v.artifact_revision_row
    CROSS JOIN artifacts AS a ON a.row_id = r.artifact_row
    ORDER BY v.claim_revision_row, v.ordinal
"""


class Cited(NamedTuple):
    """A place that a claim cites, and the title of the revision it lies in."""

    place: ArtifactCitation
    title: str


@dataclass(slots=True)
class Backing:
    """The evidence of a claim in its stored order, without what was forgotten since."""

    cited: list[Cited] = field(default_factory=list)
    is_whole: bool = True


class Pointer(NamedTuple):
    place: ArtifactCitation
    origin: LocatorOrigin


@dataclass(frozen=True, slots=True)
class Lead:
    """`title` has at most 48 bytes. `is_complete` is false when pointers were left out; `span` is the first exact
    place it stands for, if any."""

    ranked: Ranked
    title: str
    pointers: tuple[Pointer, ...]
    is_complete: bool
    span: ArtifactCitation | None

    @property
    def is_anchored(self) -> bool:
        return self.ranked.candidate.is_anchored


def backings(db: apsw.Connection, claims: Iterable[Ranked]) -> Mapping[int, Backing]:
    """The evidence of claims by revision row, empty for those that cite nothing."""
    found = {claim.candidate.revision_row: Backing() for claim in claims}
    rows: Iterable[tuple[Any, ...]] = db.execute(_EVIDENCE, (orjson.dumps(list(found)).decode(),))
    for revision_row, artifact_id, revision_id, start, end, title, is_active in rows:
        backing = found[revision_row]
        if is_active:
            span = None if start is None else Span(start, end)
            backing.cited.append(Cited(ArtifactCitation(artifact_id, revision_id, span), title))
        else:
            backing.is_whole = False
    return found


def claim_leads(claims: Sequence[Ranked], evidence: Mapping[int, Backing]) -> list[Lead]:
    """One lead for each revision that claims cite first, by the best of these claims, with its own evidence only."""
    leads: dict[tuple[str, str], Lead] = {}
    for claim in claims:
        backing = evidence[claim.candidate.revision_row]
        leads.setdefault(_source_of(claim, backing), _claim_lead(claim, backing))
    return list(leads.values())


def artifact_leads(artifacts: Sequence[Ranked], beside: Sequence[Lead]) -> list[Lead]:
    """One lead for each artifact, unless its span overlaps what a lead `beside` it shows already."""
    leads: dict[str, Lead] = {}
    for artifact in artifacts:
        lead = _artifact_lead(artifact)
        if not any(_overlap(lead.span, other.span) for other in beside):
            leads.setdefault(artifact.entity.entity_id, lead)
    return list(leads.values())


def seats(claims: int, artifacts: int, leads_max: int) -> tuple[int, int]:
    """How many leads of each kind are shown: claims first, but for two seats that artifacts have to themselves. Seats
    that one kind does not fill are the other's."""
    own = min(limits.PROBE_ARTIFACT_LEADS_MIN, leads_max)
    of_artifacts = min(artifacts, max(own, leads_max - claims))
    return min(claims, leads_max - of_artifacts), of_artifacts


def ordered(leads: Sequence[Lead], *, recency: bool) -> list[Lead]:
    """Leads that are certain to be shown, in their final order: those of anchors first."""
    final = promoted([(lead, lead.ranked.standing) for lead in leads]) if recency else leads
    return sorted(final, key=lambda lead: not lead.is_anchored)


def shortened(title: str) -> str:
    """A title that fits into 48 bytes, cut at a character."""
    if len(title.encode()) <= limits.PROBE_TITLE_BYTES_MAX:
        return title
    return cut(title, limits.PROBE_TITLE_BYTES_MAX - len(_ELLIPSIS.encode())) + _ELLIPSIS


def _source_of(claim: Ranked, backing: Backing) -> tuple[str, str]:
    """What a claim rests on: the revision it cites first, or itself."""
    if not backing.cited:
        return claim.entity.entity_id, claim.entity.revision_id
    return backing.cited[0].place[:2]


def _claim_lead(claim: Ranked, backing: Backing) -> Lead:
    places, is_complete = _shown([cited.place for cited in backing.cited])
    return Lead(
        ranked=claim,
        title=shortened(backing.cited[0].title if backing.cited else claim.entity.title),
        pointers=tuple(Pointer(place, "claim_exact" if place.span else "revision_only") for place in places),
        is_complete=is_complete and backing.is_whole,
        span=next((cited.place for cited in backing.cited if cited.place.span), None),
    )


def _artifact_lead(artifact: Ranked) -> Lead:
    place = parse(artifact.entity.citation)
    return Lead(
        ranked=artifact,
        title=shortened(artifact.entity.title),
        pointers=(Pointer(place, "artifact_exact" if place.span else "revision_only"),),
        is_complete=True,
        span=place if place.span else None,
    )


def _shown(places: Iterable[ArtifactCitation]) -> tuple[list[ArtifactCitation], bool]:
    """Distinct places in the order of the documents, from the first one on as many as the bounds of a lead allow; and
    whether these are all."""
    in_order = sorted(set(places), key=lambda place: (place.artifact_id, place.revision_id, place.span or ()))
    shown: list[ArtifactCitation] = []
    bytes_left = limits.PROBE_LEAD_BYTES_MAX
    for place in in_order[: limits.PROBE_SOURCES_PER_LEAD_MAX]:
        bytes_left -= _size(place)
        if bytes_left < 0:
            break
        shown.append(place)
    return shown, len(shown) == len(in_order)


def _size(place: ArtifactCitation) -> int:
    """Bytes of the span; a whole revision is pointed at and never fetched, so it counts for none."""
    return place.span.end - place.span.start if place.span else 0


def _overlap(one: ArtifactCitation | None, other: ArtifactCitation | None) -> bool:
    if one is None or other is None or one[:2] != other[:2]:
        return False
    assert one.span is not None and other.span is not None, "a lead stands for an exact place or none"
    return one.span.start < other.span.end and other.span.start < one.span.end
