"""The answers to one case, held against what it expects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memoree.evaluation.corpus import Case, EntityType, Presence
from memoree.evaluation.exactness import Citations, followed
from memoree.evaluation.seeding import Stored
from memoree.evaluation.surfaces import RECALL, SEARCH, Reply, strings

ENTITY_IDS = re.compile(r"(?:art|clm)_[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one type of entity: what was demanded and found, what was returned and right."""

    demanded: int
    found: int
    returned: int
    right: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an entity stands in `search`, and why: positions count from 1, `None` for one that is not there."""

    ref: str
    position: int | None
    qualified: bool = False
    matched_terms: Sequence[str] = ()
    typo_terms: Sequence[str] = ()
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """One case. Lists of text name what is wrong; `None` means that the case does not ask for it. `presence`, `claims`
    and `artifacts` are those of recall, `answered_by` all surfaces that answer anything."""

    case: Case
    presence: Presence
    answered_by: Sequence[str]
    claims: Sequence[str]
    artifacts: Sequence[str]
    claim_count: Counted
    artifact_count: Counted | None
    conflicts_found: int
    forbidden: Sequence[str]
    outranked: Sequence[str]
    inexact: Sequence[str]
    citations: int
    overruns: Sequence[str]
    is_first: bool | None
    is_shown: bool | None
    size_bytes: int
    standings: Sequence[Standing]

    @property
    def is_false_answer(self) -> bool:
        return self.case.presence == "none" and bool(self.answered_by)

    @property
    def is_false_abstention(self) -> bool:
        return self.case.presence != "none" and self.presence == "none"

    @property
    def is_other_presence(self) -> bool:
        """A claim where only a document answers, or the reverse."""
        return self.presence != self.case.presence and "none" not in (self.presence, self.case.presence)

    @property
    def missing(self) -> list[str]:
        returned = {*self.claims, *self.artifacts}
        return [ref for ref in self.case.expected if ref not in returned]

    @property
    def faults(self) -> list[str]:
        """Everything that is wrong, in words; empty for a case that holds."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        if self.presence != self.case.presence:
            yield f"presence {self.presence}, expected {self.case.presence}"
        elif self.is_false_answer:
            yield f"answered by {', '.join(self.answered_by)}"
        yield from (f"missing {ref}" for ref in self.missing)
        yield from (f"forbidden {found}" for found in self.forbidden)
        yield from (f"outranked {found}" for found in self.outranked)
        if self.conflicts_found < len(self.case.conflicts):
            yield f"{self.conflicts_found} of {len(self.case.conflicts)} conflicts reported"
        if self.is_first is False:
            yield f"{self.case.first} is not first"
        if self.is_shown is False:
            yield f"no excerpt shows {self.case.answer!r}"
        yield from (f"inexact {found}" for found in self.inexact)
        yield from (f"over budget {found}" for found in self.overruns)


def judge(case: Case, replies: Mapping[str, Reply], stored: Stored, citations: Citations) -> Judgement:
    recall = replies[RECALL.name]
    claims = [stored.ref(item["claim_id"]) for item in recall.result["claims"]]
    artifacts = [stored.ref(item["artifact_id"]) for item in recall.result["artifact_refs"]]
    cited = [
        (reply.surface.name, citation, exact)
        for reply in replies.values()
        for citation, exact in followed(reply.surface.op, reply.result, citations)
    ]
    right = {*case.expected, *case.acceptable}
    judges_artifacts = bool(case.artifacts) or case.presence == "none"
    return Judgement(
        case=case,
        presence=recall.result["presence"],
        answered_by=[reply.surface.name for reply in replies.values() if reply.says_something],
        claims=claims,
        artifacts=artifacts,
        claim_count=_counted(case.claims, claims, right),
        artifact_count=_counted(case.artifacts, artifacts, right) if judges_artifacts else None,
        conflicts_found=_conflicts_found(case, recall, stored),
        forbidden=list(_forbidden(case, replies, stored)),
        outranked=[*_outranked(case, case.claims, claims), *_outranked(case, case.artifacts, artifacts)],
        inexact=[f"{where}: {citation}" for where, citation, exact in cited if not exact],
        citations=len(cited),
        overruns=[reply.surface.name for reply in replies.values() if _is_over_budget(reply)],
        is_first=_is_first(case, claims, artifacts, stored),
        is_shown=_is_shown(case, recall, stored),
        size_bytes=recall.size_bytes,
        standings=list(_standings(case, [*claims, *artifacts], replies[SEARCH.name], stored)),
    )


