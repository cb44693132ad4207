"""Qualification and fusion: which candidates count as answers, and their order (`tiered_rrf_v2`, §2.5 and §2.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memoree.retrieval.candidates import Candidate
from memoree.retrieval.query import Query

LEXICAL_POLICY: Final = "lexical_qualification_v3"
TYPO_POLICY: Final = "trigram_typo_v1"
FUSION_POLICY: Final = "tiered_rrf_v2"

ORDINARY_UNITS_MIN = 3
"""Fewer ordinary words answer only when no other one is lacking: `staging database password` asks for a password."""

RANK_CONSTANT = 60
_LEXICAL_WEIGHT = 1.0
_TYPO_WEIGHT = 0.7
_PROJECTION_WEIGHT = 0.75
_FUSION_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a candidate's match. Only these facts, never a score, make it an answer."""

    matched_units: int
    matched_phrases: int
    coverage: float
    lexical_qualified: bool
    typo_qualified: bool
    exact_tier: bool

    @property
    def qualified(self) -> bool:
        return self.lexical_qualified or self.typo_qualified

    @property
    def match(self) -> tuple[int, ...]:
        """How much of the query is matched; greater is better."""
        return self.exact_tier, self.qualified, self.matched_phrases, self.matched_units


def facts_of(query: Query, candidate: Candidate) -> Facts:
    matched = candidate.units.bit_count()
    return Facts(
        matched_units=matched,
        matched_phrases=(candidate.units & query.phrase_mask).bit_count(),
        coverage=coverage(query, candidate),
        lexical_qualified=_lexical_qualified(query, candidate),
        typo_qualified=_typo_qualified(query, candidate),
        exact_tier=is_exact(query, candidate),
    )


def coverage(query: Query, candidate: Candidate) -> float:
    """Matched share of the units, 0 to 1."""
    return candidate.units.bit_count() / len(query.units)


def is_exact(query: Query, candidate: Candidate) -> bool:
    """Every unit matched, hence every phrase, and as many as are required."""
    return candidate.units == query.all_mask


def is_qualified(query: Query, candidate: Candidate) -> bool:
    return _lexical_qualified(query, candidate) or _typo_qualified(query, candidate)


def _lexical_qualified(query: Query, candidate: Candidate) -> bool:
    return _answers(query, candidate, candidate.units, max(1, query.required_matches))


def typo_matches_needed(query: Query) -> int:
    """Guessed spellings are weaker evidence: three fifths of the units, and at least what exact words need."""
    count = len(query.units)
    return 1 if count == 1 else min(count, max(query.required_matches, -(-3 * count // 5)))


def _typo_qualified(query: Query, candidate: Candidate) -> bool:
    if candidate.typo is None:
        return False
    return _answers(query, candidate, candidate.units | candidate.typo.units, typo_matches_needed(query))


def _answers(query: Query, candidate: Candidate, units: int, needed: int) -> bool:
    if candidate.literals & query.identifier_mask != query.identifier_mask:
        return False
    return _are_enough(query, units, needed, candidate.corrected)


def could_answer(query: Query, units: int) -> bool:
    """Whether a row that has these units and no others might be an answer."""
    return _are_enough(query, units, max(1, query.required_matches), query.all_mask)


def _are_enough(query: Query, units: int, needed: int, corrected: int) -> bool:
    """Whether these units are enough (decision 0013): every phrase and number, as many units as needed, most of those
    that tell the question apart, and of all units half by weight. `corrected` ones tell nothing."""
    must = query.phrase_mask | query.number_mask
    if units & must != must or units.bit_count() < needed:
        return False
    special = query.special_mask & ~corrected
    if 3 * (units & special).bit_count() < 2 * special.bit_count():
        return False
    if not (_most(units, query.telling_mask & ~corrected) and _most(units, query.name_mask & ~corrected)):
        return False
    lacking = query.all_mask & ~units & ~query.common_mask & ~corrected
    if lacking and units.bit_count() < ORDINARY_UNITS_MIN and not units & query.pointed_mask:
        return False
    return 2 * _weight(query, units) >= _weight(query, query.all_mask)


def _most(units: int, mask: int) -> bool:
    return not mask or 2 * (units & mask).bit_count() > mask.bit_count()


def _weight(query: Query, units: int) -> int:
    """Common words count half."""
    return 2 * units.bit_count() - (units & query.common_mask).bit_count()


def fused(query: Query, pool: Sequence[Candidate]) -> list[Candidate]:
    """The pool in relevance order. A commit makes at most one revision, so the order is total."""
    lexical = sorted(
        (candidate for candidate in pool if candidate.units),
        key=lambda c: (-c.written_literals.bit_count(), -c.literals.bit_count(), -c.lexical_score, -c.commit_seq),
    )
    guessed = sorted(
        (candidate for candidate in pool if candidate.typo is not None),
        key=lambda c: (-c.typo.similarity if c.typo else 0.0, -c.lexical_score, -c.commit_seq),
    )
    projected = sorted(
        (candidate for candidate in pool if candidate.projection is not None),
        key=lambda c: (-c.projection.score if c.projection else 0.0, -c.commit_seq),
    )
    for channel, weight in ((lexical, _LEXICAL_WEIGHT), (guessed, _TYPO_WEIGHT), (projected, _PROJECTION_WEIGHT)):
        for rank, candidate in enumerate(channel, start=1):
            if channel is lexical or not is_exact(query, candidate):
                candidate.fusion_score += weight / (RANK_CONSTANT + rank)
    for candidate in pool:
        candidate.fusion_score = round(candidate.fusion_score, _FUSION_DIGITS)
    ranked = sorted(pool, key=lambda candidate: _relevance(query, candidate))
    if any(candidate.is_anchored and not is_qualified(query, candidate) for candidate in ranked):
        ranked.sort(key=lambda candidate: 0 if is_qualified(query, candidate) else 2 - candidate.is_anchored)
    return ranked


def _relevance(query: Query, candidate: Candidate) -> tuple[float, ...]:
    """Exact matches, fused score, phrases, coverage, newest."""
    return (
        candidate.units != query.all_mask,
        -candidate.fusion_score,
        -(candidate.units & query.phrase_mask).bit_count(),
        -candidate.units.bit_count(),
        -candidate.commit_seq,
    )
