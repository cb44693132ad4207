"""Bounded recency: newer items rise a little inside a page whose membership relevance has frozen (§4, D4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

RECENCY_POLICY: Final = "bounded_recency_v1"
PROMOTION_MAX = 2

_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class DecayClass:
    name: str
    half_life_days: int
    ratio_max: float


_EPHEMERAL = DecayClass("ephemeral", 30, 0.10)
_OBSERVATION = DecayClass("observation", 30, 0.10)
_PREFERENCE = DecayClass("preference", 180, 0.06)
_PROCEDURE = DecayClass("procedure", 365, 0.04)
_DECISION = DecayClass("decision", 730, 0.025)
_CONSTRAINT = DecayClass("constraint", 3650, 0.01)
_GENERAL = DecayClass("general", 180, 0.05)

_ARTIFACT_KINDS = (
    (("log", "session", "trace", "observation"), _EPHEMERAL),
    (("decision", "adr"), _DECISION),
    (("constraint", "policy", "spec"), _CONSTRAINT),
    (("procedure", "runbook"), _PROCEDURE),
)
_CLAIM_TYPES = {
    "observation": _OBSERVATION,
    "preference": _PREFERENCE,
    "procedure": _PROCEDURE,
    "decision": _DECISION,
    "constraint": _CONSTRAINT,
    "fact": _GENERAL,
}


def artifact_class(kind: str) -> DecayClass:
    """The first row of the contract's table with a word the kind contains, in any case."""
    lowered = kind.lower()
    return next((decay for names, decay in _ARTIFACT_KINDS if any(name in lowered for name in names)), _GENERAL)


def claim_class(claim_type: str) -> DecayClass:
    return _CLAIM_TYPES[claim_type]


def bonus(base: float, decay: DecayClass, effective_at: datetime, now: datetime) -> float:
    """What an eligible item's score gains; age counts in whole seconds."""
    age_days = max(0, int((now - effective_at).total_seconds())) / _SECONDS_PER_DAY
    return float(base * decay.ratio_max * 2.0 ** (-age_days / decay.half_life_days))


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides whether an item may pass its neighbour: the same kind of match, and a higher score."""

    tier: tuple[Any, ...]
    score: float


def promoted(items: Sequence[tuple[Item, Standing]]) -> list[Item]:
    """Items in relevance order to final order: nobody rises more than two places or past a better kind of match."""
    placed: list[tuple[Item, Standing]] = []
    for index, (item, standing) in enumerate(items):
        place = len(placed)
        while place > max(0, index - PROMOTION_MAX) and _may_pass(standing, placed[place - 1][1]):
            place -= 1
        placed.insert(place, (item, standing))
    return [item for item, _ in placed]


def _may_pass(standing: Standing, neighbour: Standing) -> bool:
    return standing.tier == neighbour.tier and standing.score > neighbour.score