def _counted(demanded: Sequence[str], returned: Sequence[str], right: set[str]) -> Counted:
    return Counted(
        demanded=len(demanded),
        found=sum(ref in returned for ref in demanded),
        returned=len(returned),
        right=sum(ref in right for ref in returned),
    )


def _conflicts_found(case: Case, recall: Reply, stored: Stored) -> int:
    pairs = [{stored.ref(item["left_id"]), stored.ref(item["right_id"])} for item in recall.result["conflicts"]]
    return sum(set(pair) in pairs for pair in case.conflicts)


def _forbidden(case: Case, replies: Mapping[str, Reply], stored: Stored) -> Iterator[str]:
    """Forbidden entities that an answer names anywhere. A negative is alive and in scope: it may have come close."""
    never = set(case.forbidden)
    nowhere = never - set(case.negatives)
    for reply in replies.values():
        for part, banned in ((reply.answers, never), (reply.candidates, nowhere)):
            yield from (f"{reply.surface.name}: {ref}" for ref in sorted(_named(part, stored) & banned))


def _named(part: Any, stored: Stored) -> set[str]:
    """The entities whose ids occur in any string, citations and renderings included."""
    return {stored.ref(found) for text in strings(part) for found in ENTITY_IDS.findall(text)}


def _outranked(case: Case, expected: Sequence[str], returned: Sequence[str]) -> Iterator[str]:
    """Negatives before an expected entity of their list, or there without it."""
    places = {ref: place for place, ref in enumerate(returned)}
    for ref in expected:
        for negative in case.negatives:
            if negative in places and places[negative] < places.get(ref, len(returned)):
                yield f"{ref} by {negative}"


def _is_over_budget(reply: Reply) -> bool:
    """Also for a context that says of itself less than it has."""
    if reply.surface.op != "context.build":
        return False
    size = len(reply.result["rendered_markdown"].encode())
    budget: int = reply.surface.extra["max_bytes"]
    told: int = reply.result["used_bytes"]
    return size > budget or size != told


def _is_first(case: Case, claims: Sequence[str], artifacts: Sequence[str], stored: Stored) -> bool | None:
    if case.first is None:
        return None
    entity_type: EntityType = stored.entities[case.first].entity_type
    return list(claims if entity_type == "claim" else artifacts)[:1] == [case.first]


def _is_shown(case: Case, recall: Reply, stored: Stored) -> bool | None:
    """Whether what is shown of an expected entity holds the words that answer."""
    if case.answer is None:
        return None
    shown = [(item["artifact_id"], item["excerpt"]) for item in recall.result["artifact_refs"]]
    shown += [(item["claim_id"], item["statement"]) for item in recall.result["claims"]]
    return any(case.answer in text for entity_id, text in shown if stored.ref(entity_id) in case.expected)


def _standings(case: Case, returned: Sequence[str], search: Reply, stored: Stored) -> Iterator[Standing]:
    """Of everything that is expected, and of what was returned without being right."""
    hits = {stored.ref(hit["entity_id"]): (place, hit) for place, hit in enumerate(search.result["hits"], start=1)}
    wrong = [ref for ref in returned if ref not in case.expected and ref not in case.acceptable]
    for ref in (*case.expected, *wrong):
        if ref not in hits:
            yield Standing(ref, None)
            continue
        place, hit = hits[ref]
        ranking = hit["ranking"]
        yield Standing(
            ref,
            place,
            ranking["qualified"],
            ranking["matched_terms"],
            ranking["trigram_matched_terms"],
            ranking["lexical_coverage"],
        )
